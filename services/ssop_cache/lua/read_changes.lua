-- Times in milliseconds, except `now_us`, which is microseconds.
-- Reads the log of changes after a number.
-- KEYS: head, log
-- ARGV: 1 last number that is known, 2 most to read
-- Returns: now_us, epoch ("" without a log), last number, then for each change: number, tenant's tag, cache key, fence
local time = redis.call('TIME')
local head = redis.call('HMGET', KEYS[1], 'epoch', 'last')
local reply = {tonumber(time[1]) * 1000000 + tonumber(time[2]), head[1] or '', tonumber(head[2] or '0')}
local known = string.format('%d', tonumber(ARGV[1]) + 1)
if reply[3] > tonumber(ARGV[1]) then
  for _, entry in ipairs(redis.call('XRANGE', KEYS[2], known .. '-1', '+', 'COUNT', ARGV[2])) do
    reply[#reply + 1] = tonumber(string.match(entry[1], '^(%d+)-'))
    for index = 2, 6, 2 do reply[#reply + 1] = entry[2][index] end
  end
end
return reply
