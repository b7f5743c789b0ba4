-- Times in milliseconds, except `now_us`, which is microseconds.
-- Settles requests of one tenant: charges what each used and gives the rest of its reservation back, once, and counts
-- it for the day. And ends generations: the lease goes, followers get the rest and the end, or learn that it was given
-- up. One that can't be ended keeps nothing else from being done.
-- KEYS: used, reserved, expiry, usage, then for each settlement: request, then for each generation: lease, log
-- ARGV: 1 window_ms, 2 memory_ms of a request, 3 days of usage kept, 4 most bytes of a log, 5 linger_ms of a log that is
--       being read, 6 recheck_ms during which a late look-up is sent back to the answer, 7 number of settlements, then
--       for each: id, tokens used, number of counters, counter, amount, ...; then for each generation: fence, rest of
--       the chunks, "1" when complete, "1" when stored, channel
-- Returns: ok, now_us, then for each settlement: outcome (settled, repeated, unknown), charged tokens; then for each
--       generation: outcome (ok, given_up, lost)
-- with _records
local SLACK_MS = 1000
local SUM = '/sum'
local DAY_MS = 86400000

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local window_ms, memory_ms, settlements = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[7])
local reply = {'ok', now_us}

-- What each of them is, before anything is written.
local at, states, ids, tokens, names, amounts = 8, {}, {}, {}, {}, {}
local wanted = {}
for one = 5, 4 + settlements do wanted[one - 4] = KEYS[one] end
for one = 5 + settlements, #KEYS, 2 do wanted[#wanted + 1] = KEYS[one] end
local found = #wanted > 0 and redis.call('MGET', unpack(wanted)) or {}
local states_by = {}
for one = 1, settlements do
  local key, id, pairs_count = KEYS[4 + one], ARGV[at], number(ARGV[at + 2])
  local state = states_by[key] or (found[one] and string.match(found[one], '^%l+'))
  states[one], ids[one], tokens[one] = state, id, number(ARGV[at + 1])
  if state == 'settled' then
    reply[2 * one + 1], reply[2 * one + 2] = 'repeated', 0
  else
    if state then states_by[key] = 'settled' end
    for name = at + 3, at + 1 + 2 * pairs_count, 2 do
      if not amounts[ARGV[name]] then names[#names + 1] = ARGV[name] end
      amounts[ARGV[name]] = (amounts[ARGV[name]] or 0) + number(ARGV[name + 1])
    end
  end
  at = at + 3 + 2 * pairs_count
end

-- A full store refuses a script's first write if that needs memory and none after it, so one comes first that removes
-- nothing: what ends makes room, whatever is left to be removed of it.
local gone, freed = {}, 0
if settlements > 0 then
  local held = redis.call('HMGET', KEYS[2], unpack(ids))
  for one = 1, settlements do
    if held[one] and states[one] and states[one] ~= 'settled' then
      gone[#gone + 1] = ids[one]
      freed = freed + number(held[one])
    end
  end
end
redis.call('ZREM', KEYS[3], unpack(#gone > 0 and gone or {''}))
if #gone > 0 then
  if redis.call('ZCARD', KEYS[3]) == 0 then
    -- The last reservation takes the sum with it.
    redis.call('DEL', KEYS[2])
  else
    redis.call('HDEL', KEYS[2], unpack(gone))
    redis.call('HINCRBY', KEYS[2], SUM, text(0 - freed))
  end
end

local charged = 0
for one = 1, settlements do
  local state = states[one]
  if not state then
    -- A hit leaves no trace of its admission.
    reply[2 * one + 1], reply[2 * one + 2] = 'unknown', 0
  elseif state ~= 'settled' then
    -- A request that was served from the cache or followed has no reservation and used nothing.
    local used = state == 'open' and tokens[one] or 0
    charged = charged + used
    local key = KEYS[4 + one]
    local fingerprint, expires_ms = string.match(found[one], '^%l+ (%x+) (%d+)$')
    local last_ms = text(math.max(number(expires_ms), now_ms + memory_ms))
    redis.call('SET', key, 'settled ' .. fingerprint .. ' ' .. last_ms, 'PXAT', last_ms)
    reply[2 * one + 1], reply[2 * one + 2] = 'settled', used
  end
end
if charged > 0 then
  local window = text(math.floor(now_ms / window_ms))
  if redis.call('HGET', KEYS[1], 'window') ~= window then
    redis.call('HSET', KEYS[1], 'window', window, 'tokens', text(charged))
    -- A window that begins now is over by then.
    redis.call('PEXPIRE', KEYS[1], text(window_ms + SLACK_MS))
  else
    redis.call('HINCRBY', KEYS[1], 'tokens', text(charged))
  end
end

if #names > 0 then
  local day = text(math.floor(now_ms / DAY_MS))
  local fields = {'last'}
  for which, name in ipairs(names) do fields[which + 1] = day .. '/' .. name end
  local before = redis.call('HMGET', KEYS[4], unpack(fields))
  local counted = {}
  for which, name in ipairs(names) do
    counted[2 * which - 1] = fields[which + 1]
    counted[2 * which] = text(tonumber(before[which + 1] or '0') + amounts[name])
  end
  redis.call('HSET', KEYS[4], 'last', day, unpack(counted))
  if before[1] ~= day then
    -- The first of a new day makes room.
    for _, field in ipairs(redis.call('HKEYS', KEYS[4])) do
      local kept = string.match(field, '^(%d+)/')
      if kept and tonumber(kept) <= tonumber(day) - tonumber(ARGV[3]) then redis.call('HDEL', KEYS[4], field) end
    end
  end
end

local leases = {}
local function commit(lease_key, record, log_key, fence, rest, is_complete, is_stored, channel)
  local lease = leases[lease_key] or read_lease(record)
  if not is_held(lease, fence, now_ms) then return 'lost' end
  leases[lease_key] = lease
  local is_followed = lease.followed_ms > now_ms
  if is_complete and is_followed and not lease.is_overflowed and lease.bytes + #rest <= tonumber(ARGV[4]) then
    if rest ~= '' then redis.call('RPUSH', log_key, 'c' .. rest) end
    redis.call('RPUSH', log_key, 'e')
    redis.call('PEXPIRE', log_key, ARGV[5])
  elseif lease.bytes > 0 then
    redis.call('DEL', log_key)
  end
  lease.state = 'done'
  if is_complete and is_stored then
    lease.expires_ms = now_ms + tonumber(ARGV[6])
    write_lease(lease_key, lease, lease.expires_ms)
  else
    redis.call('DEL', lease_key)
  end
  if is_followed then redis.call('PUBLISH', channel, '') end
  return is_complete and 'ok' or 'given_up'
end

for one = 1, (#KEYS - 4 - settlements) / 2 do
  local place = 3 + settlements + 2 * one
  reply[#reply + 1] = commit(KEYS[place], found[settlements + one], KEYS[place + 1], ARGV[at], ARGV[at + 1],
    ARGV[at + 2] == '1', ARGV[at + 3] == '1', ARGV[at + 4])
  at = at + 5
end
return reply
