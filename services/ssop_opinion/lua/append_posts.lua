-- Appends posts of one tenant that were not seen before, within the bounds of the queue. Times in milliseconds, sizes in
-- bytes.
-- KEYS: stream of the tenant, the common stream, dead letters, sums, bytes of the common stream, tenants, nonce, then one
--       `seen` key for each post. Sums: `=posts` and `=bytes` of all tenants' streams, and by tenant the bytes of its own.
-- ARGV: max_queued, max_bytes, policy, seen_ttl_ms, nonce_ttl_ms (0: no nonce), max_dead, group, tenant, share, then for
--       each post: payload, 1 when sampling takes it.
-- A tenant's own posts stay below `share` times the room that is left (0: it is alone, and may have all of it).
-- Returns {1} for a nonce that was used, or {0, n dropped, outcome of each}: 1 queued, 0 seen before, 2 left out by sampling, -1 refused.
local posts, common_posts, dead, sums, common_bytes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tenants, nonce = KEYS[6], KEYS[7]
local max_queued, max_bytes, policy = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local seen_ttl, nonce_ttl, max_dead, group = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local tenant, share = ARGV[8], tonumber(ARGV[9])

if nonce_ttl > 0 and redis.call('EXISTS', nonce) == 1 then
  return {1}
end
if #KEYS == 7 then
  if nonce_ttl > 0 then
    redis.call('SET', nonce, '', 'PX', nonce_ttl)
  end
  return {0, 0, {}}
end

local found = redis.call('HMGET', sums, '=posts', '=bytes', tenant)
local counted, held, own_bytes = tonumber(found[1] or '0'), tonumber(found[2] or '0'), tonumber(found[3] or '0')
local own, dropped = redis.call('XLEN', posts), 0
local common, held_in_common = redis.call('XLEN', common_posts), 0
if common > 0 then
  held_in_common = tonumber(redis.call('GET', common_bytes) or '0')
end

local function is_over_share(bound)
  return share > 0 and (own >= share * (bound - counted - common) or own_bytes >= share * (max_bytes - held - held_in_common))
end

local function fits(size, bound)
  return counted + common < bound and held + held_in_common + size <= max_bytes and not is_over_share(bound)
end

-- How many posts others have, looked at once: a full queue makes room for each post of a call.
local names, lengths
local function look_at_others()
  names, lengths = redis.call('SMEMBERS', tenants), {}
  for _, name in ipairs(names) do
    lengths[name] = name == tenant and -1 or redis.call('XLEN', common_posts .. ':' .. name)
  end
end

-- What was not yet delivered: entries behind the group's last one.
local function drop_oldest(from, whose)
  if redis.call('XLEN', from) == 0 then
    return false
  end
  local last = '0-0'
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', from)) do
    local named = {}
    for i = 1, #info, 2 do
      named[info[i]] = info[i + 1]
    end
    if named['name'] == group then
      last = named['last-delivered-id']
    end
  end
  local found = redis.call('XRANGE', from, '(' .. last, '+', 'COUNT', 1)
  if #found == 0 then
    return false
  end
  local id, fields = found[1][1], found[1][2]
  local size = #fields[2]
  redis.call('XDEL', from, id)
  redis.call('DEL', fields[4])
  redis.call('XADD', dead, 'MAXLEN', '~', max_dead, '*', 'reason', 'shed_oldest', 'post', '', 'tenant', fields[6],
    'bytes', size)
  dropped = dropped + 1
  if from == common_posts then
    common, held_in_common = common - 1, redis.call('DECRBY', common_bytes, size)
  else
    counted, held = counted - 1, held - size
    if from == posts then
      own, own_bytes = own - 1, own_bytes - size
    else
      redis.call('HINCRBY', sums, whose, -size)
      lengths[whose] = lengths[whose] - 1
    end
  end
  return true
end

local function is_full()
  return counted + common >= max_queued or held + held_in_common >= max_bytes
end

-- Who has more than its share makes room among its own; else the one makes room who has most. Where there is no room at
-- all, as behind one that was alone, nobody has a share, and it says nothing of who has too much.
local function make_room()
  if drop_oldest(common_posts, '') then
    return true
  end
  local longest, most, whose = posts, own, tenant
  if share > 0 and (is_full() or not is_over_share(max_queued)) then
    if not names then
      look_at_others()
    end
    for _, name in ipairs(names) do
      if lengths[name] > most then
        longest, most, whose = common_posts .. ':' .. name, lengths[name], name
      end
    end
  end
  return drop_oldest(longest, whose)
end

local outcomes, refused = {}, false
for i = 8, #KEYS do
  local payload, sampled = ARGV[10 + (i - 8) * 2], ARGV[11 + (i - 8) * 2]
  local outcome = 1
  if redis.call('EXISTS', KEYS[i]) == 1 then
    outcome = 0
  elseif not fits(#payload, max_queued) then
    outcome = -1
    if policy == 'oldest' then
      outcome = 1
      while not fits(#payload, max_queued) do
        if not make_room() then
          outcome = -1
          break
        end
      end
    elseif policy == 'sample' and fits(#payload, 2 * max_queued) then
      outcome = sampled == '1' and 1 or 2
    end
  end
  if outcome == 1 then
    redis.call('SET', KEYS[i], '', 'PX', seen_ttl)
    redis.call('XADD', posts, '*', 'post', payload, 'seen', KEYS[i], 'tenant', tenant)
    counted, held, own, own_bytes = counted + 1, held + #payload, own + 1, own_bytes + #payload
  end
  refused = refused or outcome == -1
  outcomes[#outcomes + 1] = outcome
end
redis.call('HSET', sums, '=posts', counted, '=bytes', held, tenant, own_bytes)
if not found[3] then
  redis.call('SADD', tenants, tenant)
end
-- A request that was refused in part is sent again, as it was signed.
if nonce_ttl > 0 and not refused then
  redis.call('SET', nonce, '', 'PX', nonce_ttl)
end
return {0, dropped, outcomes}
