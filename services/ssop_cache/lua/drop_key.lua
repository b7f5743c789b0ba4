-- Times in milliseconds.
-- Drops the record of an API key, unless it has changed.
-- KEYS: records, version
-- ARGV: 1 id, 2 the record
-- Returns: 1 when dropped
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {0} end
redis.call('HDEL', KEYS[1], ARGV[1])
-- As in write_key.
local time = redis.call('TIME')
local version = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
redis.call('SET', KEYS[2], string.format('%d', version))
return {1}
