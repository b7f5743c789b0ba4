-- Removes consumers that hold nothing and have not asked for anything for `idle` milliseconds, in one step with the
-- look at what they hold: removing one that holds posts would lose them.
-- KEYS: streams of posts. ARGV: group, idle_ms. Returns how many.
local gone = 0
for _, key in ipairs(KEYS) do
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', key, ARGV[1])) do
    local named = {}
    for i = 1, #info, 2 do
      named[info[i]] = info[i + 1]
    end
    if named['pending'] == 0 and named['idle'] > tonumber(ARGV[2]) then
      redis.call('XGROUP', 'DELCONSUMER', key, ARGV[1], named['name'])
      gone = gone + 1
    end
  end
end
return gone
