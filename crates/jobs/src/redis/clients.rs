//! Requests of clients that add jobs, replace them and move them, also many dead ones.

use redis::{ScriptInvocation, Value};

use super::{
    Redis,
    answers::{array, number, numbers, text, unknown},
    arguments::{add_when, optional},
    prepare,
};
use crate::{
    job::{NewJob, Time, When, micros},
    remote::time,
    store::{DeadJobs, DeadPart, Moved, Replaced, Scheduled, Store, StoreError},
};

/// The script that adds jobs. See [`Scripts::schedule`](super::scripts::Scripts::schedule).
pub(super) const SCHEDULE: &str = "
local has_lane, keeps = false, false
for i = 2, #ARGV, 12 do
    has_lane = has_lane or lane_of({kind = ARGV[i + 2], priority = tonumber(ARGV[i + 3]),
        queue = ARGV[i + 4]})
    keeps = keeps or ARGV[i + 5] ~= ''
end
if has_lane and not has_kinds() or keeps and not has_kept() then
    return false
end
local answers = {}
for i = 2, #ARGV, 12 do
    local key = ARGV[i]
    local other, answer = read(key), 1
    local taken = other and other.at or kept_until(key)
    if taken and ARGV[1] == '0' then
        table.insert(answers, {0, taken})
    else
        local at, counted = moment(ARGV[i + 7], ARGV[i + 8], ARGV[i + 9])
        -- The first write needs memory, so that the server can refuse it.
        redis.call('HSET', payloads, key, ARGV[i + 1])
        redis.call('ZADD', keys, 0, key)
        free_key(key)
        if other then
            answer = other.running and 3 or 2
            redis.call('ZREM', dead, key)
            redis.call('ZREM', free_of(lane_of(other)), key)
        end
        offer({key = key, due = at, at = at, counted = counted, attempts = 0,
            pattern = text(ARGV[i + 10]), zone = text(ARGV[i + 11]), error = false,
            kind = ARGV[i + 2], priority = tonumber(ARGV[i + 3]), queue = ARGV[i + 4],
            unique = tonumber(ARGV[i + 5]) or false, trace = text(ARGV[i + 6])})
        table.insert(answers, {answer, at})
    end
end
tell()
return answers
";

impl Redis {
    /// Calls a script for requests, each with its first arguments, but not for those whose patterns
    /// have no further occurrence. Returns for each of the others a number and a time.
    async fn change<'a>(
        &self,
        mut call: ScriptInvocation<'_>,
        requests: impl Iterator<Item = (Vec<&'a [u8]>, &'a When)>,
    ) -> Result<Vec<Option<(i64, Time)>>, StoreError> {
        let now = self.now();
        let mut are_asked = Vec::new();
        for (first, when) in requests {
            let time = time(when, now);
            are_asked.push(time.is_some());
            if let Some(time) = time {
                call.arg(first);
                add_when(&mut call, when, time);
            }
        }
        let answer = self.clients.run(&call).await?;
        if let Value::Nil = answer {
            return Err(StoreError::EarlierNodes);
        }
        let mut answers = array(&answer)?.iter();
        let mut read = |is_asked: &bool| {
            if !is_asked {
                return Ok(None);
            }
            let [number, at] = numbers(answers.next().ok_or_else(unknown)?)?;
            Ok(Some((number, Time::from_micros(at))))
        };
        are_asked.iter().map(&mut read).collect()
    }

    /// Calls the script that adds jobs. `replaces`: also in place of those of their keys.
    async fn add_or_replace(
        &self,
        jobs: &[NewJob],
        replaces: bool,
    ) -> Result<Vec<Option<(i64, Time)>>, StoreError> {
        let texts = |job: &NewJob| {
            let unique_for = optional(job.kept().map(micros));
            (job.priority.to_string(), unique_for)
        };
        let texts: Vec<_> = jobs.iter().map(texts).collect();
        let requests = jobs
            .iter()
            .zip(&texts)
            .map(|(job, (priority, unique_for))| {
                let (key, kind) = (job.key.as_bytes(), job.kind.as_bytes());
                let (queue, unique_for) = (job.queue.as_bytes(), unique_for.as_bytes());
                let first = vec![
                    key,
                    &job.payload,
                    kind,
                    priority.as_bytes(),
                    queue,
                    unique_for,
                    job.traceparent.as_deref().unwrap_or_default().as_bytes(),
                ];
                (first, &job.when)
            });
        let mut call = prepare(&self.scripts.schedule);
        call.arg(i32::from(replaces));
        self.change(call, requests).await
    }

    /// Adds jobs.
    pub(super) async fn add(&self, jobs: &[NewJob]) -> Result<Vec<Scheduled>, StoreError> {
        let read = |answer| match answer {
            None => Scheduled::Never,
            Some((1, at)) => Scheduled::Created { at },
            Some((_, at)) => Scheduled::Exists { at },
        };
        let answers = self.add_or_replace(jobs, false).await?;
        Ok(answers.into_iter().map(read).collect())
    }

    /// Adds jobs in place of those of their keys.
    pub(super) async fn replace(&self, jobs: &[NewJob]) -> Result<Vec<Replaced>, StoreError> {
        let read = |answer| match answer {
            None => Replaced::Never,
            Some((1, at)) => Replaced::Created { at },
            Some((2, at)) => Replaced::Replaced { at },
            Some((_, at)) => Replaced::WhileRunning { at },
        };
        let answers = self.add_or_replace(jobs, true).await?;
        Ok(answers.into_iter().map(read).collect())
    }

    /// Makes jobs due at other times.
    pub(super) async fn move_jobs(
        &self,
        moves: &[(String, When)],
    ) -> Result<Vec<Moved>, StoreError> {
        let requests = moves.iter().map(|(key, when)| (vec![key.as_bytes()], when));
        let call = prepare(&self.scripts.reschedule);
        let answers = self.change(call, requests).await?;
        let read = |answer| match answer {
            None => Moved::Never,
            Some((0, _)) => Moved::NotFound,
            Some((1, at)) => Moved::Moved { at },
            Some((_, at)) => Moved::WhileRunning { at },
        };
        Ok(answers.into_iter().map(read).collect())
    }

    /// Makes a part of the dead jobs due at once, or removes them.
    pub(super) async fn change_dead(
        &self,
        is_retried: bool,
        which: DeadJobs,
    ) -> Result<DeadPart, StoreError> {
        let mut call = prepare(&self.scripts.change_dead);
        call.arg(i32::from(is_retried)).arg(&which.search);
        call.arg(which.after.as_deref().unwrap_or_default());
        call.arg(i32::from(which.kind.is_some()));
        call.arg(which.kind.as_deref().unwrap_or_default());
        call.arg(i32::from(which.queue.is_some()));
        call.arg(which.queue.as_deref().unwrap_or_default());
        call.arg(which.most());
        let answer = self.clients.run(&call).await?;
        let [reached, changed] = array(&answer)? else {
            return Err(unknown());
        };
        let reached = text(reached)?;
        Ok(DeadPart {
            changed: u64::try_from(number(changed)?).unwrap_or(0),
            after: (!reached.is_empty()).then_some(reached),
        })
    }
}
