//! loom models of the protocols of `tourbillon-shards` and `tourbillon-tasks`: see `README.md`, and
//! `tests/`, a file per protocol. This library holds the parts that they share: a worker without a
//! kernel, and callbacks and tasks that count.
//!
//! Empty unless built with `--cfg loom`.

#![cfg(loom)]

mod crew;
mod event_loop;
mod executor;
mod kernel;
mod probe;
mod task;
mod watch;
mod worker;

pub use tourbillon_loom::model;

pub use self::{
    crew::Crew,
    event_loop::{EventLoop, arm_many, cancels, due, expire, park, park_in_reserve, resets, run},
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
