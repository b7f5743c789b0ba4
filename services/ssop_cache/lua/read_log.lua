-- Times in milliseconds, except `now_us`, which is microseconds.
-- Reads the log of a generation from an entry on, and keeps its follower registered.
-- KEYS: lease, log
-- ARGV: 1 fence, 2 first entry, from 0, 3 most entries, 4 follow_ms, how long the follower counts without reading
-- Returns: outcome (open, more, ended, done, lost), now_us, chunks ...
-- with _records

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local first, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local entries = call('LRANGE', KEYS[2], first, first + most - 1)
local reply, is_ended = {'', now_us}, false
for _, entry in ipairs(entries) do
  if entry == 'e' then is_ended = true else reply[#reply + 1] = string.sub(entry, 2) end
end

local lease = read_lease(call('MGET', KEYS[1])[1])
local is_ours = lease and lease.fence == ARGV[1] and now_ms < lease.expires_ms and not lease.is_overflowed
local follow_ms = tonumber(ARGV[4])
-- Renewed at half time only: a write costs the disk.
if is_ours and lease.state == 'open' and lease.followed_ms < now_ms + follow_ms / 2 then
  lease.followed_ms = now_ms + follow_ms
  write_lease(KEYS[1], lease)
end
if is_ended then
  reply[1] = 'ended'
elseif #entries == most then
  reply[1] = 'more'
elseif is_ours then
  reply[1] = lease.state
else
  reply[1] = 'lost'
end
return reply
