-- Times in milliseconds, of which this script reads none.
-- Makes a tenant's stored answers, and what points to them, unfindable at once; they lapse or are evicted in time.
-- KEYS: flush, similar records, similar by scope, similar by age
-- ARGV: 1 new name of the mark, 2 floor: generations up to it store nothing any more
-- Returns: 1
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'floor', ARGV[2])
return 1
