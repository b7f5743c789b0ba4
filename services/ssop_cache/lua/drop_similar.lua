-- Times in milliseconds, of which this script reads none.
-- Forgets a question whose answer is gone.
-- KEYS: similar records, similar by scope, similar by age
-- ARGV: 1 name
-- Returns: 1 when it was there
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
