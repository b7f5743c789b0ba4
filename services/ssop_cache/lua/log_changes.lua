-- Times in milliseconds, of which this script reads none.
-- Appends changes of stored answers to the log that every host reads, in their order. Numbers rise by one.
-- KEYS: head, log
-- ARGV: 1 nonce for a new log, 2 most changes, then for each change: tenant's tag, cache key or "", fence
-- Returns: the number of the last one
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1])
local count = (#ARGV - 2) / 3
local last = redis.call('HINCRBY', KEYS[1], 'last', string.format('%d', count))
for at = 1, count do
  local id = string.format('%d', last - count + at) .. '-1'
  redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[2], id, 't', ARGV[3 * at], 'k', ARGV[3 * at + 1], 'f', ARGV[3 * at + 2])
end
return last
