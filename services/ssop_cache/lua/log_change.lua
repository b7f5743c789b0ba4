-- Times in milliseconds, of which this script reads none.
-- Appends a change of stored answers to the log that every host reads. Numbers rise by one.
-- KEYS: head, log
-- ARGV: 1 nonce for a new log, 2 tenant's tag, 3 cache key or "", 4 fence, 5 most changes
-- Returns: its number
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1])
local last = redis.call('HINCRBY', KEYS[1], 'last', 1)
local id = string.format('%.0f', last) .. '-1'
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[5], id, 't', ARGV[2], 'k', ARGV[3], 'f', ARGV[4])
return last
