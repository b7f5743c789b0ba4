-- Times in milliseconds, except `now_us`, which is microseconds.
-- Renews a lease and, where there is a chunk, appends it to the log of its generation.
-- KEYS: lease, log
-- ARGV: 1 fence, 2 chunk, 3 lease_ms, 4 most bytes of a log, 5 channel
-- Returns: outcome (ok, lost), now_us, 1 when somebody follows, 1 when the log overflowed
local SLACK_MS = 1000

local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local until_ms = now_ms + tonumber(ARGV[3])

local lease = redis.call(
  'HMGET', KEYS[1], 'fence', 'state', 'expires_ms', 'followed_ms', 'bytes', 'is_overflowed')
if lease[1] ~= ARGV[1] or lease[2] ~= 'open' or now_ms >= tonumber(lease[3]) then
  return {'lost', now_us, 0, 0}
end
redis.call('HSET', KEYS[1], 'expires_ms', text(until_ms))
redis.call('PEXPIREAT', KEYS[1], text(until_ms + SLACK_MS))

local is_followed = tonumber(lease[4]) > now_ms
local is_overflowed = lease[6] == '1'
if ARGV[2] ~= '' and not is_overflowed then
  if tonumber(lease[5]) + #ARGV[2] > tonumber(ARGV[4]) then
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
