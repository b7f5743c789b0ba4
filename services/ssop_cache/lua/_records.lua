-- Requests and leases are one string each, so that a script reads all that it needs at once, and writes each in one go.
-- A request is `state fingerprint expires_ms`, a lease the fields of `read_lease`, in their order. Times have 13 digits.
-- Where they are is known, so that what every request needs is cut out: a pattern costs as much as a command.
local LEASE_SLACK_MS = 1000

-- Those of a batch have most numbers in common, and each would cost as much as a command to write.
local byte, call, find, format = string.byte, redis.call, string.find, string.format
local gmatch, match, sub = string.gmatch, string.match, string.sub
local texts, numbers = {}, {}
local function text(number)
  local found = texts[number]
  if not found then
    found = format('%d', number)
    texts[number] = found
  end
  return found
end
local function number(text)
  local found = numbers[text]
  if not found then
    found = tonumber(text)
    numbers[text] = found
  end
  return found
end

local function read_lease(record)
  if not record then return nil end
  local fence, state, expires_ms, followed_ms, bytes, overflowed, request =
    match(record, '^(%d+) (%l+) (%d+) (%d+) (%d+) (%d) (.*)$')
  return {
    fence = fence, state = state, expires_ms = number(expires_ms), followed_ms = number(followed_ms),
    bytes = number(bytes), is_overflowed = overflowed == '1', request = request,
  }
end

-- A lease that nobody follows, and of which nothing was appended: without a table, which costs as much as a command.
local function open_lease(key, fence, expires_ms, request)
  local record = fence .. ' open ' .. text(expires_ms) .. ' 0 0 0 ' .. request
  call('SET', key, record, 'PXAT', text(expires_ms + LEASE_SLACK_MS))
  return record
end

-- Returns the record. The key goes a while after the lease.
local function write_lease(key, lease)
  local record = lease.fence .. ' ' .. lease.state .. ' ' .. text(lease.expires_ms) .. ' ' .. text(lease.followed_ms)
    .. ' ' .. text(lease.bytes) .. (lease.is_overflowed and ' 1 ' or ' 0 ') .. lease.request
  call('SET', key, record, 'PXAT', text(lease.expires_ms + LEASE_SLACK_MS))
  return record
end

local function is_held(lease, fence, now_ms)
  return lease and lease.fence == fence and lease.state == 'open' and now_ms < lease.expires_ms
end

-- Whether a lease is held, whether nobody has followed it nor anything been appended, and when it is over.
local function look_at_lease(record, fence, now_ms)
  local head = fence .. ' open '
  if not record or find(record, head, 1, true) ~= 1 then return false, false, 0 end
  local expires_ms = number(sub(record, #head + 1, #head + 13))
  return now_ms < expires_ms, sub(record, #head + 14, #head + 20) == ' 0 0 0 ', expires_ms
end

-- `ending`: `stored`, so that a look-up that came too early learns of it until `recheck_until_ms`, `told`, when those
-- that follow have all of it and nobody else finds it, or `given_up`. Returns the outcome.
local function close_lease(key, fence, ending, expires_ms, recheck_until_ms)
  if ending == 'stored' then
    local until_ms = text(recheck_until_ms)
    if recheck_until_ms <= expires_ms + LEASE_SLACK_MS then
      -- `open` and `done` are of one length. To say when a key goes is a third of what the command costs.
      call('SETRANGE', key, #fence, ' done ' .. until_ms)
    else
      call('SET', key, fence .. ' done ' .. until_ms .. ' 0 0 0 ', 'PXAT', until_ms)
    end
  else
    call('DEL', key)
  end
  return ending == 'given_up' and 'given_up' or 'ok'
end
