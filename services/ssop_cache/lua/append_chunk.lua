-- Times in milliseconds, except `now_us`, which is microseconds.
-- Renews a lease and, where there is a chunk, appends it to the log of its generation.
-- KEYS: lease, log
-- ARGV: 1 fence, 2 chunk, 3 lease_ms, 4 most bytes of a log, 5 channel
-- Returns: outcome (ok, lost), now_us, 1 when somebody follows, 1 when the log overflowed
-- with _records

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local until_ms = now_ms + tonumber(ARGV[3])

local lease = read_lease(call('MGET', KEYS[1])[1])
if not is_held(lease, ARGV[1], now_ms) then return {'lost', now_us, 0, 0} end
lease.expires_ms = until_ms

local is_followed = lease.followed_ms > now_ms
if ARGV[2] ~= '' and not lease.is_overflowed then
  if lease.bytes + #ARGV[2] > tonumber(ARGV[4]) then
    lease.is_overflowed = true
    call('DEL', KEYS[2])
  else
    call('RPUSH', KEYS[2], 'c' .. ARGV[2])
    lease.bytes = lease.bytes + #ARGV[2]
  end
  if is_followed then call('PUBLISH', ARGV[5], '') end
end
write_lease(KEYS[1], lease)
if not lease.is_overflowed then call('PEXPIREAT', KEYS[2], text(until_ms + LEASE_SLACK_MS)) end
return {'ok', now_us, (is_followed and not lease.is_overflowed) and 1 or 0, lease.is_overflowed and 1 or 0}
