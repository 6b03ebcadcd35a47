//! Tasks, and jobs that may block.

use std::{sync::Arc, time::Duration};

use tourbillon::{
    task::yield_now,
    time::{sleep, timeout},
};
use tourbillon_sim::raw::{self as sim, below};

use crate::{
    acts::act,
    cast::Cast,
    ledger::{Job, tally},
    oracle,
};

const MS: u64 = 1_000_000;

/// Counts a future or a job as gone when it is dropped.
struct Gone(bool);

impl Drop for Gone {
    fn drop(&mut self) {
        tally(|tally| match self.0 {
            true => tally.tasks_gone += 1,
            false => tally.blocking_gone += 1,
        });
    }
}

/// Checks that a wait of `nanos`, which ends now, is neither early nor too late. The wait began
/// between `from` and `to`.
fn woken(cast: &Cast, from: u64, to: u64, nanos: u64, what: &str) {
    let at = sim::now();
    if tally(|tally| tally.ending.is_some()) {
        // A wait also ends with its runtime.
        return;
    }
    if at < from.saturating_add(nanos) {
        let early = from + nanos - at;
        sim::fail(&format!(
            "a {what} is over {early} ns early\n{:?}",
            cast.plan
        ));
    }
    let due = to + nanos;
    let late = at.saturating_sub(due);
    if let Err(why) = oracle::hold(&cast.plan, due, at, late) {
        sim::fail(&format!(
            "a {what} is {why}\n{:?}\n{:?}",
            cast.plan,
            sim::faults()
        ));
    }
}

pub fn spawn(cast: &Arc<Cast>) {
    tally(|tally| tally.tasks += 1);
    let (gone, cast_of) = (Gone(true), cast.clone());
    let task = cast.spawn(async move {
        let (gone, cast) = (gone, cast_of);
        let rounds = 1 + below(5);
        for _ in 0..rounds {
            round(&cast).await;
        }
        tally(|tally| tally.tasks_through += 1);
        drop(gone);
        rounds
    });
    cast.keep_task(task);
}

async fn round(cast: &Arc<Cast>) {
    match below(8) {
        0..3 => {
            let nanos = below(10 * MS);
            let from = sim::now();
            let wait = sleep(Duration::from_nanos(nanos));
            // Its deadline counts from when it was made.
            let to = sim::now();
            wait.await;
            woken(cast, from, to, nanos, "sleep");
            tally(|tally| tally.sleeps += 1);
        }
        3..5 => {
            let nanos = below(8 * MS);
            let from = sim::now();
            let limited = timeout(Duration::from_nanos(nanos), cast.notify.notified());
            let to = sim::now();
            if limited.await.is_err() {
                woken(cast, from, to, nanos, "timeout");
            }
            tally(|tally| tally.timeouts += 1);
        }
        5 => yield_now().await,
        6 => cast.maybe_block(),
        _ => {
            act(cast, true);
            if below(1_000) < u64::from(cast.plan.panics) {
                std::panic::panic_any(crate::Meant);
            }
        }
    }
}

pub fn spawn_blocking(cast: &Arc<Cast>) {
    let number = tally(|tally| {
        let (taken, ran) = (None, None);
        tally.blocking.push(Job { taken, ran });
        tally.blocking.len() - 1
    });
    let (gone, cast_of) = (Gone(false), cast.clone());
    let task = cast.handle.spawn_blocking(move || {
        let (gone, cast) = (gone, cast_of);
        let begins = sim::moment();
        tally(|tally| tally.blocking[number].ran = Some(begins));
        sim::block(below(5 * MS));
        if below(2) == 0 {
            act(&cast, true);
        }
        drop(gone);
        0
    });
    let taken = (sim::moment(), task.id());
    tally(|tally| tally.blocking[number].taken = Some(taken));
    cast.keep_task(task);
}
