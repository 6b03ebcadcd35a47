//! A runtime with something to show: local and remote timers, sleeps, cancellations, refreshes, and
//! a job that blocks its worker.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tourbillon::{Handle, Runtime, runtime::Builder, task::Group, time::sleep};
use tourbillon_inspect::Inspector;

use crate::{
    client::{get, inspect},
    clients::SetAtEnd,
    common::eventually,
};

/// How long a job may take before it is a stall.
const THRESHOLD: Duration = Duration::from_millis(20);

/// A runtime of two workers, and its page.
pub struct Watched {
    pub runtime: Runtime,
    pub inspector: Inspector,
}

impl Watched {
    pub fn start() -> Self {
        let runtime = Builder::new()
            .worker_threads(2)
            .stall_threshold(THRESHOLD)
            .build()
            .unwrap();
        let inspector = inspect(runtime.handle());
        Self { runtime, inspector }
    }

    pub fn addr(&self) -> SocketAddr {
        self.inspector.local_addr()
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Runs `body` under load. Returns when all that the load armed is over.
    pub fn under_load<R>(&self, body: impl FnOnce() -> R) -> R {
        let handle = self.runtime.handle();
        let stop = Arc::new(AtomicBool::new(false));
        let answer = thread::scope(|scope| {
            let _stop = SetAtEnd(&stop);
            scope.spawn(|| arm_outside(handle, &stop));
            for _ in 0..2 {
                let stop = stop.clone();
                handle.spawn(async move { arm_inside(&stop).await });
            }
            body()
        });
        eventually("all timers are over", || {
            let metrics = self.runtime.metrics();
            metrics.num_alive_tasks() == 0
                && metrics.workers().iter().all(|worker| worker.pending() == 0)
        });
        answer
    }

    /// Returns a counter of `/metrics`, summed over all labels that begin with `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let text = get(self.addr(), "/metrics").body;
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        let values = samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
        let values: Vec<f64> = values.collect();
        assert!(!values.is_empty(), "no {name} in {text}");
        // Counts are whole numbers, far below 2^53.
        values.iter().sum::<f64>() as u64
    }
}

/// Arms callbacks from a remote thread: some fire, some are cancelled, some refreshed.
fn arm_outside(handle: &Handle, stop: &AtomicBool) {
    for turn in 0_u64.. {
        if stop.load(Relaxed) {
            return;
        }
        let timers: Vec<_> = (0..20)
            .map(|i| handle.after(Duration::from_millis(1 + (turn + i) % 9), || ()))
            .collect();
        thread::sleep(Duration::from_millis(2));
        for (i, timer) in timers.iter().enumerate() {
            match i % 5 {
                0 => _ = timer.cancel(),
                1 => _ = timer.refresh(),
                _ => {}
            }
        }
    }
}

/// Sleeps, and arms callbacks, as a task.
async fn arm_inside(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        for i in 0..20 {
            drop(tourbillon::after(Duration::from_micros(300 * i), || ()));
        }
        sleep(Duration::from_millis(3)).await;
    }
}

/// Blocks a worker for longer than the stall threshold, and waits until the stall is reported.
pub fn cause_a_stall(runtime: &Runtime) {
    cause_a_stall_by(runtime, || drop(runtime.spawn(the_culprit(String::new()))));
}

/// Does so by a task of a group.
pub fn cause_a_stall_of(runtime: &Runtime, group: &Group) {
    cause_a_stall_by(runtime, || drop(group.spawn(the_culprit(String::new()))));
}

/// Waits until the stall is reported that a task causes which `spawn` spawns.
fn cause_a_stall_by(runtime: &Runtime, spawn: impl FnOnce()) {
    let before = runtime.metrics().total().stalls();
    spawn();
    eventually("the stall is reported", || {
        runtime.metrics().total().stalls() > before
    });
}

/// The page has to name this job, which blocks its worker. The name contains characters that a
/// browser would take for an element.
async fn the_culprit<T>(_: T) {
    thread::sleep(5 * THRESHOLD);
}
