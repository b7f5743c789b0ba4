-- Times in milliseconds, of which this script reads none.
-- Deletes one stored answer, unless it is of a generation that began later.
-- KEYS: answer
-- ARGV: 1 fence: answers of generations before it go
-- Returns: 1 when there was one
local fence = redis.call('HGET', KEYS[1], 'fence')
if not fence or tonumber(fence) >= tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
