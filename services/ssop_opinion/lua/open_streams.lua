-- Makes a stream and a group for each tenant, and counts the posts of all.
-- KEYS: the common stream, tenants, sums (as in append_posts). ARGV: group, then tenants.
-- Returns how many posts are in the common stream, then each tenant that has a stream and how many posts are in it.
local function open(key)
  local made = redis.pcall('XGROUP', 'CREATE', key, ARGV[1], '0', 'MKSTREAM')
  if made['err'] and not string.find(made['err'], 'BUSYGROUP') then
    error(made['err'])
  end
  return redis.call('XLEN', key)
end

-- A full store refuses a script's first write if that needs memory and none after it, so one comes first that removes
-- nothing: a worker that starts then takes posts out.
redis.call('SREM', KEYS[2], '')
for i = 2, #ARGV do
  redis.call('SADD', KEYS[2], ARGV[i])
end
local found, counted = {open(KEYS[1])}, 0
local names = redis.call('SMEMBERS', KEYS[2])
table.sort(names)
for _, name in ipairs(names) do
  local length = open(KEYS[1] .. ':' .. name)
  found[#found + 1] = name
  found[#found + 1] = length
  counted = counted + length
end
if tonumber(redis.call('HGET', KEYS[3], '=posts') or '0') ~= counted then
  redis.call('HSET', KEYS[3], '=posts', counted)
end
return found
