//! The keys, and the start of each script.

/// The keys of the store. Their hash tag puts them all in one slot. The free jobs of a *lane*,
/// which is a queue, a kind and a priority, are in a set of their own. That of the default ones
/// without a kind is `free`. Another one has the priority, the length of the queue's name, this
/// name and the kind in its name: `free:0:5:mails:welcome`.
///
/// | key | type | has |
/// |---|---|---|
/// | `jobs` | hash | for each job all but the payload, packed by `cmsgpack` |
/// | `payloads` | hash | for each job the payload |
/// | `keys` | sorted set | the keys of all jobs, in the order of their bytes |
/// | `dead` | sorted set | the keys of dead jobs, in the order of their bytes |
/// | `free` | sorted set | the jobs of the default lane without a holder, unless dead, by time |
/// | `free:LANE` | sorted set | likewise those of another lane |
/// | `lanes` | set | the other lanes that may have a free job |
/// | `held` | sorted set | the jobs that have a holder, by the number of its lease |
/// | `nodes` | sorted set | the leases, by their end |
/// | `numbers` | number | the last number of a lease, a token or a search |
/// | `last` | number | likewise, until kinds are admitted; then a text, by which earlier nodes fail |
/// | `modern` | set | the leases of nodes that know kinds, until kinds are admitted |
/// | `paused` | set | the queues that are paused |
/// | `version` | number | the version of all this |
/// | `granted` | sorted set | the leases, by the time of their grant or last renewal |
/// | `latest` | number | the latest time from which a time was counted, less at most a minute |
/// | `kept` | sorted set | the keys that jobs keep which are done, by the end of that |
/// | `begun` | sorted set | these keys, by the time from which that is counted |
/// | `counts` | number | likewise as `numbers`, which is a text then, from when keys can be kept |
/// | `newest` | set | the leases of nodes that know of kept keys, until these are admitted |
/// | `search` | hash | the number of the search that sets `latest` anew, and what `latest` was since |
///
/// Nodes of versions 1 and 2 know no lanes, and would run all jobs by their times. So the store
/// takes no job of another lane than `free` while one of their leases is in `nodes`. When there is
/// none, a node or a client admits kinds, for ever: `last` becomes `numbers`, and a text takes its
/// place. So the scripts of earlier nodes that count a lease, a token or a search fail. Those of
/// earlier clients count nothing, and go on.
///
/// Keys that are kept are admitted likewise, when there is no lease of an earlier node: `numbers`
/// becomes `counts`. Nodes of version 3 would forget that a key is to be kept.
pub(super) const KEYS: [&str; 20] = [
    "{durable}:jobs",
    "{durable}:payloads",
    "{durable}:keys",
    "{durable}:dead",
    "{durable}:free",
    "{durable}:held",
    "{durable}:nodes",
    "{durable}:last",
    "{durable}:version",
    "{durable}:granted",
    "{durable}:latest",
    "{durable}:search",
    "{durable}:lanes",
    "{durable}:numbers",
    "{durable}:modern",
    "{durable}:paused",
    "{durable}:kept",
    "{durable}:begun",
    "{durable}:counts",
    "{durable}:newest",
];

/// The start of the name of the channel on which nodes learn of changes. The number of the database
/// follows, because all databases share the channels.
pub(super) const CHANNEL: &str = "{durable}:soon:";

/// The start of each script. Times and numbers are below 2^53, or the client rounds them up, so the
/// numbers of Lua represent them exactly.
pub(super) const PRELUDE: &str = "
local jobs, payloads, keys, dead, free, held, nodes, last, version, granted, latest, search, lanes,
    numbers, modern, paused, kept, begun, counts, newest = unpack(KEYS)

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- When the server's memory is full, it refuses a script whose first write needs memory. A script
-- that starts with this goes on, as without it no job would run and make room.
local function allow_full_memory()
    redis.call('HDEL', jobs, '')
end

-- Admits kinds if no node of an earlier version has a lease. Returns whether they are admitted.
local function has_kinds()
    if redis.call('EXISTS', numbers) == 1 then
        return true
    end
    for _, node in ipairs(redis.call('ZRANGE', nodes, 0, -1)) do
        if redis.call('SISMEMBER', modern, node) == 0 then
            return false
        end
    end
    redis.call('SET', numbers, redis.call('GET', last) or 0)
    redis.call('SET', last, 'kinds')
    redis.call('DEL', modern)
    return true
end

-- Likewise for keys that are kept.
local function has_kept()
    if redis.call('EXISTS', counts) == 1 then
        return true
    end
    for _, node in ipairs(redis.call('ZRANGE', nodes, 0, -1)) do
        if redis.call('SISMEMBER', newest, node) == 0 then
            return false
        end
    end
    if not has_kinds() then
        return false
    end
    redis.call('SET', counts, redis.call('GET', numbers))
    redis.call('SET', numbers, 'kept')
    redis.call('DEL', newest)
    return true
end

-- Takes the next numbers, and returns the last of them.
local function take_numbers(count)
    local of = redis.call('EXISTS', counts) == 1 and counts
        or redis.call('EXISTS', numbers) == 1 and numbers or last
    return redis.call('INCRBY', of, count)
end

-- Returns until when a key is kept, or nothing. If the clock was far ahead as the job was done, the
-- time begins now.
local function kept_until(key)
    local over = tonumber(redis.call('ZSCORE', kept, key) or 0)
    local from = tonumber(redis.call('ZSCORE', begun, key) or 0)
    if from > now + ALLOWANCE then
        over = now + over - from
    end
    return over > now and over
end

-- Frees a key.
local function free_key(key)
    redis.call('ZREM', kept, key)
    redis.call('ZREM', begun, key)
end

-- Returns the name of a job's lane, or nothing if it is that of `free`.
local function lane_of(job)
    return (job.kind ~= '' or job.priority ~= DEFAULT or job.queue ~= 'QUEUE')
        and job.priority .. ':' .. #job.queue .. ':' .. job.queue .. ':' .. job.kind
end

-- Returns the set of the free jobs of a lane.
local function free_of(lane)
    return lane and free .. ':' .. lane or free
end

-- Returns a text, or false if it is empty.
local function text(argument)
    return argument ~= '' and argument
end

-- Remembers from when a time is counted, or `false`, and returns it. A search may have read the job
-- before, so it learns of this, too.
local known, since = false, false
local function count(from)
    known = known or tonumber(redis.call('GET', latest) or 0)
    if from and from > known + MINUTE then
        known = from
        redis.call('SET', latest, string.format('%.0f', from))
    end
    since = since or tonumber(redis.call('HGET', search, 'latest') or -1)
    if from and since >= 0 and from > since + MINUTE then
        since = from
        redis.call('HSET', search, 'latest', string.format('%.0f', from))
    end
    return from
end

-- Returns a time, and from when it is counted, or `false` if a client gave it.
local function moment(argument, is_delay, from)
    if is_delay == '1' then
        return now + tonumber(argument), now
    end
    return tonumber(argument), tonumber(from) or false
end

local function read(key)
    local packed = redis.call('HGET', jobs, key)
    if not packed then
        return nil
    end
    local job = {key = key}
    job.due, job.at, job.attempts, job.pattern, job.zone, job.error, job.dead, job.node, job.token,
        job.running, job.counted, job.kind, job.priority, job.queue, job.unique, job.trace
        = cmsgpack.unpack(packed)
    -- Version 1 had no such time, version 2 no lanes, version 3 kept no keys, and version 4 had no
    -- trace contexts.
    job.counted, job.kind = job.counted or false, job.kind or ''
    job.priority, job.queue = job.priority or DEFAULT, job.queue or 'QUEUE'
    job.unique, job.trace = job.unique or false, job.trace or false
    return job
end

local function write(job)
    redis.call('HSET', jobs, job.key, cmsgpack.pack(job.due, job.at, job.attempts, job.pattern,
        job.zone, job.error, job.dead, job.node, job.token, job.running, count(job.counted),
        job.kind, job.priority, job.queue, job.unique, job.trace))
end

-- Writes a job without a holder. The nodes learn of it at the end if it is due soon.
local is_soon = false
local function offer(job)
    job.dead = false
    job.node, job.token, job.running = false, false, false
    write(job)
    redis.call('ZREM', held, job.key)
    local lane = lane_of(job)
    redis.call('ZADD', free_of(lane), job.at, job.key)
    if lane then
        redis.call('SADD', lanes, lane)
    end
    is_soon = is_soon or job.at <= now + SOON
end

local function tell()
    if is_soon then
        redis.call('PUBLISH', 'CHANNEL', '')
    end
end

local function remove(job)
    redis.call('HDEL', jobs, job.key)
    redis.call('HDEL', payloads, job.key)
    for _, set in ipairs({keys, dead, free_of(lane_of(job)), held}) do
        redis.call('ZREM', set, job.key)
    end
end

local function has_lease(node)
    local over = redis.call('ZSCORE', nodes, node)
    return over and tonumber(over) > now
end

local function is_paused(queue)
    return redis.call('SISMEMBER', paused, queue) == 1
end

-- Returns the first bytes of a text, without a part of a character of UTF-8.
local function beginning(text, most)
    if #text > most then
        while most > 0 and bit.band(string.byte(text, most + 1), 192) == 128 do
            most = most - 1
        end
    end
    return string.sub(text, 1, most)
end

-- What a client reads of a job. `most` may limit the bytes of the payload, and of the error.
local function shown(job, most)
    local payload, reason = redis.call('HGET', payloads, job.key), job.error
    if most then
        payload = string.sub(payload, 1, most)
        reason = reason and beginning(reason, most)
    end
    return {job.key, payload, job.due, job.at, job.attempts, job.pattern, job.zone, reason,
        job.dead, job.running, job.kind, job.priority, job.queue, job.trace}
end
";
