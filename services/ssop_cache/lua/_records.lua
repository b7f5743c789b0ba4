-- Requests and leases are one string each, so that a script reads all that it needs at once, and writes each in one go.
-- A request is `state fingerprint expires_ms`, a lease the fields of `read_lease`, in their order.
local LEASE_SLACK_MS = 1000

-- Those of a batch have most numbers in common, and each would cost as much as a command to write.
local texts, numbers = {}, {}
local function text(number)
  local found = texts[number] or string.format('%d', number)
  texts[number] = found
  return found
end
local function number(text)
  local found = numbers[text] or tonumber(text)
  numbers[text] = found
  return found
end

local function read_lease(record)
  if not record then return nil end
  local fence, state, expires_ms, followed_ms, bytes, overflowed, request =
    string.match(record, '^(%d+) (%l+) (%d+) (%d+) (%d+) (%d) (.*)$')
  return {
    fence = fence, state = state, expires_ms = number(expires_ms), followed_ms = number(followed_ms),
    bytes = number(bytes), is_overflowed = overflowed == '1', request = request,
  }
end

-- `last_ms`: when the key goes, unless a while after the lease.
local function write_lease(key, lease, last_ms)
  local record = lease.fence .. ' ' .. lease.state .. ' ' .. text(lease.expires_ms) .. ' ' .. text(lease.followed_ms)
    .. ' ' .. text(lease.bytes) .. (lease.is_overflowed and ' 1 ' or ' 0 ') .. lease.request
  redis.call('SET', key, record, 'PXAT', text(last_ms or lease.expires_ms + LEASE_SLACK_MS))
end

local function is_held(lease, fence, now_ms)
  return lease and lease.fence == fence and lease.state == 'open' and now_ms < lease.expires_ms
end
