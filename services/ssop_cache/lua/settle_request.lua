-- Times in milliseconds, except `now_us`, which is microseconds.
-- Charges what a request used and gives the rest of its reservation back, once; and counts it for the day.
-- KEYS: request, used, reserved, expiry, usage
-- ARGV: 1 request id, 2 tokens used, 3 window_ms, 4 memory_ms of a request, 5 days of usage kept, then counter, amount, ...
-- Returns: outcome (settled, repeated, unknown), now_us, charged tokens
local SLACK_MS = 1000
local SUM = '/sum'
local DAY_MS = 86400000

local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local id, window_ms = ARGV[1], tonumber(ARGV[3])

local function count()
  local day = math.floor(now_ms / DAY_MS)
  for at = 6, #ARGV, 2 do redis.call('HINCRBY', KEYS[5], text(day) .. '/' .. ARGV[at], ARGV[at + 1]) end
  if redis.call('HSETNX', KEYS[5], 'last', text(day)) == 0 and redis.call('HGET', KEYS[5], 'last') ~= text(day) then
    -- The first of a new day makes room.
    redis.call('HSET', KEYS[5], 'last', text(day))
    for _, field in ipairs(redis.call('HKEYS', KEYS[5])) do
      local kept = string.match(field, '^(%d+)/')
      if kept and tonumber(kept) <= day - tonumber(ARGV[5]) then redis.call('HDEL', KEYS[5], field) end
    end
  end
end

local state = redis.call('HGET', KEYS[1], 'state')
if not state then
  -- A hit leaves no trace of its admission.
  count()
  return {'unknown', now_us, 0}
end
if state == 'settled' then return {'repeated', now_us, 0} end

local amount = redis.call('HGET', KEYS[3], id)
if amount then
  -- A full store refuses a script's first write if that needs memory and none after it, so deletions come first.
  redis.call('HDEL', KEYS[3], id)
  redis.call('ZREM', KEYS[4], id)
  redis.call('HINCRBY', KEYS[3], SUM, text(0 - tonumber(amount)))
  -- The last reservation takes the sum with it.
  if redis.call('ZCARD', KEYS[4]) == 0 then redis.call('DEL', KEYS[3]) end
end

-- A request that was served from the cache or followed has no reservation and used nothing.
local charged = state == 'open' and tonumber(ARGV[2]) or 0
if charged > 0 then
  local window = text(math.floor(now_ms / window_ms))
  if redis.call('HGET', KEYS[2], 'window') ~= window then
    redis.call('HSET', KEYS[2], 'window', window, 'tokens', '0')
  end
  redis.call('HINCRBY', KEYS[2], 'tokens', text(charged))
  redis.call('PEXPIRE', KEYS[2], text(window_ms + SLACK_MS))
end
count()
redis.call('HSET', KEYS[1], 'state', 'settled')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'settled', now_us, charged}
