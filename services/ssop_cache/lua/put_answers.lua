-- Times in milliseconds.
-- Stores answers, unless a later generation has stored one or their generations began before a flush.
-- KEYS: flush, then the answers
-- ARGV: 1 name of the mark, where there is none, then for each answer: fence, record, ttl_ms
-- Returns: for each 1 when stored, 2 when it took the place of another, else 0
local time = redis.call('TIME')
local now_ms = string.format('%d', math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000))
local mark = redis.call('HMGET', KEYS[1], 'epoch', 'floor')
local epoch, is_marked = mark[1] or ARGV[1], mark[1]

local function put(key, fence, record, ttl_ms)
  if mark[2] and tonumber(mark[2]) >= tonumber(fence) then return 0 end
  local before = redis.call('HMGET', key, 'fence', 'epoch')
  if before[1] and before[2] == epoch and tonumber(before[1]) > tonumber(fence) then return 0 end
  if not is_marked then
    redis.call('HSET', KEYS[1], 'epoch', epoch)
    is_marked = true
  end
  redis.call('HSET', key, 'fence', fence, 'stored_ms', now_ms, 'record', record, 'epoch', epoch)
  redis.call('PEXPIRE', key, ttl_ms)
  return before[1] and 2 or 1
end

local reply = {}
for at = 1, #KEYS - 1 do reply[at] = put(KEYS[at + 1], ARGV[3 * at - 1], ARGV[3 * at], ARGV[3 * at + 1]) end
return reply
