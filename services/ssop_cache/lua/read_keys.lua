-- Times in milliseconds.
-- The records of all API keys, unless the reader has them.
-- KEYS: records, version
-- ARGV: 1 known version
-- Returns: version, record, ...
local version = redis.call('GET', KEYS[2]) or '0'
-- 0 is what a reader has that knows nothing, and a store that lost its version.
if version ~= '0' and version == ARGV[1] then return {version} end
local reply = redis.call('HVALS', KEYS[1])
table.insert(reply, 1, version)
return reply
