-- Takes posts out of the queue, once each. Sizes in bytes.
-- KEYS: sums (as in append_posts), bytes of the common stream, then one stream for each tenant.
-- ARGV: group, then for each stream: tenant (empty: the common stream), how many posts, id and size of each.
-- Returns how many were still there.
local finished, at = 0, 2
for i = 3, #KEYS do
  local tenant, count = ARGV[at], tonumber(ARGV[at + 1])
  local gone, freed, ids = 0, 0, {}
  at = at + 2
  for _ = 1, count do
    local id = ARGV[at]
    ids[#ids + 1] = id
    if redis.call('XDEL', KEYS[i], id) == 1 then
      gone, freed = gone + 1, freed + tonumber(ARGV[at + 1])
    end
    at = at + 2
  end
  redis.call('XACK', KEYS[i], ARGV[1], unpack(ids))
  finished = finished + gone
  if gone > 0 and tenant ~= '' then
    local found = redis.call('HMGET', KEYS[1], '=posts', '=bytes', tenant)
    redis.call('HSET', KEYS[1], '=posts', math.max(0, tonumber(found[1] or '0') - gone),
      '=bytes', math.max(0, tonumber(found[2] or '0') - freed), tenant, math.max(0, tonumber(found[3] or '0') - freed))
  elseif gone > 0 and redis.call('DECRBY', KEYS[2], freed) < 0 then
    redis.call('SET', KEYS[2], 0)
  end
end
return finished
