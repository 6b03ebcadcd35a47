//! loom models of the protocols of `tourbillon-shards` and `tourbillon-tasks`: see `README.md`, and
//! `tests/`, a file per protocol. This library holds the parts that they share: a worker without a
//! kernel, callbacks and tasks that count, and the bounds.
//!
//! Empty unless built with `--cfg loom`.

#![cfg(loom)]

mod event_loop;
mod executor;
mod kernel;
mod probe;
mod task;
mod trace;
mod watch;
mod worker;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc as Plain,
        atomic::{AtomicUsize as PlainUsize, Ordering},
    },
    time::{Duration, Instant},
};

use loom::model::Builder;

pub use self::{
    event_loop::{EventLoop, arm_many, cancels, due, expire, park, resets, run},
    executor::{AtDrop, Executor, Meta, Queued, Tally, counted, run_queued, spawned},
    kernel::{EventFd, TimerFd},
    probe::Probe,
    task::{Task, wait_for_the_end},
    watch::{
        AHEAD, SOON, answer, answer_rarely, answer_without_rescue, assert_called, assert_dismissed,
        assert_set, watched, watched_when_called,
    },
    worker::{Home, SetsAlarm, Worker, close, shard, tell, tell_one},
};

/// The modelled clock does not pass this time by itself. A worker that sleeps until a later time
/// sleeps until it is woken.
pub const HORIZON: u64 = 100;

/// Explores `body`, with at most `preemptions` switches away from a thread that could continue
/// (`None`: no limit).
///
/// `LOOM_MAX_PREEMPTIONS` replaces the bound and `LOOM_MORE_PREEMPTIONS` is added to it. A model
/// that has run for `LOOM_MAX_MINUTES` stops, and its line says that it has not ended. It passes,
/// so CI sets no such limit.
///
/// If an execution fails, its number is printed. With `LOOM_TRACE=n` each step of the n-th
/// execution is printed.
pub fn model(name: &str, preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let number = |key: &str| -> Option<usize> {
        let value = std::env::var(key).ok()?;
        Some(value.parse().expect("a bound is a number"))
    };
    let more = number("LOOM_MORE_PREEMPTIONS").unwrap_or(0);
    let mut builder = Builder::new();
    builder.preemption_bound =
        number("LOOM_MAX_PREEMPTIONS").or(preemptions.map(|bound| bound + more));
    builder.max_duration =
        number("LOOM_MAX_MINUTES").map(|minutes| Duration::from_secs(60 * minutes as u64));
    builder.max_permutations = None;
    builder.max_branches = 20_000;

    let executions = Plain::new(PlainUsize::new(0));
    let _trace = number("LOOM_TRACE").map(|shown| trace::begin(executions.clone(), shown));
    let begin = Instant::now();
    let bound = builder.preemption_bound;
    let bound = bound.map_or("none".to_owned(), |bound| bound.to_string());
    let checked = catch_unwind(AssertUnwindSafe(|| {
        builder.check({
            let executions = executions.clone();
            move || {
                executions.fetch_add(1, Ordering::Relaxed);
                body();
            }
        });
    }));
    let executions = executions.load(Ordering::Relaxed);
    let elapsed = begin.elapsed();
    let seconds = elapsed.as_secs_f64();
    if let Err(panic) = checked {
        println!("{name}: bound {bound}, execution {executions} failed, {seconds:.1} s");
        resume_unwind(panic);
    }
    let ended = builder.max_duration.is_none_or(|limit| elapsed < limit);
    let remark = if ended { "" } else { ", not ended" };
    println!("{name}: bound {bound}, {executions} executions, {seconds:.1} s{remark}");
    assert!(executions > 1, "a model with one execution shows nothing");
}

/// Calls [`model()`] with the name of the calling function.
#[macro_export]
macro_rules! model {
    ($preemptions:expr, $body:expr) => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here).trim_end_matches("::here");
        $crate::model(name, $preemptions, $body)
    }};
}
