-- Times in milliseconds, except `now_us`, which is microseconds.
-- Ends a generation: the lease goes, followers get the rest and the end, or learn that it was given up.
-- KEYS: lease, log
-- ARGV: 1 fence, 2 rest of the chunks, 3 "1" when complete, 4 "1" when stored, 5 most bytes of a log, 6 channel,
--       7 linger_ms of a log that is being read, 8 recheck_ms during which a late look-up is sent back to the answer
-- Returns: outcome (ok, given_up, lost), now_us
local function text(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

local lease = redis.call('HMGET', KEYS[1], 'fence', 'state', 'expires_ms', 'followed_ms', 'bytes', 'is_overflowed')
if lease[1] ~= ARGV[1] or lease[2] ~= 'open' or now_ms >= tonumber(lease[3]) then return {'lost', now_us} end

local is_complete = ARGV[3] == '1'
local is_followed = tonumber(lease[4]) > now_ms
if is_complete and is_followed and lease[6] ~= '1' and tonumber(lease[5]) + #ARGV[2] <= tonumber(ARGV[5]) then
  if ARGV[2] ~= '' then redis.call('RPUSH', KEYS[2], 'c' .. ARGV[2]) end
  redis.call('RPUSH', KEYS[2], 'e')
  redis.call('PEXPIRE', KEYS[2], ARGV[7])
else
  redis.call('DEL', KEYS[2])
end
if is_complete and ARGV[4] == '1' then
  local until_ms = text(now_ms + tonumber(ARGV[8]))
  redis.call('HSET', KEYS[1], 'state', 'done', 'expires_ms', until_ms)
  redis.call('PEXPIREAT', KEYS[1], until_ms)
else
  redis.call('DEL', KEYS[1])
end
if is_followed then redis.call('PUBLISH', ARGV[6], '') end
return {is_complete and 'ok' or 'given_up', now_us}
