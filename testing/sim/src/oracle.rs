//! The properties that must hold of all that was recorded.

use tourbillon::timer::{Cancel, Outcome, Reset, Started};
use tourbillon_sim::raw as sim;

use crate::{
    ends::{End as Ended, Ends},
    ledger::{Event, Job, Kind, NEVER, Record, Tally, What, records, tally},
    plan::{End, Plan},
};

const MS: u64 = 1_000_000;
/// The greatest lateness of a run without faults, in ns. The threads share one processor in the
/// world, and each gets it for 4,000 points at a time.
pub const CALM: u64 = 4 * MS;
/// The greatest lateness of a blocked worker's work if a peer rescues it, in rescue latencies.
pub const LATENCIES: u64 = 1;

/// Returns how late something may be that was due at `due` and came at `at`, or `None` if there is
/// no bound. A fault after `at` excuses nothing.
fn lateness(plan: &Plan, due: u64, at: u64) -> Option<u64> {
    let faults = sim::faults();
    if faults.drop_excuses(due, at) {
        return None;
    }
    let blocked: u64 = tally(|tally| {
        let overlap = |&(from, to): &(u64, u64)| to.min(at).saturating_sub(from.max(due));
        tally.blocks.iter().map(overlap).sum()
    });
    // A frozen thread keeps what it has taken, and a thread that wants its lock waits as well. This
    // counts from the start of the world: a thread may be frozen between a reading of the clock and
    // the wait until the next deadline. Then it sleeps that much longer.
    let disturbed = sim::disturbed(0, at);
    let delays = faults.delays.iter().filter(|when| **when <= at).count() as u64;
    // No thread was frozen, no write was delayed, and no thread was refused.
    let calm = disturbed == 0 && delays == 0 && faults.refuse_first.is_none_or(|first| first > at);
    let blocked = match plan.latency.filter(|_| calm && plan.is_rescued()) {
        Some(latency) => blocked.min(LATENCIES * latency.as_nanos() as u64),
        None => blocked,
    };
    Some(CALM + blocked + disturbed + delays * 3 * MS)
}

/// Checks the lateness of something that was due at `due` and came at `at`, `late` ns too late.
pub fn hold(plan: &Plan, due: u64, at: u64, late: u64) -> Result<(), String> {
    let most = lateness(plan, due, at);
    tally(|tally| {
        tally.waits += 1;
        tally.held += u64::from(most.is_some());
        tally.sharp += u64::from(most == Some(CALM));
        tally.latest = tally.latest.max(late);
    });
    match most {
        Some(most) if late > most => Err(format!("late by {late} ns, at most {most}")),
        _ => Ok(()),
    }
}

/// Returns how many timers with names may be waiting now, in a seed that moves no timer by its
/// name.
pub fn may_be_named() -> usize {
    let records = records();
    let may_wait = |it: &&Record| {
        it.named
            && !it.refused
            && calls(it, Outcome::Fired).count() == 0
            && cancels(it).count() == 0
            && accepted(it)
                .iter()
                .any(|(.., to)| to.saturating_add(it.tolerance + CALM) >= it.kind.now())
    };
    records.iter().filter(may_wait).count()
}

pub fn check(plan: &Plan) {
    let records = records();
    for (id, record) in records.iter().enumerate() {
        let checked = match record.refused {
            true => check_refused(record),
            false => check_one(plan, record),
        };
        if let Err(why) = checked {
            let events = &record.events;
            sim::fail(&format!(
                "timer {id}: {why}\n{record:#?}\n{} events\n{plan:?}",
                events.len()
            ));
        }
    }
    let by_name = tally(|tally| tally.by_name);
    let others = records
        .iter()
        .filter(|it| it.named && !it.refused && calls(it, Outcome::Fired).count() == 0)
        .filter(|it| cancels(it).count() == 0)
        .count() as u64;
    let is_exact = plan.end == End::Quiet;
    if by_name > others || is_exact && by_name != others {
        sim::fail(&format!(
            "{by_name} timers were cancelled by name, {others} never ran\n{plan:?}"
        ));
    }
    tally(|tally| {
        let jobs = tally.blocking.len() as u64;
        if tally.tasks != tally.tasks_gone || jobs != tally.blocking_gone {
            sim::fail(&format!("tasks are left: {tally:?}\n{plan:?}"));
        }
        for job in &tally.blocking {
            if let Err(why) = check_job(tally, job) {
                sim::fail(&format!("{job:?}: {why}\n{plan:?}"));
            }
        }
    });
}

/// Checks a job: if it was accepted before the runtime began to end, it runs. None begins after the
/// end.
fn check_job(tally: &Tally, job: &Job) -> Result<(), String> {
    let Some((taken, id)) = job.taken else {
        return Err("the call did not come back".into());
    };
    // Where the world refused a thread, the runtime may have refused jobs.
    let is_excused = tally.aborted.contains(&id) || sim::faults().refused > 0;
    let ending = tally.ending.map_or(NEVER, |(moment, _)| moment);
    match (job.ran, tally.ended) {
        (None, _) if taken < ending && !is_excused => Err(format!(
            "it never ran, and the runtime began to end at {ending}"
        )),
        (Some(begins), Some(ended)) if begins > ended => {
            Err(format!("it runs, and the runtime had ended at {ended}"))
        }
        _ => Ok(()),
    }
}

fn calls(record: &Record, how: Outcome) -> impl Iterator<Item = &Event> {
    let called = What::Called(how);
    record.events.iter().filter(move |it| it.what == called)
}

/// Returns the calls that cancelled the timer.
fn cancels(record: &Record) -> impl Iterator<Item = &Event> {
    let events = record.events.iter();
    events.filter(|it| matches!(it.what, What::Cancel(Cancel::Cancelled | Cancel::AfterRun)))
}

/// Returns the events that gave the timer a deadline, with that deadline's bounds.
fn accepted(record: &Record) -> Vec<(&Event, u64, u64)> {
    let events = record.events.iter();
    let bounds = events.filter_map(|it| match it.what {
        What::Armed(from, to)
        | What::Started(Started::Pending, from, to)
        | What::Reset(Reset::Pending | Reset::AfterRun, from, to) => Some((it, from, to)),
        _ => None,
    });
    bounds.collect()
}

/// Checks a timer that the runtime refused. If its callback takes outcomes, and the caller got no
/// error, it was told so once. Else it was never called.
fn check_refused(record: &Record) -> Result<(), String> {
    let told = calls(record, Outcome::Refused).count();
    let called = |it: &&Event| matches!(it.what, What::Called(_));
    if record.events.iter().filter(called).count() > told {
        return Err("it was refused, and ran".into());
    }
    let expected = usize::from(record.tells && !record.failed);
    if told != expected {
        return Err(format!(
            "it was told {told} times that it was refused, not {expected}"
        ));
    }
    match record.dropped {
        1 => Ok(()),
        count => Err(format!("its callback was dropped {count} times")),
    }
}

fn check_one(plan: &Plan, record: &Record) -> Result<(), String> {
    if calls(record, Outcome::Refused).count() > 0 {
        return Err("it was told that it was refused, and was not".into());
    }
    let ending = tally(|tally| tally.ending);
    if record.dropped != 1 {
        return Err(format!("its callback was dropped {} times", record.dropped));
    }
    let fired: Vec<_> = calls(record, Outcome::Fired).collect();
    let ended = tally(|tally| tally.ended).unwrap_or(NEVER);
    if let Some(run) = fired.iter().find(|run| run.begin > ended) {
        return Err(format!("{run:?}, and the runtime had ended at {ended}"));
    }
    let cancelled: Vec<_> = cancels(record).collect();
    let told = calls(record, Outcome::Cancelled).count();
    let shut_down = calls(record, Outcome::Shutdown).count();
    if let Some(event) = record.events.iter().find(|it| it.end == NEVER) {
        return Err(format!("{event:?} has no end"));
    }
    if let Some(cancel) = cancelled.first() {
        // If the cancel found a run that had begun, the record of that run may begin a little
        // later.
        let begun = usize::from(cancel.what == What::Cancel(Cancel::AfterRun));
        if fired.iter().filter(|it| it.begin > cancel.end).count() > begun {
            return Err(format!("it ran after {cancel:?}"));
        }
    }
    let was_started = !accepted(record).is_empty();
    let (times, skips) = match record.kind {
        Kind::Every(_, times) => (times as usize, false),
        kind => (1, kind == Kind::Wall(true)),
    };
    let cancels = match record.kind {
        // The cancel was accepted while the last run was under way.
        Kind::Every(..) if fired.len() >= times => 0,
        // Nobody has the answer of a cancel by the name, or by a step of the clock.
        _ if cancelled.is_empty() && told > 0 && (record.named || skips) => 1,
        _ => cancelled.len(),
    };
    let ends = Ends::new(record.tells)
        // A recurring timer ends with its last run.
        .with(Ended::Run, (fired.len() + 1).saturating_sub(times))
        .with(Ended::Cancelled, cancels)
        .with(Ended::Told, told)
        .with(Ended::Shutdown, shut_down);
    if !ends.are_right() {
        return Err(format!("it may not end like this: {ends:?}"));
    }
    // A timer that was cancelled before its start takes the outcome at its start.
    let is_begun = |it: &Event| matches!(it.what, What::Started(..) | What::Armed(..));
    let is_told = told + shut_down > 0 || record.events.iter().any(is_begun);
    if record.tells && is_told && !ends.is_over() {
        return Err(format!("it did not take the outcome: {ends:?}"));
    }
    let mut shutdowns = calls(record, Outcome::Shutdown);
    if shutdowns.any(|it| ending.is_none_or(|(begun, _)| it.begin < begun)) {
        return Err("it was told of a shutdown before there was one".into());
    }
    if !was_started && !fired.is_empty() {
        return Err("it was not started, and ran".into());
    }
    if let Kind::Every(period, times) = record.kind {
        return check_every(plan, record, &fired, period, times);
    }
    for event in &record.events {
        match event.what {
            What::Cancel(Cancel::Running)
                if fired.is_empty() && told + shut_down == 0 && !record.named =>
            {
                return Err(format!("{event:?}, and it did not run"));
            }
            What::Cancel(Cancel::AfterRun) | What::Reset(Reset::AfterRun, ..) => {
                return Err(format!("{event:?}, and it does not recur"));
            }
            What::Reset(Reset::Pending, ..) => {
                if let Some(run) = fired.iter().find(|it| it.begin < event.begin) {
                    return Err(format!("{event:?} is after {run:?}"));
                }
            }
            What::Cancel(Cancel::Over)
                if fired.iter().all(|it| it.begin > event.end)
                    && cancelled.iter().all(|it| it.begin > event.end)
                    && !record.named
                    && !matches!(record.kind, Kind::Wall(true))
                    && ending.is_none_or(|(begun, _)| begun > event.end) =>
            {
                return Err(format!("{event:?}, and it was not over"));
            }
            _ => {}
        }
    }
    let all = accepted(record);
    // The last accepted call gave the deadline. If accepted calls overlapped, any of them may
    // have been the last.
    let last: Vec<_> = all
        .iter()
        .filter(|(it, ..)| !all.iter().any(|(other, ..)| other.begin > it.end))
        .collect();
    let from = last.iter().map(|it| it.1).min().unwrap_or(NEVER);
    let to = last.iter().map(|it| it.2).max().unwrap_or(NEVER);
    let asked = last.iter().map(|(it, ..)| it.to).max().unwrap_or(0);
    let faults = sim::faults();
    // If the timer's clock was set, or went on while the machine was suspended, the lateness on
    // that clock says nothing.
    let steps = match record.kind {
        Kind::Wall(_) => faults.wall_steps + faults.suspensions,
        Kind::Boot => faults.suspensions,
        _ => 0,
    };
    if let Some(run) = fired.first() {
        let may_move = record.named && tally(|tally| tally.refreshed_by_name);
        let was_set = matches!(record.kind, Kind::Wall(_)) && steps > 0;
        if run.from < from && !was_set && !may_move {
            return Err(format!("early by {} ns", from - run.from));
        }
        let due = to.max(asked).saturating_add(record.tolerance);
        let late = run.from.saturating_sub(due);
        if steps == 0 && !may_move {
            return hold(plan, run.at - late, run.at, late);
        }
        tally(|tally| tally.waits += 1);
        return Ok(());
    }
    // The timer did not run. It is lost if nothing else is known that may have ended it.
    let is_lost = was_started
        && cancelled.is_empty()
        && told + shut_down == 0
        && !record.named
        && !matches!(record.kind, Kind::Wall(true))
        && to != NEVER;
    let seen = tally(|tally| tally.ended_at(record.kind));
    if is_lost && plan.end == End::Quiet && to.saturating_add(record.tolerance + CALM) < seen {
        return Err("it never ran".into());
    }
    if let Some((_, ended)) = ending.filter(|_| is_lost && plan.end != End::Quiet && steps == 0) {
        // This check uses the monotonic clock, from which the others always differ.
        let Some((last, ..)) = last.last() else {
            return Ok(());
        };
        let left = to.saturating_sub(last.to).saturating_add(record.tolerance);
        let due = (last.at + (last.to - last.from)).saturating_add(left);
        if lateness(plan, due, ended).is_some_and(|most| due.saturating_add(most) < ended) {
            return Err(format!(
                "it never ran, and was due at {due}, before the end at {ended}"
            ));
        }
    }
    Ok(())
}

fn check_every(
    plan: &Plan,
    record: &Record,
    fired: &[&Event],
    period: u64,
    times: u64,
) -> Result<(), String> {
    for pair in fired.windows(2) {
        if pair[1].begin < pair[0].end {
            return Err(format!("{:?} is within {:?}", pair[1], pair[0]));
        }
    }
    for event in &record.events {
        let answers = matches!(
            event.what,
            What::Cancel(Cancel::AfterRun) | What::Reset(Reset::AfterRun, ..)
        );
        // A run begins before its record, and ends after it. So the call may come a little
        // earlier or later than the record.
        let runs = fired
            .iter()
            .any(|run| run.begin <= event.end + 50_000 && event.begin <= run.end + 50_000);
        if answers && !runs {
            return Err(format!("{event:?}, and it did not run"));
        }
    }
    let [(armed, from, to)] = accepted(record)[..] else {
        return Ok(());
    };
    // Only the first run has a bound: the next is due when the one before has run, or later.
    if let Some(run) = fired.first() {
        let late = run.from.saturating_sub(to.max(armed.to));
        hold(plan, run.at - late, run.at, late)?;
    }
    // A thread that changes the period writes it before it moves the deadline, so that a run in
    // between uses it. If the last run comes in between as well, the call answers `TooLate`, but
    // these runs used the new period.
    let overtaken = record.events.iter().filter(|event| {
        matches!(event.what, What::Reset(Reset::TooLate, ..))
            && fired
                .iter()
                .any(|run| event.begin < run.begin && run.begin < event.end)
    });
    let overtaken = overtaken.map(|event| event.begin).min();
    for (nth, run) in fired.iter().enumerate() {
        if overtaken.is_some_and(|begin| begin < run.begin) {
            break;
        }
        let due = from.saturating_add(period.saturating_mul(nth as u64));
        if run.from < due {
            return Err(format!("run {nth} is early by {} ns", due - run.from));
        }
    }
    let seen = tally(|tally| tally.ended_at(record.kind));
    let is_over = fired.len() as u64 >= times || cancels(record).count() > 0;
    let last = fired.last().map_or(to.saturating_sub(period), |it| it.from);
    if plan.end == End::Quiet && !is_over && last.saturating_add(2 * period + CALM) < seen {
        return Err(format!(
            "it ran last at {last}, and was looked at until {seen}"
        ));
    }
    Ok(())
}
