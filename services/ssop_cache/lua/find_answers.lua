-- Times in milliseconds.
-- Reads stored answers, unless they are too old or from before the tenant's answers were flushed.
-- KEYS: flush, then the answers
-- ARGV: for each answer: max_age_ms, 0: no limit
-- Returns: for each nothing, or age_ms, fence, time to live, where the record begins in what follows, from 0
-- with _answers
local reply = {}
if #ARGV == 0 then return reply end
local found, now_ms, epoch = call('MGET', unpack(KEYS, 2)), nil, nil

local function find(key, value, max_age_ms)
  local fence, stored_ms, stored_epoch, start = read_head(value)
  if not now_ms then
    local time = call('TIME')
    now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
    epoch = call('HGET', KEYS[1], 'epoch')
  end
  -- Where the mark was evicted, answers stored under it are no longer known to be good.
  if stored_epoch ~= epoch then return false end
  local age_ms = math.max(0, now_ms - tonumber(stored_ms))
  if max_age_ms > 0 and age_ms > max_age_ms then return false end
  -- Not cut out here: Lua hashes every byte of every string.
  return {age_ms, tonumber(fence), call('PTTL', key), start - 1, value}
end

for at = 1, #ARGV do
  reply[at] = found[at] and find(KEYS[at + 1], found[at], tonumber(ARGV[at])) or false
end
return reply
