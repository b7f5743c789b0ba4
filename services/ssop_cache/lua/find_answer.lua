-- Times in milliseconds.
-- Reads a stored answer, unless it is too old or from before the tenant's answers were flushed.
-- KEYS: answer, flush
-- ARGV: 1 max_age_ms, 0: no limit
-- Returns: nothing, or age_ms, fence, record, time to live
local answer = redis.call('HMGET', KEYS[1], 'stored_ms', 'fence', 'record', 'epoch')
if not answer[1] then return {} end
-- Where the mark was evicted, answers stored under it are no longer known to be good.
if answer[4] ~= redis.call('HGET', KEYS[2], 'epoch') then return {} end
local time = redis.call('TIME')
local now_ms = math.floor(tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
local age_ms = math.max(0, now_ms - tonumber(answer[1]))
local max_age_ms = tonumber(ARGV[1])
if max_age_ms > 0 and age_ms > max_age_ms then return {} end
return {age_ms, tonumber(answer[2]), answer[3], redis.call('PTTL', KEYS[1])}
