-- Takes posts out of the queue, once each. Sizes in bytes.
-- KEYS: posts, bytes. ARGV: group, then id and size of each post.
-- Returns how many were still there.
local finished, freed = 0, 0
for i = 2, #ARGV, 2 do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  if redis.call('XDEL', KEYS[1], ARGV[i]) == 1 then
    finished, freed = finished + 1, freed + tonumber(ARGV[i + 1])
  end
end
if freed > 0 and redis.call('DECRBY', KEYS[2], freed) < 0 then
  redis.call('SET', KEYS[2], 0)
end
return finished
