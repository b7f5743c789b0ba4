-- A stored answer is one string: fence, stored_ms, the name of the mark it was stored under (any bytes, and how many),
-- then its record.
local call, match = redis.call, string.match

-- Returns fence, stored_ms, epoch and where the record begins.
local function read_head(value)
  local fence, stored_ms, length, start = match(value, '^(%d+) (%d+) (%d+) ()')
  return fence, stored_ms, string.sub(value, start, start + tonumber(length) - 1), start + tonumber(length)
end
