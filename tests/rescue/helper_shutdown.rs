//! A runtime that ends also ends its helpers, whatever they do.

use std::{sync::mpsc, thread, time::Duration};

use super::helper_threads::builder;
use crate::common::{
    Gate, HOUR, PATIENCE,
    blocked::{AllBlocked, REST},
    eventually, fds,
    process::alone,
    threads,
    told::{Told, worker_number},
};
use tourbillon::{Runtime, Timer, task::yield_now};

const MS: Duration = Duration::from_millis(1);

/// The helpers' activity when the runtime is shut down.
#[derive(Clone, Copy, Debug)]
enum At {
    Reserve,
    Running,
    Blocked,
}

/// A way to end a runtime, and its name.
type ShutDown = (&'static str, fn(Runtime));

/// This holds however the runtime ends, and whatever the helpers are doing.
#[test]
fn a_runtime_with_helpers_leaves_nothing() {
    const DUE: usize = 50;
    const LATER: usize = 50;
    let shut_downs: [ShutDown; 4] = [
        ("drop", drop),
        ("timeout", |it| _ = it.shutdown_timeout(PATIENCE)),
        ("background", Runtime::shutdown_background),
        ("graceful", |it| _ = it.shutdown_graceful(5 * MS)),
    ];
    alone(|| {
        for workers in [1, 2] {
            for (name, shut_down) in shut_downs {
                for at in [At::Reserve, At::Running, At::Blocked] {
                    let before = (threads(), fds());
                    let runtime = builder(workers)
                        .helpers(1..=3)
                        .thread_keep_alive(HOUR)
                        .build()
                        .unwrap();
                    let told = Told::new();
                    let arm = |delay| {
                        let timer = Timer::after(delay).on(runtime.handle());
                        drop(timer.start_with(told.once()));
                    };
                    for _ in 0..LATER {
                        arm(HOUR);
                    }
                    let blocked = match at {
                        At::Reserve => None,
                        At::Running | At::Blocked => Some(AllBlocked::all(&runtime)),
                    };
                    let gate = blocked.as_ref().map(AllBlocked::gate);
                    for _ in 0..3 {
                        let begun = Gate::new();
                        let begins = begun.clone();
                        match at {
                            At::Reserve => continue,
                            At::Running => drop(runtime.spawn(async move {
                                begins.open();
                                loop {
                                    yield_now().await;
                                }
                            })),
                            At::Blocked => {
                                let gate = gate.clone().unwrap();
                                drop(runtime.spawn(async move {
                                    begins.open();
                                    gate.wait();
                                }));
                            }
                        }
                        begun.wait();
                    }
                    for _ in 0..DUE {
                        arm(Duration::ZERO);
                    }
                    let releasing = thread::spawn(move || {
                        thread::sleep(REST);
                        drop(blocked);
                    });
                    shut_down(runtime);
                    releasing.join().unwrap();
                    eventually("nothing is left", || (threads(), fds()) == before);
                    let [fired, cancelled, ended] = told.all();
                    assert_eq!(cancelled, 0);
                    assert_eq!(fired + ended, DUE + LATER, "{name}, {at:?}");
                    assert!(ended >= LATER, "{name}, {at:?}");
                }
            }
        }
    });
}

/// Helpers may start in the very first moment of a runtime, and therefore also in its last.
#[test]
fn a_runtime_that_ends_at_once_ends_its_helpers() {
    alone(|| {
        let before = (threads(), fds());
        for n in 0..200 {
            let runtime = builder(1 + n % 2)
                .helpers(0..=2)
                .thread_keep_alive(Duration::MAX)
                .build()
                .unwrap();
            if n % 3 == 0 {
                runtime.spawn(async {});
            }
            drop(runtime);
        }
        eventually("nothing is left", || (threads(), fds()) == before);
    });
}

#[test]
fn a_runtime_can_be_dropped_on_its_own_helper() {
    alone(|| {
        for workers in [1, 2] {
            let before = (threads(), fds());
            let runtime = builder(workers).helpers(0..=2).build().unwrap();
            let told = Told::new();
            let timer = Timer::after(HOUR).on(runtime.handle());
            drop(timer.start_with(told.once()));
            let blocked = AllBlocked::all(&runtime);
            let handle = runtime.handle().clone();
            let (sender, receiver) = mpsc::channel();
            handle.spawn(async move {
                assert_eq!(worker_number(), None, "they are blocked");
                drop(runtime);
                sender.send(()).unwrap();
            });
            receiver
                .recv_timeout(PATIENCE)
                .expect("it waits for nothing");
            drop(blocked);
            drop(handle);
            eventually("nothing is left", || (threads(), fds()) == before);
            assert_eq!(told.all(), [0, 0, 1]);
        }
    });
}
