-- Times in milliseconds, except `now_us`, which is microseconds.
-- Checks the leases of generations that ended well, holds them while their answers are stored, and reads their logs.
-- KEYS: for each lease: lease, log
-- ARGV: 1 hold_ms, then their fences
-- Returns: ok, now_us, then for each: outcome (ok, overflowed, lost), what was appended so far
local SLACK_MS = 1000

local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local function seal(lease_key, log_key, fence)
  local lease = redis.call('HMGET', lease_key, 'fence', 'state', 'expires_ms', 'bytes', 'is_overflowed')
  if lease[1] ~= fence or lease[2] ~= 'open' or now_ms >= tonumber(lease[3]) then return 'lost', '' end
  local until_ms = math.max(tonumber(lease[3]), now_ms + tonumber(ARGV[1]))
  if until_ms > tonumber(lease[3]) then
    redis.call('HSET', lease_key, 'expires_ms', text(until_ms))
    redis.call('PEXPIREAT', lease_key, text(until_ms + SLACK_MS))
  end
  if lease[5] == '1' then return 'overflowed', '' end
  if lease[4] == '0' then return 'ok', '' end
  local chunks = redis.call('LRANGE', log_key, 0, -1)
  for at, entry in ipairs(chunks) do chunks[at] = string.sub(entry, 2) end
  return 'ok', table.concat(chunks)
end

local reply = {'ok', now_us}
for at = 1, #KEYS / 2 do
  reply[2 * at + 1], reply[2 * at + 2] = seal(KEYS[2 * at - 1], KEYS[2 * at], ARGV[at + 1])
end
return reply
