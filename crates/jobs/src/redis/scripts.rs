//! The scripts. Each change of the store is one script, so it is atomic.

use std::time::Duration;

use redis::Script;

use super::{clients::SCHEDULE, prelude::PRELUDE};
use crate::{
    job::{DEFAULT_PRIORITY, DEFAULT_QUEUE, LOWEST_PRIORITY, micros},
    node::session::LONGEST,
    recount::{ALLOWANCE, UNSET},
};

/// Declares the scripts of a store, each with the text that follows the prelude.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident: $text:expr,)*) => {
        /// The scripts of a store.
        pub(super) struct Scripts {
            $($(#[$doc])* pub(super) $name: Script,)*
        }

        impl Scripts {
            /// Makes the scripts, which tell of changes on this channel.
            pub(super) fn new(channel: &str) -> Self {
                let soon = micros(2 * LONGEST).to_string();
                let allowance = micros(ALLOWANCE).to_string();
                let minute = micros(Duration::from_secs(60)).to_string();
                let script = |text: &str| {
                    let text = format!("{PRELUDE}{text}")
                        .replace("MINUTE", &minute)
                        .replace("ALLOWANCE", &allowance)
                        .replace("UNSET", &UNSET.as_micros().to_string())
                        .replace("SOON", &soon)
                        .replace("DEFAULT", &DEFAULT_PRIORITY.to_string())
                        .replace("QUEUE", DEFAULT_QUEUE)
                        .replace("LOWEST", &LOWEST_PRIORITY.to_string());
                    Script::new(&text.replace("CHANNEL", channel))
                };
                Self {
                    $($name: script($text),)*
                }
            }
        }
    };
}

scripts! {
/// Answers with the version, and the time. Makes the store unless it exists.
open: "
if redis.call('EXISTS', version) == 0 then
    redis.call('SET', version, ARGV[1])
    has_kept()
end
return {tonumber(redis.call('GET', version)), now}
",

/// Makes the store, or brings one of an earlier version to this one. Version 2 has the same keys but
/// those of lanes, and version 1 three less. They pack jobs without kind, priority and queue, and
/// version 1 without the time from which they were counted; they ignore what they do not know.
/// Version 3 packs them without the time for which a key is kept, and version 4 without the trace
/// context.
migrate: "
if tonumber(redis.call('GET', version) or 0) < tonumber(ARGV[1]) then
    redis.call('SET', version, ARGV[1])
    has_kinds()
    has_kept()
end
return {tonumber(redis.call('GET', version)), now}
",

/// Adds jobs. Arguments: 1 to replace those of their keys, or 0, and for each job: key, payload,
/// kind, priority, queue, for how long its key is kept, its trace context, time, whether this
/// is a delay, from when the time was counted, pattern, zone. Answers for each whether there is
/// another job of its key, or it is kept (0), it was added (1), it has replaced one (2), or one
/// that ran (3), and with the time of the job that is there now, or at which the key is free. Adds
/// none and answers with nothing if one is of another lane than the default, and kinds are not
/// admitted yet; likewise for keys that are to be kept.
schedule: SCHEDULE,

/// Moves jobs. For each job: key, time, whether this is a delay, from when the time was counted,
/// pattern, zone. Answers for each whether there is none (0), it was moved (1), or it was moved while
/// it ran (2), and its time.
reschedule: "
allow_full_memory()
local answers = {}
for i = 1, #ARGV, 6 do
    local job = read(ARGV[i])
    if job then
        local was_running = job.running
        job.at, job.counted = moment(ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
        job.due, job.attempts, job.error = job.at, 0, false
        job.pattern = text(ARGV[i + 4]) or job.pattern
        job.zone = text(ARGV[i + 5]) or job.zone
        redis.call('ZREM', dead, job.key)
        offer(job)
        table.insert(answers, {was_running and 2 or 1, job.at})
    else
        table.insert(answers, {0, 0})
    end
end
tell()
return answers
",

/// Removes the jobs of these keys, and frees those that are kept. Answers for each whether there is
/// none (0), it was cancelled (1), or it was cancelled while it ran (2).
cancel: "
local answers = {}
for i, key in ipairs(ARGV) do
    local job = read(key)
    answers[i] = job and (job.running and 2 or 1) or 0
    free_key(key)
    if job then
        remove(job)
    end
end
return answers
",

/// Changes a part of the dead jobs. Arguments: 1 to make them due at once, or 0 to remove them,
/// text in the key, key before, whether only one kind, which, whether only one queue, which, how
/// many at most. Looks at a part of the keys, as `list`. Answers with the last key of this part, or
/// nothing if it is the last part, and with the number of jobs.
change_dead: "
local start = ARGV[3] == '' and '-' or '(' .. ARGV[3]
local part = redis.call('ZRANGEBYLEX', dead, start, '+', 'LIMIT', 0, 500)
local reached = #part == 500 and part[500] or ''
local most, changed = math.min(tonumber(ARGV[8]), 200), 0
allow_full_memory()
for _, key in ipairs(part) do
    local job = string.find(key, ARGV[2], 1, true) and read(key)
    if job and job.dead and (ARGV[4] == '0' or ARGV[5] == job.kind)
        and (ARGV[6] == '0' or ARGV[7] == job.queue) then
        if ARGV[1] == '1' then
            job.due, job.at, job.counted = now, now, now
            job.attempts, job.error = 0, false
            redis.call('ZREM', dead, key)
            offer(job)
        else
            free_key(key)
            remove(job)
        end
        changed = changed + 1
        if changed == most then
            reached = key
            break
        end
    end
end
tell()
return {reached, changed}
",

/// Pauses a queue, or lets it go on. Arguments: its name, whether it is paused. Answers with
/// nothing if nodes have leases that know no pauses.
set_paused: "
allow_full_memory()
if not has_kinds() then
    return false
end
redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', paused, ARGV[1])
return redis.call('PUBLISH', 'CHANNEL', '')
",

/// Answers with the queues that are paused.
paused: "
return redis.call('SMEMBERS', paused)
",

/// Finds the job of a key.
find: "
local job = read(ARGV[1])
return job and {shown(job)} or {}
",

/// Lists jobs. Arguments: text in the key, key before, whether only the dead (1), the others (0) or
/// all (empty), limit, how many bytes of a payload and of an error at most, whether only one kind,
/// which, whether only one queue, which. Looks at a part of the keys, so that the server is free
/// for others soon. Answers with the last key of this part, or nothing if it is the last part, and
/// with the jobs.
list: "
local found = {}
local start = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local part = redis.call('ZRANGEBYLEX', ARGV[3] == '1' and dead or keys, start, '+',
    'LIMIT', 0, 500)
local reached = #part == 500 and part[500] or ''
for _, key in ipairs(part) do
    if string.find(key, ARGV[1], 1, true) then
        local job = read(key)
        if (ARGV[3] ~= '0' or not job.dead) and (ARGV[6] == '0' or ARGV[7] == job.kind)
            and (ARGV[8] == '0' or ARGV[9] == job.queue) then
            table.insert(found, shown(job, tonumber(ARGV[5])))
            if #found == tonumber(ARGV[4]) then
                reached = key
                break
            end
        end
    end
end
return {reached, found}
",

/// Answers with the numbers of all jobs and of the dead.
count: "
return {redis.call('ZCARD', keys), redis.call('ZCARD', dead)}
",

/// Grants a lease of this length. Answers with its number, and the time.
register: "
allow_full_memory()
local node = take_numbers(1)
if not has_kinds() then
    redis.call('SADD', modern, node)
end
if not has_kept() then
    redis.call('SADD', newest, node)
end
redis.call('ZADD', nodes, now + ARGV[1], node)
redis.call('ZADD', granted, now, node)
return {node, now}
",

/// Renews a lease. Arguments: node, the length of the lease. A lease that ran out is over, even if
/// no node has noticed. Answers whether it was renewed, and the time.
renew: "
if not has_lease(ARGV[1]) then
    return {0, now}
end
allow_full_memory()
redis.call('ZADD', nodes, now + ARGV[2], ARGV[1])
redis.call('ZADD', granted, now, ARGV[1])
return {1, now}
",

/// Ends the lease of a node (0 for no node) and leases that ran out, and frees a part of their
/// jobs, so that the server is free for others soon. Answers whether there are more.
end: "
allow_full_memory()
-- If the clock was put back, leases that were granted before begin now.
local ahead = redis.call('ZRANGEBYSCORE', granted, string.format('(%.0f', now), '+inf',
    'LIMIT', 0, 50)
for _, node in ipairs(ahead) do
    local over, from = redis.call('ZSCORE', nodes, node), redis.call('ZSCORE', granted, node)
    if over then
        if tonumber(over) > tonumber(from) then
            redis.call('ZADD', nodes, now + over - from, node)
        end
        redis.call('ZADD', granted, now, node)
    else
        -- A node of version 1 has ended it.
        redis.call('ZREM', granted, node)
    end
end
local ended = {}
if ARGV[1] == '0' then
    ended = redis.call('ZRANGEBYSCORE', nodes, '-inf', now, 'LIMIT', 0, 10)
elseif redis.call('ZSCORE', nodes, ARGV[1]) then
    redis.call('ZADD', nodes, 0, ARGV[1])
    ended = {ARGV[1]}
end
local room = 50
for _, node in ipairs(ended) do
    local freed = redis.call('ZRANGEBYSCORE', held, node, node, 'LIMIT', 0, room)
    for _, key in ipairs(freed) do
        offer(read(key))
    end
    if #freed == room then
        tell()
        return 1
    end
    room = room - #freed
    redis.call('ZREM', nodes, node)
    redis.call('ZREM', granted, node)
    redis.call('SREM', modern, node)
    redis.call('SREM', newest, node)
end
tell()
has_kinds()
has_kept()
return 0
",

/// Makes a node the holder of jobs. Arguments: node, after (or all before, if empty) and within
/// which times of now the jobs are due, most, the lowest priority, queue, whether of all kinds, or
/// of which. Takes all of a lane before the next one: the highest priority comes first, and of one
/// priority the lane with the earliest job. For all kinds, it reads the names of all lanes. Answers
/// with the number of entries that were no such jobs, and the jobs.
hold: "
if not has_lease(ARGV[1]) or is_paused(ARGV[6]) then
    return {0, {}}
end
local after = ARGV[2] == '' and '-inf' or string.format('(%.0f', now + ARGV[2])
local within = string.format('%.0f', now + ARGV[3])
local lowest = tonumber(ARGV[5])
allow_full_memory()
local wanted, queue = {}, ARGV[6]
local function want(kind, priority)
    if priority <= lowest then
        local lane = lane_of({kind = kind, priority = priority, queue = queue})
        local set = free_of(lane)
        local first = redis.call('ZRANGEBYSCORE', set, after, within, 'WITHSCORES', 'LIMIT', 0, 1)
        if first[1] then
            table.insert(wanted,
                {at = tonumber(first[2]), set = set, kind = kind, priority = priority})
        elseif lane and ARGV[7] == '1' and redis.call('EXISTS', set) == 0 then
            redis.call('SREM', lanes, lane)
        end
    end
end
if ARGV[7] == '1' then
    if queue == 'QUEUE' then
        want('', DEFAULT)
    end
    for _, lane in ipairs(redis.call('SMEMBERS', lanes)) do
        local priority, length, rest = string.match(lane, '^(%d+):(%d+):(.*)$')
        if string.sub(rest, 1, length) == queue then
            want(string.sub(rest, length + 2), tonumber(priority))
        end
    end
else
    for i = 8, #ARGV do
        for priority = 0, LOWEST do
            want(ARGV[i], priority)
        end
    end
end
table.sort(wanted, function(one, other)
    if one.priority == other.priority then
        return one.at < other.at
    end
    return one.priority < other.priority
end)
local found, dropped = {}, 0
for _, lane in ipairs(wanted) do
    local room = ARGV[4] - #found - dropped
    local part = redis.call('ZRANGEBYSCORE', lane.set, after, within, 'LIMIT', 0, room)
    local token = #part > 0 and take_numbers(#part) - #part
    for i, key in ipairs(part) do
        local job = read(key)
        redis.call('ZREM', lane.set, key)
        -- A client of an earlier version, which knows no lanes, may have moved or cancelled it.
        if job and job.kind == lane.kind and job.priority == lane.priority
            and job.queue == queue then
            job.node, job.token, job.running = tonumber(ARGV[1]), token + i, false
            write(job)
            redis.call('ZADD', held, ARGV[1], key)
            table.insert(found, {key, job.due, job.at, job.attempts, job.pattern, job.zone,
                redis.call('HSTRLEN', payloads, key), job.token, job.kind, job.priority,
                job.queue, job.trace})
        else
            dropped = dropped + 1
        end
    end
end
return {dropped, found}
",

/// Takes jobs from their holders. For each job: key, token.
give_back: "
allow_full_memory()
for i = 1, #ARGV, 2 do
    local job = read(ARGV[i])
    if job and job.token == tonumber(ARGV[i + 1]) then
        offer(job)
    end
end
tell()
return 0
",

/// Begins attempts. For each attempt: key, token, time from the begin until the next attempt.
/// Answers with the time, and for each with its number and payload, 0 if the token is stale, -1 if
/// early, or -2 if its queue is paused. The client may repeat this, as the answer may be lost.
begin: "
allow_full_memory()
local answers = {now}
for i = 1, #ARGV, 3 do
    local job = read(ARGV[i])
    local answer = 0
    if job and job.token == tonumber(ARGV[i + 1]) then
        answer = is_paused(job.queue) and -2 or -1
        if job.running or answer == -1 and job.at <= now then
            if not job.running then
                job.running = true
                job.attempts = job.attempts + 1
                job.at, job.counted = now + ARGV[i + 2], now
                write(job)
            end
            answer = {job.attempts, redis.call('HGET', payloads, job.key)}
        end
    end
    table.insert(answers, answer)
end
return answers
",

/// Finds out whether tokens are current. For each attempt: key, token. Answers for each with 1 or 0.
current: "
local answers = {}
for i = 1, #ARGV, 2 do
    local job = read(ARGV[i])
    table.insert(answers, job and job.token == tonumber(ARGV[i + 1]) and 1 or 0)
end
return answers
",

/// Ends attempts. For each attempt: key, token, end (`done`, `next`, `retry`, `snooze` or `dead`),
/// the next time or the delay, error, whether there is an error, from when the next time was
/// counted. Answers for each whether the token was the job's.
finish: "
allow_full_memory()
local answers = {}
for i = 1, #ARGV, 7 do
    local key, token, kind, time, reason = unpack(ARGV, i, i + 4)
    local job = read(key)
    local is_current = job and job.token == tonumber(token)
    table.insert(answers, is_current and 1 or 0)
    if is_current and kind == 'done' then
        remove(job)
        -- A client of an earlier version may have added the job although the key is kept.
        free_key(key)
        if job.unique then
            redis.call('ZADD', kept, now + job.unique, key)
            redis.call('ZADD', begun, now, key)
        end
    elseif is_current then
        if kind ~= 'snooze' then
            job.error = ARGV[i + 5] == '1' and reason
        end
        if kind == 'next' then
            job.at, job.counted = tonumber(time), tonumber(ARGV[i + 6])
            job.due, job.attempts = job.at, 0
            offer(job)
        elseif kind == 'retry' then
            job.at, job.counted = now + time, now
            offer(job)
        elseif kind == 'snooze' then
            job.at, job.counted = now + time, now
            job.attempts = math.max(job.attempts - 1, 0)
            offer(job)
        else
            job.dead = true
            job.node, job.token, job.running, job.counted = false, false, false, false
            write(job)
            redis.call('ZREM', held, key)
            redis.call('ZADD', dead, 0, key)
        end
    end
end
tell()
return answers
",

/// Forgets a part of the keys that are free again. Counts the times of others from now, if the clock
/// was far ahead. Answers whether there may be more.
sweep: "
local free_again = redis.call('ZRANGEBYSCORE', kept, '-inf', now, 'LIMIT', 0, 500)
for _, key in ipairs(free_again) do
    free_key(key)
end
local again = 0
if now >= UNSET then
    local late = '(' .. string.format('%.0f', now + ALLOWANCE)
    local ahead = redis.call('ZRANGEBYSCORE', begun, late, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
    for i = 1, #ahead, 2 do
        allow_full_memory()
        local over = redis.call('ZSCORE', kept, ahead[i]) or ahead[i + 1]
        redis.call('ZADD', kept, now + over - ahead[i + 1], ahead[i])
        redis.call('ZADD', begun, now, ahead[i])
        again = again + 1
    end
end
return (#free_again == 500 or again == 100) and 1 or 0
",

/// Finds jobs whose times were counted when the clock showed a time later than now by more than
/// `ARGV[1]`. `ARGV[2]`, `ARGV[3]`: the key before, and the number of the search, or nothing for the
/// first part. Looks at a part of the keys, and at none if no time was counted so late.
/// Answers with the time, the number of the search or 0 if there is nothing to look at, the last key
/// of this part or nothing if it is the last part, the jobs, and the latest of the other times.
///
/// Nodes that search at the same time have one search, which the first of them ends. If a node ends
/// amid its search, the next one takes the search over, with what was counted since.
counted: "
local bound = now + ARGV[1]
if tonumber(redis.call('GET', latest) or 0) + MINUTE <= bound then
    return {now, 0, '', {}, 0}
end
local number = tonumber(ARGV[3])
if not number then
    number = tonumber(redis.call('HGET', search, 'number'))
    if not number then
        allow_full_memory()
        number = take_numbers(1)
        redis.call('HSET', search, 'number', number, 'latest', 0)
    end
end
local found, other = {}, 0
local start = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local part = redis.call('ZRANGEBYLEX', keys, start, '+', 'LIMIT', 0, 500)
for _, key in ipairs(part) do
    local job = read(key)
    -- The end of an attempt that runs counts its time anew.
    if job.counted and not job.running then
        if job.counted > bound then
            table.insert(found,
                {key, job.at, job.counted, job.attempts, job.pattern, job.zone})
        else
            other = math.max(other, job.counted)
        end
    end
end
return {now, number, #part == 500 and part[500] or '', found, other}
",

/// Writes times that were counted again. For each job: key, the time before, from when it was
/// counted, the time now, from when it is counted. The jobs lose their holders, if nothing else has
/// changed them, and they do not run. Answers with their number.
recount: "
allow_full_memory()
local moved = 0
for i = 1, #ARGV, 5 do
    local job = read(ARGV[i])
    if job and not job.dead and not job.running and job.at == tonumber(ARGV[i + 1])
        and job.counted == tonumber(ARGV[i + 2]) then
        job.at, job.counted = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]) or false
        if job.attempts == 0 then
            job.due = job.at
        end
        offer(job)
        moved = moved + 1
    end
end
tell()
return moved
",

/// Ends a search that has read all jobs, unless another node has. Arguments: its number, and the
/// latest time that it has left. What was counted since it began may be later, such as the time of a
/// job that it has read while the job ran.
recounted: "
if redis.call('HGET', search, 'number') == ARGV[1] then
    allow_full_memory()
    local left = math.max(ARGV[2], redis.call('HGET', search, 'latest'))
    redis.call('SET', latest, string.format('%.0f', left))
    redis.call('DEL', search)
end
return 0
",
}
