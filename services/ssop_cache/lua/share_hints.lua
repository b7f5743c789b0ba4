-- Times in milliseconds.
-- Puts a router's hints in the place of those that it gave before, drops old ones, and reads those of others.
-- KEYS: hints: by router id, '/' and address: last evidence, ' ' and rule
-- ARGV: 1 router id, 2 memory_ms of a hint, 3 most hints of all routers, then address, rule, age_ms, ...
-- Returns: now_ms, then for each hint of others: address, rule, age_ms
local STEP_MS = 500

local function text(number) return string.format('%d', number) end

local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
local own, memory_ms, most = ARGV[1] .. '/', tonumber(ARGV[2]), tonumber(ARGV[3])

local given = {}
for at = 4, #ARGV, 3 do given[own .. ARGV[at]] = { text(now_ms - tonumber(ARGV[at + 2])), ARGV[at + 1] } end

local reply, gone, kept = {now_ms}, {}, 0
local fields = redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
  local field = fields[at]
  local seen_ms, rule = string.match(fields[at + 1], '^(%d+) (.*)$')
  local age_ms = now_ms - tonumber(seen_ms or '0')
  local is_own = string.sub(field, 1, #own) == own
  if age_ms > memory_ms or (is_own and not given[field]) then
    gone[#gone + 1] = field
  else
    kept = kept + 1
    if is_own then
      -- Written again only for news: a write costs the disk.
      if tonumber(given[field][1]) < tonumber(seen_ms) + STEP_MS and given[field][2] == rule then given[field] = nil end
    else
      reply[#reply + 1] = string.match(field, '^[^/]*/(.*)$')
      reply[#reply + 1] = rule
      reply[#reply + 1] = math.max(0, age_ms)
    end
  end
end
if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
local is_changed = false
for field, hint in pairs(given) do
  if redis.call('HEXISTS', KEYS[1], field) == 1 or kept < most then
    kept = kept + 1
    redis.call('HSET', KEYS[1], field, hint[1] .. ' ' .. hint[2])
    is_changed = true
  end
end
if is_changed then redis.call('PEXPIRE', KEYS[1], text(memory_ms + 1000)) end
return reply
