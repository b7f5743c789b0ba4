-- Times in milliseconds, except `now_us`, `tat_us`, `interval_us` and `tolerance_us`, which are microseconds.
-- Admits a request: rate (GCRA), token budget, lease. A refusal charges nothing.
-- KEYS: request, rate, used, reserved, expiry, fence [, lease]
-- ARGV: 1 request id, 2 fingerprint, 3 tokens, 4 lease_ms, 5 interval_us (0: no rate), 6 tolerance_us,
--       7 budget tokens (0: none), 8 window_ms, 9 "1" when the answer was found, 10 "1" when a lease is wanted,
--       11 memory_ms of a request, 12 fence of the commit after which the answer was looked for again, or "0",
--       13 reservation_ms, 14 follow_ms, how long a follower counts without reading
-- Returns: outcome, now_us, retry_ms (-1: never), fence, budget left (-1: no budget)
local SWEEP_MAX = 1000
local SLACK_MS = 1000
local FENCE_MEMORY_MS = 604800000
local SUM = '/sum'

local function text(number) return string.format('%.0f', number) end
local function keep_until(key, at_ms, now_ms)
  if redis.call('PTTL', key) < at_ms - now_ms then redis.call('PEXPIREAT', key, text(at_ms)) end
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local id, fingerprint = ARGV[1], ARGV[2]
local tokens, lease_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
local interval_us, tolerance_us = tonumber(ARGV[5]), tonumber(ARGV[6])
local budget, window_ms, memory_ms = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[11])
local until_ms, reserved_until_ms = now_ms + lease_ms, now_ms + tonumber(ARGV[13])

-- A full store refuses a script's first write if that needs memory and none after it, so deletions come first.
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text(now_ms), 'LIMIT', 0, SWEEP_MAX)) do
  local amount = redis.call('HGET', KEYS[4], gone)
  redis.call('ZREM', KEYS[5], gone)
  if amount then
    redis.call('HDEL', KEYS[4], gone)
    redis.call('HINCRBY', KEYS[4], SUM, text(0 - tonumber(amount)))
  end
end

local window = text(math.floor(now_ms / window_ms))
local used_record = redis.call('HMGET', KEYS[3], 'window', 'tokens')
local used = used_record[1] == window and tonumber(used_record[2]) or 0
local reserved = tonumber(redis.call('HGET', KEYS[4], SUM) or '0')
local function left()
  if budget == 0 then return -1 end
  return math.max(0, budget - used - reserved)
end

local request = redis.call('HMGET', KEYS[1], 'state', 'fingerprint')
local is_known = request[1] == 'open' or request[1] == 'free'
if is_known and request[2] ~= fingerprint then return {'duplicate', now_us, -1, 0, left()} end

local new_tat_us = 0
if interval_us > 0 and not is_known then
  -- The rate may have changed: what is owed, in requests, is worked off at the new one.
  local tat, was = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) ?(%d*)$')
  local owed_us = math.max(tonumber(tat or '0') - now_us, 0)
  local was_us = tonumber(was or '') or interval_us
  if was_us ~= interval_us then owed_us = math.floor(owed_us * interval_us / was_us) end
  local tat_us = now_us + owed_us
  new_tat_us = tat_us + interval_us
  local allowed_us = new_tat_us - tolerance_us
  if now_us < allowed_us then
    return {'rate', now_us, math.ceil((allowed_us - now_us) / 1000), 0, left()}
  end
end

local outcome, fence, is_new_lease = 'miss', 0, false
if ARGV[9] == '1' then
  outcome = 'hit'
elseif KEYS[7] then
  local lease = redis.call('HMGET', KEYS[7], 'fence', 'request', 'expires_ms', 'state', 'is_overflowed')
  local is_live = lease[1] and now_ms < tonumber(lease[3])
  if is_live and lease[4] == 'done' and lease[1] ~= ARGV[12] then
    -- The answer was stored between the caller's look and this script: it looks again. Nothing is charged.
    return {'recheck', now_us, 0, tonumber(lease[1]), left()}
  elseif is_live and lease[4] == 'open' and lease[2] == id then
    outcome, fence = 'lease', tonumber(lease[1])
  elseif ARGV[10] ~= '1' then
    outcome = 'miss'
  elseif is_live and lease[4] == 'open' then
    if lease[5] ~= '1' then outcome, fence = 'follow', tonumber(lease[1]) end
  else
    outcome, is_new_lease = 'lease', true
  end
end

local is_generating = outcome == 'lease' or outcome == 'miss'
local held = tonumber(redis.call('HGET', KEYS[4], id) or '0')
if is_generating and budget > 0 and used + reserved - held + tokens > budget then
  local retry_ms = -1
  if tokens <= budget then
    retry_ms = (math.floor(now_ms / window_ms) + 1) * window_ms - now_ms
    local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
    if used + tokens <= budget and first[2] then
      retry_ms = math.min(retry_ms, math.max(1, tonumber(first[2]) - now_ms))
    end
  end
  return {'quota', now_us, retry_ms, 0, left()}
end

if new_tat_us > 0 then
  local rate = text(new_tat_us) .. ' ' .. text(interval_us)
  redis.call('SET', KEYS[2], rate, 'PX', text(math.ceil((new_tat_us - now_us) / 1000) + SLACK_MS))
end
if is_generating then
  redis.call('HSET', KEYS[4], id, text(tokens))
  reserved = redis.call('HINCRBY', KEYS[4], SUM, text(tokens - held))
  redis.call('ZADD', KEYS[5], text(reserved_until_ms), id)
  keep_until(KEYS[4], reserved_until_ms + SLACK_MS, now_ms)
  keep_until(KEYS[5], reserved_until_ms + SLACK_MS, now_ms)
end
if is_new_lease then
  -- Rises even after the store was lost: it is at least the time.
  fence = math.max(tonumber(redis.call('GET', KEYS[6]) or '0') + 1, now_us)
  redis.call('SET', KEYS[6], text(fence), 'PX', FENCE_MEMORY_MS)
  redis.call('DEL', KEYS[7])
  redis.call('HSET', KEYS[7], 'fence', text(fence), 'request', id, 'state', 'open', 'followed_ms', '0', 'bytes', '0')
end
if outcome == 'lease' then
  redis.call('HSET', KEYS[7], 'expires_ms', text(until_ms))
  redis.call('PEXPIREAT', KEYS[7], text(until_ms + SLACK_MS))
elseif outcome == 'follow' then
  -- The caller follows next; the leader may hear of it before that.
  local followed_ms, follow_until_ms = tonumber(redis.call('HGET', KEYS[7], 'followed_ms')), now_ms + tonumber(ARGV[14])
  if followed_ms < follow_until_ms then redis.call('HSET', KEYS[7], 'followed_ms', text(follow_until_ms)) end
end
if is_generating or interval_us > 0 then
  local state = (is_generating or request[1] == 'open') and 'open' or 'free'
  redis.call('HSET', KEYS[1], 'state', state, 'fingerprint', fingerprint)
  redis.call('PEXPIREAT', KEYS[1], text(math.max(until_ms, reserved_until_ms) + memory_ms))
end
return {outcome, now_us, 0, fence, left()}
