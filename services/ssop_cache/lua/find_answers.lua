-- Times in milliseconds.
-- Reads stored answers, unless they are too old or from before the tenant's answers were flushed.
-- KEYS: flush, then the answers
-- ARGV: for each answer: max_age_ms, 0: no limit
-- Returns: for each nothing, or age_ms, fence, record, time to live
local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
local epoch

local function find(key, max_age_ms)
  local answer = redis.call('HMGET', key, 'stored_ms', 'fence', 'record', 'epoch')
  if not answer[1] then return {} end
  if epoch == nil then epoch = redis.call('HGET', KEYS[1], 'epoch') end
  -- Where the mark was evicted, answers stored under it are no longer known to be good.
  if answer[4] ~= epoch then return {} end
  local age_ms = math.max(0, now_ms - tonumber(answer[1]))
  if max_age_ms > 0 and age_ms > max_age_ms then return {} end
  return {age_ms, tonumber(answer[2]), answer[3], redis.call('PTTL', key)}
end

local reply = {}
for at = 1, #ARGV do reply[at] = find(KEYS[at + 1], tonumber(ARGV[at])) end
return reply
