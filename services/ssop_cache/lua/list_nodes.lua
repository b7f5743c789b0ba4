-- Times in milliseconds.
-- Reads the leases that hold.
-- KEYS: leases, as in announce_node
-- ARGV: none
-- Returns: now_ms, then for each lease: announcement, age_ms
local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
local reply = {now_ms}
local fields = redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
  local end_ms, renewed_ms, rest = string.match(fields[at + 1], '^(%d+) (%d+) %x+ (.*)$')
  if end_ms and tonumber(end_ms) > now_ms then
    reply[#reply + 1] = rest
    reply[#reply + 1] = math.max(0, now_ms - tonumber(renewed_ms))
  end
end
return reply
