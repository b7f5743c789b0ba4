-- Times in milliseconds.
-- Puts the record of an API key in the place of the one that the writer knew.
-- KEYS: records, version
-- ARGV: 1 id, 2 expected record (empty: none), 3 record, 4 most records
-- Returns: 1 when written, 0 when another record is there, -1 when there is no room
local before = redis.call('HGET', KEYS[1], ARGV[1])
if (before or '') ~= ARGV[2] then return {0} end
if not before and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return {-1} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
-- The time, so that a store that was put back to an older state never counts up to a version that somebody has.
local time = redis.call('TIME')
local version = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
redis.call('SET', KEYS[2], string.format('%d', version))
return {1}
