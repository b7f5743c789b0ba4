-- Takes posts out of the queue, once each. Sizes in bytes.
-- KEYS: bytes, count, bytes by tenant, then one stream for each tenant.
-- ARGV: group, then for each stream: tenant (empty: the common stream), how many posts, id and size of each.
-- Returns how many were still there.
local finished, counted, freed, at = 0, 0, 0, 2
for i = 4, #KEYS do
  local tenant, count = ARGV[at], tonumber(ARGV[at + 1])
  local gone, freed_here, ids = 0, 0, {}
  at = at + 2
  for _ = 1, count do
    local id = ARGV[at]
    ids[#ids + 1] = id
    if redis.call('XDEL', KEYS[i], id) == 1 then
      gone, freed_here = gone + 1, freed_here + tonumber(ARGV[at + 1])
    end
    at = at + 2
  end
  redis.call('XACK', KEYS[i], ARGV[1], unpack(ids))
  finished, freed = finished + gone, freed + freed_here
  if tenant ~= '' and gone > 0 then
    counted = counted + gone
    if redis.call('HINCRBY', KEYS[3], tenant, -freed_here) < 0 then
      redis.call('HSET', KEYS[3], tenant, 0)
    end
  end
end
if freed > 0 and redis.call('DECRBY', KEYS[1], freed) < 0 then
  redis.call('SET', KEYS[1], 0)
end
if counted > 0 and redis.call('DECRBY', KEYS[2], counted) < 0 then
  redis.call('SET', KEYS[2], 0)
end
return finished
