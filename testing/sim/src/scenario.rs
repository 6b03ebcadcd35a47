//! Runs one seed, from the first thread to the last.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tourbillon::Runtime;
use tourbillon_sim::raw::{self as sim, below, thread};

use crate::{
    acts,
    cast::Cast,
    ledger::tally,
    life, oracle, paused,
    plan::{End, Plan, Scene},
    work,
};

const MS: u64 = 1_000_000;
/// The time for which the world goes on without faults after the horizon.
const AFTER: u64 = 150 * MS;
/// The time after which a thread or task that has not ended never will.
const PATIENCE: u64 = 30_000 * MS;

pub fn run(plan: &Plan) {
    if plan.scene == Scene::Paused {
        paused::run(plan);
        life::check();
        return;
    }
    let runtime = loop {
        // The world may refuse the thread of a helper that the builder asks for.
        match plan.builder().build() {
            Ok(runtime) => break runtime,
            Err(_) if sim::faults().refused > 0 => {}
            Err(error) => sim::fail(&format!("{error}")),
        }
    };
    let cast = Cast::new(plan.clone(), runtime.handle().clone());
    let begin = sim::now();
    let actors: Vec<_> = (0..plan.actors)
        .map(|number| {
            let cast = cast.clone();
            thread::Builder::new()
                .name(format!("actor {number}"))
                .spawn(move || {
                    let gap = (2 * cast.plan.horizon / u64::from(cast.plan.acts)).max(1);
                    for _ in 0..cast.plan.acts {
                        if below(3) > 0 {
                            sleep(below(gap));
                        }
                        if cast.over.load(Relaxed) {
                            break;
                        }
                        cast.maybe_limit();
                        match cast.plan.scene {
                            Scene::Work => work::act(&cast),
                            _ => acts::act(&cast, false),
                        }
                    }
                })
                .expect("the system has a thread")
        })
        .collect();
    match plan.end {
        End::Quiet => quiet(runtime, &cast, actors, begin),
        end => amidst(runtime, &cast, actors, end),
    }
    cast.over.store(true, Relaxed);
    take(&cast.timers).into_iter().for_each(drop);
    take(&cast.tasks).into_iter().for_each(drop);
    let (works, handle) = (take(&cast.works), cast.handle.clone());
    drop(cast);
    until("threads of the runtime are left", || sim::alive() == 1);
    work::join_all(works, &handle);
    drop(handle);
    oracle::check(plan);
    life::check();
}

fn take<T>(list: &std::sync::Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(|error| error.into_inner()))
}

fn sleep(nanos: u64) {
    thread::sleep(Duration::from_nanos(nanos));
}

/// Waits until `done` returns `true`. Fails with `what` if that takes too long.
pub fn until(what: &str, done: impl Fn() -> bool) {
    let begin = sim::now();
    while !done() {
        // Faults may keep the machine or a thread from running. The more threads there are, the
        // larger is their part of this time, which the limit excludes.
        let now = sim::now();
        if now - begin > PATIENCE + sim::disturbed(begin, now) {
            sim::fail(what);
        }
        sleep(MS);
    }
}

fn join(actors: Vec<thread::JoinHandle<()>>) {
    for actor in actors {
        if actor.join().is_err() {
            sim::fail("a thread from outside panicked");
        }
    }
}

/// Waits until all operations are done, checks the state, and then ends the runtime.
fn quiet(runtime: Runtime, cast: &Arc<Cast>, actors: Vec<thread::JoinHandle<()>>, begin: u64) {
    sleep(cast.plan.horizon.saturating_sub(sim::now() - begin));
    // No new operations. All threads that missed a wake-up are woken.
    cast.over.store(true, Relaxed);
    sim::settle();
    join(actors);
    sleep(AFTER);
    tally(|tally| tally.seen = [sim::now(), sim::boot(), sim::wall()]);
    // All due timers have run, so no name finds them. But the ledger does not know the deadlines
    // of timers that were refreshed by name.
    let (handle, most) = (&cast.handle, oracle::may_be_named());
    let named: usize = ["a", "b"].map(|name| handle.count_named(name)).iter().sum();
    if named > most && !tally(|tally| tally.refreshed_by_name) {
        sim::fail(&format!(
            "{named} timers have names, and {most} of those that have may wait"
        ));
    }
    // Cancel the recurring and the distant timers. Start the others, so that they take the outcome.
    let timers = take(&cast.timers);
    for armed in &timers {
        armed.cancel();
        armed.start();
    }
    for name in ["a", "b"] {
        let count = cast.handle.cancel_all_named(name);
        tally(|tally| tally.by_name += count as u64);
    }
    let tasks = take(&cast.tasks);
    until("tasks do not come to an end", || {
        handle.metrics().num_alive_tasks() == 0
    });
    if let Some(task) = tasks.iter().find(|task| !task.is_finished()) {
        sim::fail(&format!("{task:?} has not ended, and there are no tasks"));
    }
    sleep(5 * MS);
    drop(timers);
    let metrics = handle.metrics();
    let (armed, over) = (metrics.total().armed(), metrics.total().over());
    let waiting = crate::ledger::waiting();
    if armed != over + waiting {
        sim::fail(&format!(
            "{armed} timers were armed, {over} are over, {waiting} wait\n{metrics:#?}"
        ));
    }
    tally(|tally| tally.ending = Some((sim::moment(), sim::now())));
    drop(runtime);
    crate::ledger::ended();
}

/// Ends the runtime in the middle of all operations.
fn amidst(runtime: Runtime, cast: &Arc<Cast>, actors: Vec<thread::JoinHandle<()>>, end: End) {
    let (End::Drop(when) | End::Timeout(when) | End::Graceful(when) | End::Background(when)) = end
    else {
        return;
    };
    sleep(when);
    sim::drop_no_more();
    tally(|tally| tally.ending = Some((sim::moment(), sim::now())));
    sim::note(|| format!("{end:?}"));
    let long = Duration::from_secs(300);
    let ended = match end {
        End::Drop(_) | End::Quiet => {
            drop(runtime);
            true
        }
        End::Timeout(_) => runtime.shutdown_timeout(long),
        End::Graceful(_) => {
            // The program has to let its tasks end.
            cast.over.store(true, Relaxed);
            runtime.shutdown_graceful(long)
        }
        End::Background(_) => {
            runtime.shutdown_background();
            false
        }
    };
    if !matches!(end, End::Background(_)) {
        if !ended {
            sim::fail("the runtime did not end in time");
        }
        crate::ledger::ended();
    }
    sleep(below(MS));
    cast.over.store(true, Relaxed);
    join(actors);
}
