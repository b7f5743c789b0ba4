-- Times in milliseconds, except `now_us`, `tat_us`, `interval_us` and `tolerance_us`, which are microseconds.
-- Admits requests of one tenant, in their order: rate (GCRA), token budget, lease. A refusal charges nothing. What is
-- the tenant's is read once and written once for all of them: each write costs the disk.
-- KEYS: rate, used, reserved, expiry, fence, then for each request: request, lease (the request again: no look-up)
-- ARGV: 1 interval_us (0: no rate), 2 tolerance_us, 3 budget tokens (0: none), 4 window_ms, 5 memory_ms of a request,
--       6 follow_ms, how long a follower counts without reading, then for each request: id, fingerprint, tokens,
--       lease_ms, reservation_ms, "1" when the answer was found, "1" when a lease is wanted, fence of the commit after
--       which the answer was looked for again, or "0"
-- Returns: ok, now_us, then for each: outcome, retry_ms (-1: never), fence, budget left (-1: no budget)
-- with _records
local SWEEP_MAX = 1000
local SLACK_MS = 1000
local KEEP_MS = 10000
local FENCE_MEMORY_MS = 604800000
local SUM = '/sum'

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local interval_us, tolerance_us = tonumber(ARGV[1]), tonumber(ARGV[2])
local budget, window_ms, memory_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local count = (#ARGV - 6) / 8
if count == 0 then return {'ok', now_us} end

-- A full store refuses a script's first write if that needs memory and none after it, so deletions come first.
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now_ms), 'LIMIT', 0, SWEEP_MAX)) do
  local amount = redis.call('HGET', KEYS[3], gone)
  redis.call('ZREM', KEYS[4], gone)
  if amount then
    redis.call('HDEL', KEYS[3], gone)
    redis.call('HINCRBY', KEYS[3], SUM, text(0 - tonumber(amount)))
  end
end

local used = 0
if budget > 0 then
  local used_record = redis.call('HMGET', KEYS[2], 'window', 'tokens')
  used = used_record[1] == text(math.floor(now_ms / window_ms)) and tonumber(used_record[2]) or 0
end
local held_fields = {SUM}
for at = 1, count do held_fields[at + 1] = ARGV[8 * at - 1] end
local held = redis.call('HMGET', KEYS[3], unpack(held_fields))
local reserved = tonumber(held[1] or '0')
local held_by = {}
for at = 1, count do held_by[held_fields[at + 1]] = number(held[at + 1] or '0') end
local function left()
  if budget == 0 then return -1 end
  return math.max(0, budget - used - reserved)
end

local names = {KEYS[1], KEYS[5]}
for at = 6, #KEYS do names[at - 3] = KEYS[at] end
local found = redis.call('MGET', unpack(names))
local requests, leases = {}, {}
for at = 1, count do
  local request_key, lease_key = KEYS[4 + 2 * at], KEYS[5 + 2 * at]
  if found[2 * at + 1] and not requests[request_key] then
    local state, fingerprint = string.match(found[2 * at + 1], '^(%l+) (%x+) ')
    requests[request_key] = {state = state, fingerprint = fingerprint}
  end
  if lease_key ~= request_key then leases[lease_key] = leases[lease_key] or read_lease(found[2 * at + 2]) end
end

local owed_us, has_new_rate = 0, false
if interval_us > 0 then
  -- The rate may have changed: what is owed, in requests, is worked off at the new one.
  local tat, was = string.match(found[1] or '', '^(%d+) ?(%d*)$')
  owed_us = math.max(tonumber(tat or '0') - now_us, 0)
  local was_us = tonumber(was or '') or interval_us
  if was_us ~= interval_us then owed_us = math.floor(owed_us * interval_us / was_us) end
end

local last_fence, has_new_fence = tonumber(found[2] or '0'), false
local new_amounts, new_ends, reserved_until_ms = {}, {}, 0
local function write_reservations()
  if #new_ends == 0 then return end
  redis.call('HSET', KEYS[3], SUM, text(reserved), unpack(new_amounts))
  redis.call('ZADD', KEYS[4], unpack(new_ends))
  new_amounts, new_ends = {}, {}
end

local function admit(request_key, lease_key, at)
  local id, fingerprint, tokens = ARGV[at], ARGV[at + 1], number(ARGV[at + 2])
  local until_ms, held_until_ms = now_ms + number(ARGV[at + 3]), now_ms + number(ARGV[at + 4])
  local request = requests[request_key]
  local is_known = request ~= nil and request.state ~= 'settled'
  if is_known and request.fingerprint ~= fingerprint then return 'duplicate', -1, 0, left() end

  local is_paced = interval_us > 0 and not is_known
  if is_paced then
    local early_us = owed_us + interval_us - tolerance_us
    if early_us > 0 then return 'rate', math.ceil(early_us / 1000), 0, left() end
  end

  local outcome, fence, lease, is_new_lease = 'miss', 0, nil, false
  if ARGV[at + 5] == '1' then
    outcome = 'hit'
  elseif lease_key ~= request_key then
    lease = leases[lease_key]
    local is_live = lease and now_ms < lease.expires_ms
    if is_live and lease.state == 'done' and lease.fence ~= ARGV[at + 7] then
      -- The answer was stored between the caller's look and this script: it looks again. Nothing is charged.
      return 'recheck', 0, tonumber(lease.fence), left()
    elseif is_live and lease.state == 'open' and lease.request == id then
      outcome, fence = 'lease', tonumber(lease.fence)
    elseif ARGV[at + 6] ~= '1' then
      outcome = 'miss'
    elseif is_live and lease.state == 'open' then
      if not lease.is_overflowed then outcome, fence = 'follow', tonumber(lease.fence) end
    else
      outcome, is_new_lease = 'lease', true
    end
  end

  local is_generating = outcome == 'lease' or outcome == 'miss'
  local held_before = held_by[id]
  if is_generating and budget > 0 and used + reserved - held_before + tokens > budget then
    local retry_ms = -1
    if tokens <= budget then
      retry_ms = (math.floor(now_ms / window_ms) + 1) * window_ms - now_ms
      write_reservations()
      local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
      if used + tokens <= budget and first[2] then
        retry_ms = math.min(retry_ms, math.max(1, tonumber(first[2]) - now_ms))
      end
    end
    return 'quota', retry_ms, 0, left()
  end

  if is_paced then owed_us, has_new_rate = owed_us + interval_us, true end
  if is_generating then
    reserved = reserved + tokens - held_before
    held_by[id] = tokens
    new_amounts[#new_amounts + 1], new_amounts[#new_amounts + 2] = id, ARGV[at + 2]
    new_ends[#new_ends + 1], new_ends[#new_ends + 2] = text(held_until_ms), id
    reserved_until_ms = math.max(reserved_until_ms, held_until_ms)
  end
  if is_new_lease then
    -- Rises even after the store was lost: it is at least the time.
    fence = math.max(last_fence + 1, now_us)
    last_fence, has_new_fence = fence, true
    leases[lease_key] = {
      fence = text(fence), state = 'open', expires_ms = until_ms, followed_ms = 0, bytes = 0, request = id,
    }
    write_lease(lease_key, leases[lease_key])
  elseif outcome == 'lease' then
    lease.expires_ms = until_ms
    write_lease(lease_key, lease)
  elseif outcome == 'follow' then
    -- The caller follows next; the leader may hear of it before that.
    local follow_until_ms = now_ms + tonumber(ARGV[6])
    if lease.followed_ms < follow_until_ms then
      lease.followed_ms = follow_until_ms
      write_lease(lease_key, lease)
    end
  end
  if is_generating or interval_us > 0 then
    local state = (is_generating or (request and request.state == 'open')) and 'open' or 'free'
    local last_ms = text(math.max(until_ms, held_until_ms) + memory_ms)
    requests[request_key] = {state = state, fingerprint = fingerprint}
    redis.call('SET', request_key, state .. ' ' .. fingerprint .. ' ' .. last_ms, 'PXAT', last_ms)
  end
  return outcome, 0, fence, left()
end

local reply = {'ok', now_us}
for at = 1, count do
  local outcome, retry_ms, fence, left_tokens = admit(KEYS[4 + 2 * at], KEYS[5 + 2 * at], 8 * at - 1)
  local slot = 4 * at - 1
  reply[slot], reply[slot + 1], reply[slot + 2], reply[slot + 3] = outcome, retry_ms, fence, left_tokens
end

write_reservations()
if reserved_until_ms > 0 then
  local end_ms = reserved_until_ms + SLACK_MS
  -- Longer than they must be, so that not every admission writes it; the sum goes with the last reservation.
  if redis.call('PTTL', KEYS[4]) < end_ms - now_ms then
    for at = 3, 4 do redis.call('PEXPIREAT', KEYS[at], text(end_ms + KEEP_MS)) end
  end
end
if has_new_rate then
  local rate = text(now_us + owed_us) .. ' ' .. text(interval_us)
  redis.call('SET', KEYS[1], rate, 'PX', text(math.ceil(owed_us / 1000) + SLACK_MS))
end
if has_new_fence then redis.call('SET', KEYS[5], text(last_fence), 'PX', FENCE_MEMORY_MS) end
return reply
