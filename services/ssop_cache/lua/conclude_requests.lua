-- Times in milliseconds, except `now_us`, which is microseconds.
-- Settles requests of one tenant: charges what each used and gives the rest of its reservation back, once, and counts
-- it for the day. And ends generations that nobody follows: the lease goes. One that can't be ended keeps nothing else
-- from being done.
-- KEYS: used, reserved, expiry, usage, then for each settlement: request, then for each generation: lease
-- ARGV: 1 window_ms of the budget (0: none), 2 memory_ms of a request, 3 days of usage kept, 4 recheck_ms during which a
--       late look-up is sent back to the answer, 5 where the id begins in the name of a request, 6 number of
--       settlements, 7 number of counters, then their names, then their sums over all settlements; then for each
--       settlement: tokens used, its amounts of the counters in one word (empty: none); then for each generation:
--       fence, how it ends (`close_lease`)
-- Returns: ok, now_us, then for each settlement: outcome (settled, repeated, unknown), charged tokens; then for each
--       generation: outcome (ok, given_up, lost; followed: nothing was done, it is left to `end_leases`)
-- with _records
local SLACK_MS = 1000
local SUM = '/sum'
local OPEN, SETTLED = byte('o'), byte('s')
local DAY_MS = 86400000

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local window_ms, memory_ms, id_at = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
local settlements, counters = tonumber(ARGV[6]), tonumber(ARGV[7])
local first_lease, at = 5 + settlements, 8 + 2 * counters
local reply = {'ok', now_us}

-- What each of them is, before anything is written.
local found = #KEYS > 4 and call('MGET', unpack(KEYS, 5)) or {}
local seen, settled, sums, charged = {}, {}, {}, 0
for counter = 1, counters do sums[counter] = tonumber(ARGV[7 + counters + counter]) end
for one = 1, settlements do
  local key, record = KEYS[4 + one], found[one]
  local outcome, used = 'unknown', 0
  local state = record and byte(record)
  if state == SETTLED or seen[key] then
    outcome = 'repeated'
    -- What comes again is counted already; it comes seldom, and each argument costs as much as a look-up.
    local counter = 0
    for amount in gmatch(ARGV[at + 1], '%d+') do
      counter = counter + 1
      sums[counter] = sums[counter] - tonumber(amount)
    end
  elseif state then
    -- A hit leaves no trace of its admission.
    outcome, seen[key] = 'settled', true
    -- A request that was served from the cache or followed has no reservation and used nothing.
    if state == OPEN then used = number(ARGV[at]) end
    charged = charged + used
    settled[#settled + 1] = key
  end
  reply[2 * one + 1], reply[2 * one + 2] = outcome, used
  at = at + 2
end

-- A full store refuses a script's first write if that needs memory and none after it, so one comes first that removes
-- nothing: what ends makes room, whatever is left to be removed of it.
local gone, freed = {}, 0
if window_ms > 0 and #settled > 0 then
  local ids = {}
  for one, key in ipairs(settled) do ids[one] = sub(key, id_at) end
  for one, amount in ipairs(call('HMGET', KEYS[2], unpack(ids))) do
    if amount then
      gone[#gone + 1] = ids[one]
      freed = freed + number(amount)
    end
  end
end
call('ZREM', KEYS[3], unpack(#gone > 0 and gone or {''}))
if #gone > 0 then
  if call('ZCARD', KEYS[3]) == 0 then
    -- The last reservation takes the sum with it.
    call('DEL', KEYS[2])
  else
    call('HDEL', KEYS[2], unpack(gone))
    call('HINCRBY', KEYS[2], SUM, text(0 - freed))
  end
end

local remembered_ms = now_ms + memory_ms
for one = 1, settlements do
  local key, record = KEYS[4 + one], found[one]
  if seen[key] then
    -- `open` and `free` are of one length.
    local kept, last_ms = sub(record, 5, 22), sub(record, 23)
    if number(last_ms) < remembered_ms then
      last_ms = text(remembered_ms)
      call('SET', key, 'settled' .. kept .. last_ms, 'PXAT', last_ms)
    else
      call('SET', key, 'settled' .. kept .. last_ms, 'KEEPTTL')
    end
    seen[key] = nil
  end
end
if charged > 0 and window_ms > 0 then
  local window = text(math.floor(now_ms / window_ms))
  if call('HGET', KEYS[1], 'window') ~= window then
    call('HSET', KEYS[1], 'window', window, 'tokens', text(charged))
    -- A window that begins now is over by then.
    call('PEXPIRE', KEYS[1], text(window_ms + SLACK_MS))
  else
    call('HINCRBY', KEYS[1], 'tokens', text(charged))
  end
end

local day = text(math.floor(now_ms / DAY_MS))
local fields, added = {'last'}, {}
for counter = 1, counters do
  if sums[counter] > 0 then
    fields[#fields + 1] = day .. '/' .. ARGV[7 + counter]
    added[#added + 1] = sums[counter]
  end
end
if #added > 0 then
  local before = call('HMGET', KEYS[4], unpack(fields))
  local counted = {}
  for which, amount in ipairs(added) do
    counted[2 * which - 1] = fields[which + 1]
    counted[2 * which] = text(tonumber(before[which + 1] or '0') + amount)
  end
  call('HSET', KEYS[4], 'last', day, unpack(counted))
  if before[1] ~= day then
    -- The first of a new day makes room.
    for _, field in ipairs(call('HKEYS', KEYS[4])) do
      local kept = match(field, '^(%d+)/')
      if kept and tonumber(kept) <= tonumber(day) - tonumber(ARGV[3]) then call('HDEL', KEYS[4], field) end
    end
  end
end

local recheck_until_ms = now_ms + tonumber(ARGV[4])
for one = first_lease, #KEYS do
  local lease_key, fence, outcome = KEYS[one], ARGV[at], 'lost'
  local is_ours, is_alone, expires_ms = look_at_lease(found[one - 4], fence, now_ms)
  if is_ours and not seen[lease_key] then
    seen[lease_key] = is_alone
    outcome = is_alone and close_lease(lease_key, fence, ARGV[at + 1], expires_ms, recheck_until_ms) or 'followed'
  end
  reply[#reply + 1] = outcome
  at = at + 2
end
return reply
