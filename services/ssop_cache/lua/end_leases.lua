-- Times in milliseconds, except `now_us`, which is microseconds.
-- Ends generations that are followed, or were: the lease goes, followers get the rest and the end, or learn that it was
-- given up.
-- KEYS: for each generation: lease, log
-- ARGV: 1 most bytes of a log, 2 linger_ms of a log that is being read, 3 recheck_ms during which a late look-up is sent
--       back to the answer, then for each: fence, how it ends (`close_lease`), rest of the chunks, channel
-- Returns: ok, now_us, then for each: outcome (ok, given_up, lost)
-- with _records

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local function finish(lease_key, log_key, fence, ending, rest, channel)
  local lease = read_lease(call('MGET', lease_key)[1])
  if not is_held(lease, fence, now_ms) then return 'lost' end
  local is_followed = lease.followed_ms > now_ms
  local is_readable = not lease.is_overflowed and lease.bytes + #rest <= tonumber(ARGV[1])
  if ending ~= 'given_up' and is_followed and is_readable then
    if rest ~= '' then call('RPUSH', log_key, 'c' .. rest) end
    call('RPUSH', log_key, 'e')
    call('PEXPIRE', log_key, ARGV[2])
  elseif lease.bytes > 0 then
    call('DEL', log_key)
  end
  local outcome = close_lease(lease_key, fence, ending, lease.expires_ms, now_ms + tonumber(ARGV[3]))
  if is_followed then call('PUBLISH', channel, '') end
  return outcome
end

local reply = {'ok', now_us}
for at = 1, #KEYS / 2 do
  reply[2 + at] =
    finish(KEYS[2 * at - 1], KEYS[2 * at], ARGV[4 * at], ARGV[4 * at + 1], ARGV[4 * at + 2], ARGV[4 * at + 3])
end
return reply
