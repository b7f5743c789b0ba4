-- Times in milliseconds, except `now_us`, which is microseconds.
-- Renews reservations and leases of generations that go on. What is not held any more stays as it is.
-- KEYS: reserved, expiry, then lease and log for each lease
-- ARGV: 1 reservation_ms, 2 lease_ms, 3 number of leases, then their fences, then request ids
-- Returns: ok, now_us, then for each lease 0 when it is lost, 1 when it is held, 2 when somebody follows, too
local SLACK_MS = 1000

local function text(number) return string.format('%.0f', number) end
local function expire_at(key, at_ms) redis.call('PEXPIREAT', key, text(at_ms)) end
local function keep_until(key, at_ms, now_ms)
  if redis.call('PTTL', key) < at_ms - now_ms then redis.call('PEXPIREAT', key, text(at_ms)) end
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local reserved_until_ms, until_ms = now_ms + tonumber(ARGV[1]), now_ms + tonumber(ARGV[2])
local count = tonumber(ARGV[3])

local reply = {'ok', now_us}
for at = 1, count do
  local key = KEYS[1 + 2 * at]
  local lease = redis.call('HMGET', key, 'fence', 'state', 'expires_ms', 'followed_ms', 'is_overflowed')
  local is_held = lease[1] == ARGV[3 + at] and lease[2] == 'open' and now_ms < tonumber(lease[3])
  -- Asked more often than it must be written: a write costs the disk.
  if is_held and tonumber(lease[3]) < until_ms - tonumber(ARGV[2]) / 5 then
    redis.call('HSET', key, 'expires_ms', text(until_ms))
    expire_at(key, until_ms + SLACK_MS)
    expire_at(KEYS[2 + 2 * at], until_ms + SLACK_MS)
  end
  local is_followed = is_held and tonumber(lease[4]) > now_ms and lease[5] ~= '1'
  reply[2 + at] = is_followed and 2 or (is_held and 1 or 0)
end

local is_any = false
for at = 4 + count, #ARGV do
  local held_until_ms = redis.call('ZSCORE', KEYS[2], ARGV[at])
  if held_until_ms and tonumber(held_until_ms) > now_ms then
    redis.call('ZADD', KEYS[2], text(reserved_until_ms), ARGV[at])
    is_any = true
  end
end
if is_any then
  keep_until(KEYS[1], reserved_until_ms + SLACK_MS, now_ms)
  keep_until(KEYS[2], reserved_until_ms + SLACK_MS, now_ms)
end
return reply
