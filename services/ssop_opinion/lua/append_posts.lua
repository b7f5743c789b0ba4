-- Appends posts that were not seen before, within the bounds of the queue. Times in milliseconds, sizes in bytes.
-- KEYS: posts, dead letters, bytes, nonce, then one `seen` key for each post.
-- ARGV: max_queued, max_bytes, policy, seen_ttl_ms, nonce_ttl_ms (0: no nonce), max_dead, group, then for each post:
--       payload, 1 when sampling takes it, tenant.
-- Returns {1} for a nonce that was used, or {0, n dropped, outcome of each}: 1 queued, 0 seen before, 2 left out by sampling, -1 refused.
local posts, dead, bytes, nonce = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local max_queued, max_bytes, policy = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local seen_ttl, nonce_ttl, max_dead, group = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]

if nonce_ttl > 0 and redis.call('EXISTS', nonce) == 1 then
  return {1}
end

local queued = redis.call('XLEN', posts)
local held = tonumber(redis.call('GET', bytes) or '0')
local dropped = 0

-- What was not yet delivered: entries behind the group's last one.
local function drop_oldest()
  local last = '0-0'
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', posts)) do
    local named = {}
    for i = 1, #info, 2 do
      named[info[i]] = info[i + 1]
    end
    if named['name'] == group then
      last = named['last-delivered-id']
    end
  end
  local found = redis.call('XRANGE', posts, '(' .. last, '+', 'COUNT', 1)
  if #found == 0 then
    return false
  end
  local id, fields = found[1][1], found[1][2]
  redis.call('XDEL', posts, id)
  redis.call('DEL', fields[4])
  redis.call('XADD', dead, 'MAXLEN', '~', max_dead, '*', 'reason', 'shed_oldest', 'post', '', 'tenant', fields[6],
    'bytes', #fields[2])
  queued, held, dropped = queued - 1, held - #fields[2], dropped + 1
  return true
end

local outcomes, refused = {}, false
for i = 5, #KEYS do
  local payload, sampled = ARGV[8 + (i - 5) * 3], ARGV[9 + (i - 5) * 3]
  local tenant = ARGV[10 + (i - 5) * 3]
  local outcome = 1
  if redis.call('EXISTS', KEYS[i]) == 1 then
    outcome = 0
  elseif queued >= max_queued or held + #payload > max_bytes then
    outcome = -1
    if policy == 'oldest' then
      outcome = 1
      while queued >= max_queued or held + #payload > max_bytes do
        if not drop_oldest() then
          outcome = -1
          break
        end
      end
    elseif policy == 'sample' and queued < 2 * max_queued and held + #payload <= max_bytes then
      outcome = sampled == '1' and 1 or 2
    end
  end
  if outcome == 1 then
    redis.call('SET', KEYS[i], '', 'PX', seen_ttl)
    redis.call('XADD', posts, '*', 'post', payload, 'seen', KEYS[i], 'tenant', tenant)
    queued, held = queued + 1, held + #payload
  end
  refused = refused or outcome == -1
  outcomes[#outcomes + 1] = outcome
end
redis.call('SET', bytes, held)
-- A request that was refused in part is sent again, as it was signed.
if nonce_ttl > 0 and not refused then
  redis.call('SET', nonce, '', 'PX', nonce_ttl)
end
return {0, dropped, outcomes}
