-- Times in milliseconds.
-- Reads the mark that a FLUSHALL takes away from the cache instance, and sets a new one where there is none.
-- KEYS: mark
-- ARGV: 1 nonce, the mark where there is none
-- Returns: the server's run id ("" where INFO is forbidden), mark, 1 where it is new
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local mark = redis.call('GET', KEYS[1])
if mark then return {run_id, mark, 0} end
redis.call('SET', KEYS[1], ARGV[1])
return {run_id, ARGV[1], 1}
