-- Times in milliseconds, of which this script reads none.
-- Deletes one stored answer.
-- KEYS: answer
-- Returns: 1 when there was one
return redis.call('DEL', KEYS[1])
