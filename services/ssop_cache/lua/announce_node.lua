-- Times in milliseconds.
-- Begins or renews the lease of a node, and drops leases that have lapsed.
-- KEYS: leases: by address: end, ' ', last renewal, ' ', instance, ' ' and announcement
-- ARGV: 1 address, 2 instance, 3 lease_ms, 4 announcement, 5 most leases
-- Returns: 1, or 0 where there are too many
local function text(number) return string.format('%d', number) end

local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
local gone, kept, last_ms = {}, 0, now_ms + tonumber(ARGV[3])
local fields = redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
  local end_ms = tonumber(string.match(fields[at + 1], '^(%d+) ') or '0')
  if fields[at] ~= ARGV[1] then
    if end_ms <= now_ms then
      gone[#gone + 1] = fields[at]
    else
      kept = kept + 1
      last_ms = math.max(last_ms, end_ms)
    end
  end
end
if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
if kept >= tonumber(ARGV[5]) then return {0} end
local end_ms = text(now_ms + tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], ARGV[1], end_ms .. ' ' .. text(now_ms) .. ' ' .. ARGV[2] .. ' ' .. ARGV[4])
redis.call('PEXPIREAT', KEYS[1], text(last_ms + 1000))
return {1}
