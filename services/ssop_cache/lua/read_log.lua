-- Times in milliseconds, except `now_us`, which is microseconds.
-- Reads the log of a generation from an entry on, and keeps its follower registered.
-- KEYS: lease, log
-- ARGV: 1 fence, 2 first entry, from 0, 3 most entries, 4 follow_ms, how long the follower counts without reading
-- Returns: outcome (open, more, ended, done, lost), now_us, chunks ...
local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local first, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local entries = redis.call('LRANGE', KEYS[2], first, first + most - 1)
local reply, is_ended = {'', now_us}, false
for _, entry in ipairs(entries) do
  if entry == 'e' then is_ended = true else reply[#reply + 1] = string.sub(entry, 2) end
end

local lease = redis.call('HMGET', KEYS[1], 'fence', 'state', 'expires_ms', 'followed_ms', 'is_overflowed')
local is_ours = lease[1] == ARGV[1] and now_ms < tonumber(lease[3]) and lease[5] ~= '1'
if is_ours and lease[2] == 'open' then
  -- Renewed at half time only: a write costs the disk.
  local follow_ms = tonumber(ARGV[4])
  if tonumber(lease[4]) < now_ms + follow_ms / 2 then
    redis.call('HSET', KEYS[1], 'followed_ms', text(now_ms + follow_ms))
  end
end
if is_ended then
  reply[1] = 'ended'
elseif #entries == most then
  reply[1] = 'more'
elseif is_ours then
  reply[1] = lease[2]
else
  reply[1] = 'lost'
end
return reply
