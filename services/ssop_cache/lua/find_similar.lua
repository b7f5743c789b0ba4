-- Times in milliseconds.
-- Reads the questions of a scope.
-- KEYS: similar records, similar by scope
-- ARGV: 1 prefix of the scope's names, 2 most to read
-- Returns: now_ms, records
local time = redis.call('TIME')
local reply = {math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)}
local last = '[' .. ARGV[1] .. '\255'
local names = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. ARGV[1], last, 'LIMIT', 0, ARGV[2])
for _, name in ipairs(names) do
  reply[#reply + 1] = redis.call('HGET', KEYS[1], name) or nil
end
return reply
