-- Times in milliseconds, except `now_us`, `tat_us`, `interval_us` and `tolerance_us`, which are microseconds.
-- Admits requests of one tenant, in their order: rate (GCRA), token budget, lease. A refusal charges nothing. What is
-- the tenant's is read once and written once for all of them: each write costs the disk. Only a budget needs
-- reservations.
-- KEYS: reserved, expiry, used, rate, fence, then for each request: request, lease (the request again: no look-up)
-- ARGV: 1 interval_us (0: no rate), 2 tolerance_us, 3 budget tokens (0: none), 4 window_ms, 5 memory_ms of a request,
--       6 follow_ms, how long a follower counts without reading, 7 lease_ms, 8 reservation_ms, 9 where the id begins in
--       the name of a request, then for each request: fingerprint, tokens, "h" when the answer was found, "l" when a
--       lease is wanted, else "m"; behind it the fence of the commit after which the answer was looked for again
-- Returns: ok, now_us, then for each: outcome, retry_ms (-1: never), fence, budget left (-1: no budget)
-- with _records
local SWEEP_MAX = 1000
local SLACK_MS = 1000
local KEEP_MS = 10000
local FENCE_MEMORY_MS = 604800000
local SUM = '/sum'
local FOUND, LEASE = byte('h'), byte('l')

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local interval_us, tolerance_us = tonumber(ARGV[1]), tonumber(ARGV[2])
local budget, window_ms, memory_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local until_ms, held_until_ms = now_ms + tonumber(ARGV[7]), now_ms + tonumber(ARGV[8])
local last_ms = text(math.max(until_ms, held_until_ms) + memory_ms)
local id_at = tonumber(ARGV[9])
if #KEYS == 5 then return {'ok', now_us} end

local used, reserved, held_by = 0, 0, {}
if budget > 0 then
  -- A full store refuses a script's first write if that needs memory and none after it, so deletions come first.
  for _, gone in ipairs(call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now_ms), 'LIMIT', 0, SWEEP_MAX)) do
    local amount = call('HGET', KEYS[1], gone)
    call('ZREM', KEYS[2], gone)
    if amount then
      call('HDEL', KEYS[1], gone)
      call('HINCRBY', KEYS[1], SUM, text(0 - tonumber(amount)))
    end
  end
  local used_record = call('HMGET', KEYS[3], 'window', 'tokens')
  used = used_record[1] == text(math.floor(now_ms / window_ms)) and tonumber(used_record[2]) or 0
  local fields = {SUM}
  for at = 6, #KEYS, 2 do fields[#fields + 1] = sub(KEYS[at], id_at) end
  local held = call('HMGET', KEYS[1], unpack(fields))
  reserved = tonumber(held[1] or '0')
  for at = 2, #fields do held_by[fields[at]] = number(held[at] or '0') end
end
local function left()
  if budget == 0 then return -1 end
  return math.max(0, budget - used - reserved)
end

-- Those of requests and leases, as they are by now.
local found, records = call('MGET', unpack(KEYS, 4)), {}
for at = 6, #KEYS do
  if found[at - 3] then records[KEYS[at]] = found[at - 3] end
end

local owed_us, has_new_rate = 0, false
if interval_us > 0 then
  -- The rate may have changed: what is owed, in requests, is worked off at the new one.
  local tat, was = match(found[1] or '', '^(%d+) ?(%d*)$')
  owed_us = math.max(tonumber(tat or '0') - now_us, 0)
  local was_us = tonumber(was or '') or interval_us
  if was_us ~= interval_us then owed_us = math.floor(owed_us * interval_us / was_us) end
end

local last_fence, has_new_fence = tonumber(found[2] or '0'), false
local new_amounts, new_ends, is_reserving = {}, {}, false
local function write_reservations()
  if #new_ends == 0 then return end
  call('HSET', KEYS[1], SUM, text(reserved), unpack(new_amounts))
  call('ZADD', KEYS[2], unpack(new_ends))
  new_amounts, new_ends = {}, {}
end

local function admit(request_key, lease_key, fingerprint, tokens, wish)
  local id = sub(request_key, id_at)
  local state, known_as
  if records[request_key] then state, known_as = match(records[request_key], '^(%l+) (%x+) ') end
  local is_known = state ~= nil and state ~= 'settled'
  if is_known and known_as ~= fingerprint then return 'duplicate', -1, 0, left() end

  local is_paced = interval_us > 0 and not is_known
  if is_paced then
    local early_us = owed_us + interval_us - tolerance_us
    if early_us > 0 then return 'rate', math.ceil(early_us / 1000), 0, left() end
  end

  local outcome, fence, lease, is_new_lease = 'miss', 0, nil, false
  local wanted = byte(wish)
  if wanted == FOUND then
    outcome = 'hit'
  elseif lease_key ~= request_key then
    lease = read_lease(records[lease_key])
    local is_live = lease and now_ms < lease.expires_ms
    if is_live and lease.state == 'done' and lease.fence ~= sub(wish, 2) then
      -- The answer was stored between the caller's look and this script: it looks again. Nothing is charged.
      return 'recheck', 0, tonumber(lease.fence), left()
    elseif is_live and lease.state == 'open' and lease.request == id then
      outcome, fence = 'lease', tonumber(lease.fence)
    elseif wanted ~= LEASE then
      outcome = 'miss'
    elseif is_live and lease.state == 'open' then
      if not lease.is_overflowed then outcome, fence = 'follow', tonumber(lease.fence) end
    else
      outcome, is_new_lease = 'lease', true
    end
  end

  local is_generating = outcome == 'lease' or outcome == 'miss'
  if is_generating and budget > 0 then
    local amount, held_before = number(tokens), held_by[id]
    if used + reserved - held_before + amount > budget then
      local retry_ms = -1
      if amount <= budget then
        retry_ms = (math.floor(now_ms / window_ms) + 1) * window_ms - now_ms
        write_reservations()
        local first = call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
        if used + amount <= budget and first[2] then
          retry_ms = math.min(retry_ms, math.max(1, tonumber(first[2]) - now_ms))
        end
      end
      return 'quota', retry_ms, 0, left()
    end
    reserved = reserved + amount - held_before
    held_by[id], is_reserving = amount, true
    new_amounts[#new_amounts + 1], new_amounts[#new_amounts + 2] = id, tokens
    new_ends[#new_ends + 1], new_ends[#new_ends + 2] = text(held_until_ms), id
  end

  if is_paced then owed_us, has_new_rate = owed_us + interval_us, true end
  if is_new_lease then
    -- Rises even after the store was lost: it is at least the time.
    fence = math.max(last_fence + 1, now_us)
    last_fence, has_new_fence = fence, true
    records[lease_key] = open_lease(lease_key, format('%d', fence), until_ms, id)
  elseif outcome == 'lease' then
    lease.expires_ms = until_ms
    records[lease_key] = write_lease(lease_key, lease)
  elseif outcome == 'follow' then
    -- The caller follows next; the leader may hear of it before that.
    local follow_until_ms = now_ms + tonumber(ARGV[6])
    if lease.followed_ms < follow_until_ms then
      lease.followed_ms = follow_until_ms
      records[lease_key] = write_lease(lease_key, lease)
    end
  end
  if is_generating or interval_us > 0 then
    local record = ((is_generating or state == 'open') and 'open ' or 'free ') .. fingerprint .. ' ' .. last_ms
    records[request_key] = record
    call('SET', request_key, record, 'PXAT', last_ms)
  end
  return outcome, 0, fence, left()
end

local reply = {'ok', now_us}
local slot, asked = 3, 10
for at = 6, #KEYS, 2 do
  reply[slot], reply[slot + 1], reply[slot + 2], reply[slot + 3] =
    admit(KEYS[at], KEYS[at + 1], ARGV[asked], ARGV[asked + 1], ARGV[asked + 2])
  slot, asked = slot + 4, asked + 3
end

write_reservations()
if is_reserving then
  local end_ms = held_until_ms + SLACK_MS
  -- Longer than they must be, so that not every admission writes it; the sum goes with the last reservation.
  if call('PTTL', KEYS[2]) < end_ms - now_ms then
    for at = 1, 2 do call('PEXPIREAT', KEYS[at], text(end_ms + KEEP_MS)) end
  end
end
if has_new_rate then
  local rate = text(now_us + owed_us) .. ' ' .. text(interval_us)
  call('SET', KEYS[4], rate, 'PXAT', text(now_ms + math.ceil(owed_us / 1000) + SLACK_MS))
end
if has_new_fence then call('SET', KEYS[5], text(last_fence), 'PXAT', text(now_ms + FENCE_MEMORY_MS)) end
return reply
