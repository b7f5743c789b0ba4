-- Times in milliseconds, except `now_us`, which is microseconds.
-- Registers a follower of a generation that runs.
-- KEYS: lease
-- ARGV: 1 follow_ms, how long the follower counts without reading
-- Returns: outcome (open, done, none), now_us, fence
local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local lease = redis.call('HMGET', KEYS[1], 'fence', 'state', 'expires_ms', 'followed_ms', 'is_overflowed')
if not lease[1] or now_ms >= tonumber(lease[3]) or lease[5] == '1' then return {'none', now_us, 0} end
if lease[2] == 'open' then
  local until_ms = now_ms + tonumber(ARGV[1])
  if tonumber(lease[4]) < until_ms then redis.call('HSET', KEYS[1], 'followed_ms', text(until_ms)) end
end
return {lease[2], now_us, tonumber(lease[1])}
