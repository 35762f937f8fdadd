-- The same work in Redis: the due time in a sorted set, the timer in a hash. ARGV: id, payload.
redis.call('ZADD', 'due', 1900000000000, ARGV[1])
redis.call('HSET', 'timers', ARGV[1], ARGV[2])
return 1
