-- Times in milliseconds.
-- Makes an answer findable by its question. Above the bound the oldest go.
-- KEYS: similar records, similar by scope, similar by age
-- ARGV: 1 name, 2 record, 3 ttl_ms, 4 most records of the tenant
-- Returns: records that had to go
local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
-- The three are evicted one by one; without one of them the others say nothing that is sure.
if redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[3])
  or redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], string.format('%d', now_ms), ARGV[1])
local gone = 0
while redis.call('ZCARD', KEYS[3]) > tonumber(ARGV[4]) do
  local oldest = redis.call('ZPOPMIN', KEYS[3])[1]
  redis.call('HDEL', KEYS[1], oldest)
  redis.call('ZREM', KEYS[2], oldest)
  gone = gone + 1
end
local ttl_ms = math.max(tonumber(ARGV[3]), redis.call('PTTL', KEYS[1]))
redis.call('PEXPIRE', KEYS[1], string.format('%d', ttl_ms))
redis.call('PEXPIRE', KEYS[2], string.format('%d', ttl_ms))
redis.call('PEXPIRE', KEYS[3], string.format('%d', ttl_ms))
return gone
