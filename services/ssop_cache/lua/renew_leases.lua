-- Times in milliseconds, except `now_us`, which is microseconds.
-- Renews reservations and leases of generations that go on. What is not held any more stays as it is.
-- KEYS: reserved, expiry, then lease and log for each lease
-- ARGV: 1 reservation_ms, 2 lease_ms, 3 number of leases, then their fences, then request ids
-- Returns: ok, now_us, then for each lease 0 when it is lost, 1 when it is held, 2 when somebody follows, too
-- with _records
local function keep_until(key, at_ms, now_ms)
  if call('PTTL', key) < at_ms - now_ms then call('PEXPIREAT', key, text(at_ms)) end
end

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local reserved_until_ms, until_ms = now_ms + tonumber(ARGV[1]), now_ms + tonumber(ARGV[2])
local count = tonumber(ARGV[3])

local reply = {'ok', now_us}
local names, leases = {}, {}
for at = 1, count do names[at] = KEYS[1 + 2 * at] end
local found = count > 0 and call('MGET', unpack(names)) or {}
for at = 1, count do
  local key = KEYS[1 + 2 * at]
  local lease = leases[key] or read_lease(found[at])
  leases[key] = lease
  local is_ours = is_held(lease, ARGV[3 + at], now_ms)
  -- Asked more often than it must be written: a write costs the disk.
  if is_ours and lease.expires_ms < until_ms - tonumber(ARGV[2]) / 5 then
    lease.expires_ms = until_ms
    write_lease(key, lease)
    call('PEXPIREAT', KEYS[2 + 2 * at], text(until_ms + LEASE_SLACK_MS))
  end
  local is_followed = is_ours and lease.followed_ms > now_ms and not lease.is_overflowed
  reply[2 + at] = is_followed and 2 or (is_ours and 1 or 0)
end

local is_any = false
for at = 4 + count, #ARGV do
  local held_until_ms = call('ZSCORE', KEYS[2], ARGV[at])
  if held_until_ms and tonumber(held_until_ms) > now_ms then
    call('ZADD', KEYS[2], text(reserved_until_ms), ARGV[at])
    is_any = true
  end
end
if is_any then
  keep_until(KEYS[1], reserved_until_ms + LEASE_SLACK_MS, now_ms)
  keep_until(KEYS[2], reserved_until_ms + LEASE_SLACK_MS, now_ms)
end
return reply
