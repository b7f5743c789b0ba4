-- Times in milliseconds.
-- Stores answers, unless a later generation has stored one or their generations began before a flush.
-- KEYS: flush, then the answers
-- ARGV: 1 name of the mark, where there is none, then for each answer: fence, record, ttl_ms
-- Returns: for each 1 when stored, 2 when it took the place of another, else 0
-- with _answers
local reply = {}
if #KEYS == 1 then return reply end
local time = call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
local mark = call('HMGET', KEYS[1], 'epoch', 'floor')
local epoch, is_marked = mark[1] or ARGV[1], mark[1]
local after = mark[2] and tonumber(mark[2])
local head = ' ' .. string.format('%d', now_ms) .. ' ' .. #epoch .. ' ' .. epoch
local before = call('MGET', unpack(KEYS, 2))

local seen, last_ttl_ms, end_ms = {}, nil, nil
local function put(key, value, fence, record, ttl_ms)
  if after and tonumber(fence) <= after then return 0 end
  local is_there = value or seen[key]
  local was = seen[key]
  if value and not was then
    local known, _, stored_epoch = read_head(value)
    was = stored_epoch == epoch and known
  end
  if was and tonumber(was) > tonumber(fence) then return 0 end
  if not is_marked then
    call('HSET', KEYS[1], 'epoch', epoch)
    is_marked = true
  end
  -- A server writes a command anew that says for how long, and those of a batch last as long.
  if ttl_ms ~= last_ttl_ms then last_ttl_ms, end_ms = ttl_ms, string.format('%d', now_ms + tonumber(ttl_ms)) end
  call('SET', key, fence .. head .. record, 'PXAT', end_ms)
  seen[key] = fence
  return is_there and 2 or 1
end

for at = 1, #KEYS - 1 do
  reply[at] = put(KEYS[at + 1], before[at], ARGV[3 * at - 1], ARGV[3 * at], ARGV[3 * at + 1])
end
return reply
