-- Times in milliseconds.
-- Stores an answer, unless a later generation has stored one.
-- KEYS: answer
-- ARGV: 1 fence, 2 record, 3 ttl_ms
-- Returns: 1 when stored
local before = redis.call('HGET', KEYS[1], 'fence')
if before and tonumber(before) > tonumber(ARGV[1]) then return 0 end
local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'stored_ms', string.format('%.0f', now_ms), 'record', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
