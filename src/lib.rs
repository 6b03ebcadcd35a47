//! A work-stealing runtime for Linux servers in which every core owns its timers.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::{Runtime, time::{Instant, sleep, timeout}};
//!
//! let runtime = Runtime::new().unwrap();
//!
//! // A callback, from any thread. The handle cancels, refreshes and resets it, from any thread.
//! let idle = runtime.handle().after(Duration::from_secs(30), || println!("idle for too long"));
//! idle.refresh();
//! idle.cancel();
//!
//! // A task, with tokio's names.
//! runtime.block_on(async {
//!     let start = Instant::now();
//!     sleep(Duration::from_millis(1)).await;
//!     assert!(start.elapsed() >= Duration::from_millis(1));
//!     let reply = tourbillon::spawn(async { "pong" });
//!     assert_eq!(timeout(Duration::from_secs(1), reply).await.unwrap().unwrap(), "pong");
//! });
//! ```
//!
//! | what | where |
//! |---|---|
//! | callbacks on timers | [`after`], [`at`], [`every`], also of [`Handle`]; [`Timer`] |
//! | timer options: outcomes, names, conditions, tolerance, a later start | [`TimerBuilder`] |
//! | cancelling, and waiting for a running callback | [`Timer::cancel_and_wait`] and others |
//! | timers on the wall clock | [`Timer::at_wall`] |
//! | timers that count while the machine is suspended | [`Timer::after_boot`] |
//! | timers by name | [`Handle::cancel_named`], [`refresh_named`], [`count_named`] |
//! | tasks | [`spawn`], [`JoinHandle`], [`JoinSet`](task::JoinSet), [`task`] |
//! | tasks that need not be `Send` | [`LocalSet`], [`spawn_local`], [`spawn_pinned`] |
//! | time for tasks | [`time`]: `sleep`, `timeout`, `interval`, [`DelayQueue`](time::DelayQueue) |
//! | sockets, and any descriptor that epoll watches | [`net`], [`io::AsyncFd`] |
//! | waiting for any of several sources | [`io::select`] |
//! | values of a task | [`task_local!`] |
//! | tasks that wait for each other | [`sync::Notify`] |
//! | Unix signals | [`signal`] |
//! | options, handles, shutdown | [`runtime`] |
//! | processes, threads and pools with all cores | [`with_all_cores`](runtime::with_all_cores) |
//! | tests on a paused clock | [`time::pause`], [`time::advance`], [`time::set_wall_clock`] |
//! | async tests and `main` (feature `macros`) | `#[tourbillon::test]`, `#[tourbillon::main]` |
//! | pending timers, and metrics of the workers | [`Handle::timers`], [`Handle::metrics`] |
//! | why a timer was late: the flight recorder | [`Handle::flight_recorder`], [`flight`] |
//! | reports of jobs that block a worker | [`stall_threshold`], [`on_stall`]; feature `tracing` |
//! | servers and clients of HTTP and gRPC | the crates `tourbillon-axum`, `tourbillon-hyper` |
//! | `tokio::io`'s traits for sockets (feature `tokio-io`) | [`net`] |
//!
//! Deadlines have nanosecond resolution; timers never fire early. A worker has no periodic tick: it
//! sleeps until its next deadline, or [a little longer](runtime::Builder::timer_budget) if wake-ups
//! would cost too much. A timer that another thread arms wakes the worker only if its
//! deadline is earlier than the end of that sleep.
//!
//! [`TimerBuilder`]: timer::TimerBuilder
//! [`refresh_named`]: Handle::refresh_named
//! [`count_named`]: Handle::count_named
//! [`LocalSet`]: task::LocalSet
//! [`spawn_local`]: task::spawn_local
//! [`spawn_pinned`]: task::spawn_pinned
//! [`stall_threshold`]: runtime::Builder::stall_threshold
//! [`on_stall`]: runtime::Builder::on_stall

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Tourbillon uses epoll, eventfd and timerfd: it runs only on 64-bit Linux");

mod api;
mod clock;
mod engine;
mod error;
pub mod flight;
pub mod io;
pub mod metrics;
pub mod net;
mod reactor;
pub mod signal;
pub mod sync;
mod sys;
pub mod task;
pub mod time;
pub mod timer;
mod util;

/// The version of this library, such as `0.1.0`.
///
/// ```
/// println!("this program runs on Tourbillon {}", tourbillon::VERSION);
/// ```
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The runtime: its options, handles to it, and how to shut it down.
pub mod runtime {
    pub use crate::{
        api::{builder::Builder, cores::with_all_cores, dump, runtime::Runtime},
        engine::{
            blocking::pool::BlockingJob,
            config::{RuntimeFlavor, StoreKind},
            context::entered::EnterGuard,
            handle::{Handle, WeakHandle},
            id::Id,
            local::worker_index,
            telemetry::snapshot::worker_activity,
            watchdog::{
                report::name_job,
                stall::{RecentStall, Stall},
            },
        },
        error::is_rt_shutdown_err,
    };
}

#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub use tourbillon_macros::{main, test};

/// For the package in the folder `crates/tokio` alone.
#[cfg(feature = "facade")]
#[doc(hidden)]
pub mod facade {
    #[cfg(all(feature = "tracing", tokio_unstable))]
    pub use tracing;

    #[cfg(all(feature = "tracing", tokio_unstable))]
    pub use crate::task::traced::block_on as trace_block_on;
    #[cfg(tokio_unstable)]
    pub use crate::{
        api::facade::bucket_range, engine::facade::Measures, metrics::unstable::Buckets,
    };
    pub use crate::{
        api::facade::{LiveMetrics, spawn_local_on},
        engine::facade::{
            AroundPolls, Drivers, Options, TaskHook, TaskHooks, UnhandledPanic, count_forced_yield,
        },
        task::join_set::builder::Builder as JoinSetBuilder,
        util::budget_hooks::BudgetHooks,
    };
}
pub use crate::{
    api::runtime::Runtime,
    engine::handle::Handle,
    error::{ArmError, BuildError, GroupError, NoRuntime, SpawnError, WorkersError},
    task::{
        join::{JoinError, JoinHandle},
        spawn,
    },
    timer::{
        CancelOnDrop, Timer,
        arm::here::{after, at, every},
        many::here::{after_many, at_many},
    },
};
