-- Times in milliseconds.
-- Gives the lease of a node back, unless another process has announced itself at its address.
-- KEYS: leases, as in announce_node
-- ARGV: 1 address, 2 instance
-- Returns: 1 where there was such a lease, else 0
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held or string.match(held, '^%d+ %d+ (%x+) ') ~= ARGV[2] then return {0} end
return {redis.call('HDEL', KEYS[1], ARGV[1])}
