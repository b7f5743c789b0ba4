-- Times in milliseconds, of which this script reads none.
-- Deletes one stored answer, unless it is of a generation that began later.
-- KEYS: answer
-- ARGV: 1 fence: answers of generations before it go
-- Returns: 1 when there was one
-- with _answers
local fence = match(call('GETRANGE', KEYS[1], 0, 31), '^(%d+) ')
if not fence or tonumber(fence) >= tonumber(ARGV[1]) then return 0 end
return call('DEL', KEYS[1])
