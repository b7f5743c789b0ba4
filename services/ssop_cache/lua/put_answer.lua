-- Times in milliseconds.
-- Stores an answer, unless a later generation has stored one or its generation began before a flush.
-- KEYS: answer, flush
-- ARGV: 1 fence, 2 record, 3 ttl_ms, 4 name of the mark, where there is none
-- Returns: 1 when stored
local mark = redis.call('HMGET', KEYS[2], 'epoch', 'floor')
if mark[2] and tonumber(mark[2]) >= tonumber(ARGV[1]) then return 0 end
local epoch = mark[1] or ARGV[4]
local before = redis.call('HMGET', KEYS[1], 'fence', 'epoch')
if before[1] and before[2] == epoch and tonumber(before[1]) > tonumber(ARGV[1]) then return 0 end
local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
if not mark[1] then redis.call('HSET', KEYS[2], 'epoch', epoch) end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'stored_ms', string.format('%.0f', now_ms), 'record', ARGV[2],
  'epoch', epoch)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
