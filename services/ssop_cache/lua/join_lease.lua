-- Times in milliseconds, except `now_us`, which is microseconds.
-- Registers a follower of a generation that runs.
-- KEYS: lease
-- ARGV: 1 follow_ms, how long the follower counts without reading
-- Returns: outcome (open, done, none), now_us, fence
-- with _records

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local lease = read_lease(call('MGET', KEYS[1])[1])
if not lease or now_ms >= lease.expires_ms or lease.is_overflowed then return {'none', now_us, 0} end
local until_ms = now_ms + tonumber(ARGV[1])
if lease.state == 'open' and lease.followed_ms < until_ms then
  lease.followed_ms = until_ms
  write_lease(KEYS[1], lease)
end
return {lease.state, now_us, tonumber(lease.fence)}
