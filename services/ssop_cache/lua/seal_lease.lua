-- Times in milliseconds, except `now_us`, which is microseconds.
-- Checks the lease of a generation that ended well, holds it while the answer is stored, and reads the log.
-- KEYS: lease, log
-- ARGV: 1 fence, 2 hold_ms
-- Returns: outcome (ok, overflowed, lost), now_us, chunks appended so far ...
local SLACK_MS = 1000

local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local lease = redis.call('HMGET', KEYS[1], 'fence', 'state', 'expires_ms', 'bytes', 'is_overflowed')
if lease[1] ~= ARGV[1] or lease[2] ~= 'open' or now_ms >= tonumber(lease[3]) then return {'lost', now_us} end
local until_ms = math.max(tonumber(lease[3]), now_ms + tonumber(ARGV[2]))
if until_ms > tonumber(lease[3]) then
  redis.call('HSET', KEYS[1], 'expires_ms', text(until_ms))
  redis.call('PEXPIREAT', KEYS[1], text(until_ms + SLACK_MS))
end
if lease[5] == '1' then return {'overflowed', now_us} end
local reply = {'ok', now_us}
if lease[4] ~= '0' then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do reply[#reply + 1] = string.sub(entry, 2) end
end
return reply
