//! A function that panics on misuse names the line of its caller.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Mutex,
    time::{Duration, SystemTime},
};

use crate::common::{alarm, on_worker, process::alone, runtime};
use tourbillon::{
    Handle, Timer,
    task::{self, JoinSet, LocalSet},
    time::{self, BootInstant, DelayQueue, Instant},
};

/// The file and line of the last panic.
static LAST: Mutex<Option<(String, u32)>> = Mutex::new(None);

/// Calls `f`, which panics, and returns the file and line that the panic names.
fn place_of<R>(f: impl FnOnce() -> R) -> (String, u32) {
    *LAST.lock().unwrap() = None;
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "it panics");
    LAST.lock().unwrap().take().expect("the hook was called")
}

/// Checks that each call panics and names its own line. The calls stand on separate lines of this
/// file, so each line must be later than the line of the call before.
macro_rules! names_its_caller {
    ($($call:expr;)*) => {
        let mut last = line!();
        $(
            let (file, line) = place_of(|| $call);
            let call = stringify!($call);
            assert_eq!(file, file!(), "{call} names line {line} of it");
            assert!(last < line, "{call} names line {line}");
            last = line;
        )*
        _ = last;
    };
}

/// One test with a process of its own, because the panic hook belongs to the process.
#[test]
fn misuse_names_the_line_of_the_caller() {
    alone(|| {
        let _alarm = alarm();
        let before = take_hook();
        set_hook(Box::new(|info| {
            let place = info.location().unwrap();
            *LAST.lock().unwrap() = Some((place.file().to_owned(), place.line()));
        }));
        let ran = catch_unwind(|| {
            outside_of_a_runtime();
            where_something_is_missing();
            on_a_worker();
        });
        let last = LAST.lock().unwrap().clone();
        set_hook(before);
        if let Err(panic) = ran {
            panic!("{} at {last:?}", crate::common::message(&*panic));
        }
    });
}

fn outside_of_a_runtime() {
    let soon = Duration::from_millis(1);
    let mut set = JoinSet::new();
    names_its_caller! {
        Handle::current();
        tourbillon::spawn(async {});
        tourbillon::after(soon, || ());
        tourbillon::at(Instant::now(), || ());
        tourbillon::every(soon, || ());
        Timer::after(soon).start(|| ());
        Timer::after(soon).start_with(|_| ());
        Timer::every(soon).manual().start(|| ());
        Timer::at_wall(SystemTime::now()).manual().start_with(|_| ());
        Timer::at_boot(BootInstant::now()).start(|| ());
        task::spawn_blocking(|| ());
        task::spawn_pinned(|| async {});
        task::spawn_local(async {});
        task::id();
        set.spawn(async {});
        set.spawn_blocking(|| ());
        set.spawn_local(async {});
        time::pause();
        time::resume();
        time::set_wall_clock(SystemTime::now());
    }
}

fn where_something_is_missing() {
    let runtime = runtime(1);
    let handle = runtime.handle();
    let soon = Duration::from_millis(1);
    let mut queue = DelayQueue::new();
    let key = queue.insert(1, soon);
    queue.remove(&key);
    let task = runtime.spawn(std::future::pending::<()>());
    task.abort();
    let error = runtime.block_on(task).unwrap_err();
    names_its_caller! {
        Timer::after(soon).on(handle).on_worker(7).start(|| ());
        handle.metrics().worker_park_count(7);
        queue.remove(&key);
        queue.reset(&key, soon);
        queue.reset_at(&key, Instant::now());
        queue.deadline(&key);
        error.into_panic();
    }
}

fn on_a_worker() {
    let first = runtime(1);
    on_worker(&first, || {
        let other = runtime(1);
        names_its_caller! {
            other.block_on(async {});
            other.handle().block_on(async {});
            LocalSet::new().block_on(&other, async {});
        }
    });
}
