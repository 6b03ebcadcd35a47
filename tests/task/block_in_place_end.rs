//! Runtimes that end while a worker is in `block_in_place`: other runtimes that the worker drops
//! there, and its own.

use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{REST, in_a_task, short_lived},
    eventually, fds,
    process::alone,
    runtime,
    told::Told,
};
use tourbillon::{
    Handle, Timer, net::UdpSocket, runtime::Builder, task::block_in_place, time::sleep,
    timer::Outcome,
};

#[test]
fn repeated_calls_leave_no_threads() {
    const TIMES: usize = 500;
    alone(|| {
        for workers in [1, 2] {
            let before = (crate::common::threads(), fds());
            let runtime = short_lived(workers);
            let idle = (crate::common::threads(), fds());
            let tasks: Vec<_> = (0..2 * workers)
                .map(|_| {
                    runtime.spawn(async move {
                        for n in 0..TIMES {
                            assert_eq!(block_in_place(|| n), n);
                            tourbillon::task::yield_now().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
            // A helper may run one of the tasks, and announce that it blocks, too.
            assert!(runtime.metrics().num_helpers() <= 2 * workers);
            eventually("the helpers have ended", || {
                runtime.metrics().num_helpers() == 0 && (crate::common::threads(), fds()) == idle
            });
            drop(runtime);
            eventually("nothing is left", || {
                (crate::common::threads(), fds()) == before
            });
        }
    });
}

#[test]
fn runtimes_can_be_dropped_inside() {
    alone(|| {
        for workers in [1, 2] {
            let before = (crate::common::threads(), fds());
            let told = Told::new();
            let outer = runtime(workers);
            // The drop of another runtime waits for it, because the thread is no worker during the
            // call.
            let other = runtime(1);
            let begun = Gate::new();
            let (open, told_late) = (begun.clone(), told.clone());
            other.handle().after(Duration::ZERO, move || {
                open.open();
                thread::sleep(REST);
                told_late.note(Outcome::Fired);
            });
            begun.wait();
            let after = told.clone();
            in_a_task(&outer, move || {
                block_in_place(|| drop(other));
                assert_eq!(after.count(Outcome::Fired), 1, "it was waited for");
            });
            // The drop of the worker's own runtime does not wait, because the worker would wait
            // for itself.
            let timer = Timer::after(HOUR).on(outer.handle());
            drop(timer.start_with(told.once()));
            let (sender, receiver) = mpsc::channel();
            let handle = outer.handle().clone();
            handle.spawn(async move {
                block_in_place(|| drop(outer));
                sender.send(()).unwrap();
            });
            receiver
                .recv_timeout(PATIENCE)
                .expect("it does not wait for itself");
            drop(handle);
            eventually("nothing is left", || {
                (crate::common::threads(), fds()) == before
            });
            assert_eq!(told.all(), [1, 0, 1]);
        }
    });
}

/// A helper ends the timers and the queued work at once. The shutdown waits for the blocked calls,
/// up to its timeout.
#[test]
fn a_runtime_can_be_shut_down_while_a_worker_blocks() {
    alone(|| {
        for workers in [1, 2] {
            let before = (crate::common::threads(), fds());
            let runtime = runtime(workers);
            let (told, release) = (Told::new(), Gate::new());
            for _ in 0..100 {
                let timer = Timer::after(HOUR).on(runtime.handle());
                drop(timer.start_with(told.once()));
            }
            for _ in 0..workers {
                let (begun, gate) = (Gate::new(), release.clone());
                let open = begun.clone();
                runtime.spawn(async move {
                    block_in_place(|| {
                        open.open();
                        gate.wait();
                    });
                });
                begun.wait();
            }
            assert!(!runtime.shutdown_timeout(REST), "they block");
            eventually("they are told by a helper", || told.all() == [0, 0, 100]);
            release.open();
            eventually("nothing is left", || {
                (crate::common::threads(), fds()) == before
            });
            assert_eq!(told.all(), [0, 0, 100]);
        }
    });
}

/// A wait for a task, a timer or a socket inside the call ends with the runtime. The shutdown
/// drops the task, and only the waiting worker is left to do that.
#[test]
fn a_wait_inside_ends_with_the_runtime() {
    let _alarm = alarm();
    for (workers, helpers) in [(1, 0), (1, 2), (2, 0), (2, 1)] {
        for waits_for in 0..3 {
            let runtime = Builder::new()
                .worker_threads(workers)
                .helpers(0..=helpers)
                .build()
                .unwrap();
            let (sender, ended) = mpsc::channel();
            let all = Arc::new(Barrier::new(workers + 1));
            for _ in 0..workers {
                let (sender, all) = (sender.clone(), all.clone());
                runtime.spawn(async move {
                    let handle = Handle::current();
                    let task = handle.spawn(std::future::pending::<()>());
                    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    block_in_place(|| {
                        all.wait();
                        let is_over = handle.block_on(async {
                            match waits_for {
                                0 => task.await.is_err(),
                                1 => {
                                    sleep(HOUR).await;
                                    true
                                }
                                _ => socket.recv(&mut [0]).await.is_err(),
                            }
                        });
                        let _ = sender.send(is_over);
                    });
                });
            }
            all.wait();
            drop(runtime);
            for _ in 0..workers {
                assert!(ended.recv_timeout(PATIENCE).unwrap());
            }
        }
    }
}
