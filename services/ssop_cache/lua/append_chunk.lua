-- Times in milliseconds, except `now_us`, which is microseconds.
-- Renews a lease and, where there is a chunk, appends it to the log of its generation.
-- KEYS: lease, log, reserved, expiry
-- ARGV: 1 fence, 2 chunk, 3 lease_ms, 4 most bytes of a log, 5 channel
-- Returns: outcome (ok, lost), now_us, 1 when somebody follows, 1 when the log overflowed
local SLACK_MS = 1000

local function text(number) return string.format('%.0f', number) end
local function keep_until(key, at_ms, now_ms)
  if redis.call('PTTL', key) < at_ms - now_ms then redis.call('PEXPIREAT', key, text(at_ms)) end
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local until_ms = now_ms + tonumber(ARGV[3])

local lease = redis.call(
  'HMGET', KEYS[1], 'fence', 'state', 'expires_ms', 'request', 'followed_ms', 'bytes', 'is_overflowed')
if lease[1] ~= ARGV[1] or lease[2] ~= 'open' or now_ms >= tonumber(lease[3]) then
  return {'lost', now_us, 0, 0}
end
redis.call('HSET', KEYS[1], 'expires_ms', text(until_ms))
redis.call('PEXPIREAT', KEYS[1], text(until_ms + SLACK_MS))
-- A lapsed reservation that was not swept yet comes back with the sign of life.
if redis.call('HEXISTS', KEYS[3], lease[4]) == 1 then
  redis.call('ZADD', KEYS[4], text(until_ms), lease[4])
  keep_until(KEYS[3], until_ms + SLACK_MS, now_ms)
  keep_until(KEYS[4], until_ms + SLACK_MS, now_ms)
end

local is_followed = tonumber(lease[5]) > now_ms
local is_overflowed = lease[7] == '1'
if ARGV[2] ~= '' and not is_overflowed then
  if tonumber(lease[6]) + #ARGV[2] > tonumber(ARGV[4]) then
    is_overflowed = true
    redis.call('HSET', KEYS[1], 'is_overflowed', '1')
    redis.call('DEL', KEYS[2])
  else
    redis.call('RPUSH', KEYS[2], 'c' .. ARGV[2])
    redis.call('HINCRBY', KEYS[1], 'bytes', #ARGV[2])
  end
  if is_followed then redis.call('PUBLISH', ARGV[5], '') end
end
if not is_overflowed then redis.call('PEXPIREAT', KEYS[2], text(until_ms + SLACK_MS)) end
return {'ok', now_us, (is_followed and not is_overflowed) and 1 or 0, is_overflowed and 1 or 0}
