-- A store of version 4, with jobs in all states, as its scripts wrote them.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local hour = now + 3600000000
local function write(key, at, attempts, pattern, error, dead, node, token, running)
    redis.call('HSET', '{durable}:jobs', key, cmsgpack.pack(at, at, attempts, pattern,
        pattern and 'UTC', error, dead, node, token, running,
        not dead and now, '', 4, 'default', false))
    redis.call('HSET', '{durable}:payloads', key, 'of ' .. key)
    redis.call('ZADD', '{durable}:keys', 0, key)
    if dead then
        redis.call('ZADD', '{durable}:dead', 0, key)
    elseif node then
        redis.call('ZADD', '{durable}:held', node, key)
    else
        redis.call('ZADD', '{durable}:free', at, key)
    end
end
redis.call('SET', '{durable}:version', 4)
redis.call('SET', '{durable}:last', 'kinds')
redis.call('SET', '{durable}:numbers', 'kept')
redis.call('SET', '{durable}:counts', 10)
redis.call('ZADD', '{durable}:nodes', now - 1, 1)
redis.call('ZADD', '{durable}:granted', now - 10000000, 1)
redis.call('SET', '{durable}:latest', now)
write('cron', now, 0, '0 0 1 1 *', false, false, false, false, false)
write('dead', now, 8, false, 'broken', true, false, false, false)
write('due', now, 0, false, false, false, false, false, false)
write('held', now, 0, false, false, false, 1, 5, false)
write('later', hour, 0, false, false, false, false, false, false)
write('retry', now, 1, false, 'failed', false, false, false, false)
write('running', now, 1, false, false, false, 1, 6, true)
-- A job that is to keep its key, with a kind, in a queue that is paused; and a key that is kept.
redis.call('SADD', '{durable}:paused', 'mails')
redis.call('HSET', '{durable}:jobs', 'mail', cmsgpack.pack(now, now, 0, false, false, false, false,
    false, false, false, now, 'mail', 1, 'mails', 3600000000))
redis.call('HSET', '{durable}:payloads', 'mail', 'of mail')
redis.call('ZADD', '{durable}:keys', 0, 'mail')
redis.call('ZADD', '{durable}:free:1:5:mails:mail', now, 'mail')
redis.call('SADD', '{durable}:lanes', '1:5:mails:mail')
redis.call('ZADD', '{durable}:kept', hour, 'kept')
redis.call('ZADD', '{durable}:begun', now, 'kept')
