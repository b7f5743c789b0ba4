-- Times in milliseconds, except `now_us`, which is microseconds.
-- Checks the leases of generations that ended well, holds them while their answers are stored, and reads their logs.
-- KEYS: for each lease: lease, log
-- ARGV: 1 hold_ms, then their fences
-- Returns: ok, now_us, then for each: outcome (ok, overflowed, lost), what was appended so far
-- with _records

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local function seal(lease_key, log_key, fence)
  local lease = read_lease(call('MGET', lease_key)[1])
  if not is_held(lease, fence, now_ms) then return 'lost', '' end
  local until_ms = math.max(lease.expires_ms, now_ms + tonumber(ARGV[1]))
  if until_ms > lease.expires_ms then
    lease.expires_ms = until_ms
    write_lease(lease_key, lease)
  end
  if lease.is_overflowed then return 'overflowed', '' end
  if lease.bytes == 0 then return 'ok', '' end
  local chunks = call('LRANGE', log_key, 0, -1)
  for at, entry in ipairs(chunks) do chunks[at] = string.sub(entry, 2) end
  return 'ok', table.concat(chunks)
end

local reply = {'ok', now_us}
for at = 1, #KEYS / 2 do
  reply[2 * at + 1], reply[2 * at + 2] = seal(KEYS[2 * at - 1], KEYS[2 * at], ARGV[at + 1])
end
return reply
