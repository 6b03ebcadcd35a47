//! The keys, and the start of each script.

/// The keys of the store. Their hash tag puts them all in one slot.
///
/// | key | type | has |
/// |---|---|---|
/// | `jobs` | hash | for each job all but the payload, packed by `cmsgpack` |
/// | `payloads` | hash | for each job the payload |
/// | `keys` | sorted set | the keys of all jobs, in the order of their bytes |
/// | `dead` | sorted set | the keys of dead jobs, in the order of their bytes |
/// | `free` | sorted set | the jobs that have no holder and are not dead, by the time |
/// | `held` | sorted set | the jobs that have a holder, by the number of its lease |
/// | `nodes` | sorted set | the leases, by their end |
/// | `last` | number | the last number of a lease, a token or a search |
/// | `version` | number | the version of all this |
/// | `granted` | sorted set | the leases, by the time of their grant or last renewal |
/// | `latest` | number | the latest time from which a time was counted, less at most a minute |
/// | `search` | hash | the number of the search that sets `latest` anew, and what `latest` was since |
pub(super) const KEYS: [&str; 12] = [
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
];

/// The start of the name of the channel on which nodes learn of changes. The number of the database
/// follows, because all databases share the channels.
pub(super) const CHANNEL: &str = "{durable}:soon:";

/// The start of each script. Times and numbers are below 2^53, or the client rounds them up, so the
/// numbers of Lua represent them exactly.
pub(super) const PRELUDE: &str = "
local jobs, payloads, keys, dead, free, held, nodes, last, version, granted, latest, search =
    unpack(KEYS)

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- When the server's memory is full, it refuses a script whose first write needs memory. A script
-- that starts with this goes on, as without it no job would run and make room.
local function allow_full_memory()
    redis.call('HDEL', jobs, '')
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
        job.running, job.counted = cmsgpack.unpack(packed)
    -- Version 1 had no such time.
    job.counted = job.counted or false
    return job
end

local function write(job)
    redis.call('HSET', jobs, job.key, cmsgpack.pack(job.due, job.at, job.attempts, job.pattern,
        job.zone, job.error, job.dead, job.node, job.token, job.running, count(job.counted)))
end

-- Writes a job without a holder. The nodes learn of it at the end if it is due soon.
local is_soon = false
local function offer(job)
    job.dead = false
    job.node, job.token, job.running = false, false, false
    write(job)
    redis.call('ZREM', held, job.key)
    redis.call('ZADD', free, job.at, job.key)
    is_soon = is_soon or job.at <= now + SOON
end

local function tell()
    if is_soon then
        redis.call('PUBLISH', 'CHANNEL', '')
    end
end

local function remove(key)
    redis.call('HDEL', jobs, key)
    redis.call('HDEL', payloads, key)
    for _, set in ipairs({keys, dead, free, held}) do
        redis.call('ZREM', set, key)
    end
end

local function has_lease(node)
    local over = redis.call('ZSCORE', nodes, node)
    return over and tonumber(over) > now
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
        job.dead, job.running}
end
";
