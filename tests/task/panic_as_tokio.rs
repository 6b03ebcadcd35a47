//! A panic in a future or a destructor ends its task as in tokio. The tests run the same programs
//! on both runtimes. Where tokio aborts the process, Tourbillon does not.

use std::{
    future::{self, Future},
    pin::Pin,
    sync::mpsc::{Receiver, Sender, channel},
    task::{Context, Poll},
    thread,
};

use crate::common::{alarm, message, panics::panics, process::alone, runtime};
use futures_lite::future::block_on;

/// A future that panics, is ready or waits when it is polled. Its destructor reports whether the
/// thread is panicking, and may panic.
struct Bomb {
    polled: Polled,
    panics_in_drop: bool,
    dropped: Sender<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    Panics,
    IsReady,
    Waits,
}

impl Bomb {
    fn new(polled: Polled, panics_in_drop: bool) -> (Self, Receiver<bool>) {
        let (dropped, receiver) = channel();
        let bomb = Self {
            polled,
            panics_in_drop,
            dropped,
        };
        (bomb, receiver)
    }
}

impl Future for Bomb {
    type Output = i32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<i32> {
        match self.polled {
            Polled::Panics => panic!("in poll"),
            Polled::IsReady => Poll::Ready(5),
            Polled::Waits => Poll::Pending,
        }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        _ = self.dropped.send(thread::panicking());
        if self.panics_in_drop {
            panic!("in drop");
        }
    }
}

/// How a task ended.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Through(i32),
    Cancelled,
    Panicked(String),
}

/// What ends a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedBy {
    Itself,
    /// `abort`, after the first poll.
    Abort,
    /// `abort`, before the first poll.
    AbortAtOnce,
    /// The end of its runtime.
    Shutdown,
}

/// Defines a module with the programs for one runtime, from the path of its crate and an
/// expression that builds it.
macro_rules! programs {
    ($name:ident, $runtime:ident, $build:expr) => {
        mod $name {
            use $runtime::task::{JoinError, JoinHandle, LocalSet, try_id};

            use super::*;

            fn came(result: Result<i32, JoinError>) -> Came {
                match result {
                    Ok(output) => Came::Through(output),
                    Err(error) if error.is_cancelled() => Came::Cancelled,
                    Err(error) => Came::Panicked(message(&*error.into_panic()).to_owned()),
                }
            }

            /// Returns how the task with the bomb ended, and whether the bomb was dropped in a
            /// panic.
            pub fn bomb(polled: Polled, panics_in_drop: bool, by: EndedBy) -> (Came, bool) {
                let (bomb, dropped) = Bomb::new(polled, panics_in_drop);
                let runtime = $build;
                let handle: JoinHandle<i32> = match by {
                    EndedBy::AbortAtOnce => runtime
                        .block_on(async {
                            // This runs on the only worker, which runs nothing else until it
                            // yields.
                            let spawns = $runtime::task::spawn(async {
                                let handle = $runtime::task::spawn(bomb);
                                handle.abort();
                                Some(handle)
                            });
                            spawns.await.unwrap()
                        })
                        .unwrap(),
                    _ => runtime.spawn(bomb),
                };
                // The worker polls tasks in the order of their spawns, so it has polled the bomb
                // after this.
                _ = runtime.block_on(runtime.spawn(async {}));
                match by {
                    EndedBy::Abort => handle.abort(),
                    EndedBy::Shutdown => drop(runtime),
                    EndedBy::Itself | EndedBy::AbortAtOnce => {}
                }
                (came(block_on(handle)), dropped.recv().unwrap())
            }

            /// Does what [`bomb`] does with a task of a `LocalSet`. The task is aborted, or
            /// dropped with the set.
            pub fn local(polled: Polled, panics_in_drop: bool, by: EndedBy) -> (Came, bool) {
                let (bomb, dropped) = Bomb::new(polled, panics_in_drop);
                let runtime = $build;
                let set = LocalSet::new();
                let handle = set.spawn_local(bomb);
                runtime.block_on(set.run_until(async {
                    if by == EndedBy::AbortAtOnce {
                        handle.abort();
                    }
                    $runtime::task::yield_now().await;
                }));
                match by {
                    EndedBy::Abort => {
                        handle.abort();
                        runtime.block_on(set);
                    }
                    EndedBy::Shutdown => drop(set),
                    _ => runtime.block_on(set.run_until($runtime::task::yield_now())),
                }
                (came(block_on(handle)), dropped.recv().unwrap())
            }

            /// Returns whether the output is dropped as a part of its task: if the handle is
            /// dropped before the end of the task, and after it.
            pub fn output_is_dropped_in_its_task() -> [bool; 2] {
                struct Output(Sender<bool>);
                impl Drop for Output {
                    fn drop(&mut self) {
                        _ = self.0.send(try_id().is_some());
                    }
                }
                let runtime = $build;
                let (sender, receiver) = channel();
                let (go, gone) = channel::<()>();
                let output = Output(sender.clone());
                let handle = runtime.spawn(async move {
                    _ = gone.recv();
                    output
                });
                drop(handle);
                drop(go);
                let before = receiver.recv().unwrap();
                let output = Output(sender);
                let handle = runtime.spawn(async move { output });
                while !handle.is_finished() {
                    thread::yield_now();
                }
                drop(handle);
                [before, receiver.recv().unwrap()]
            }
        }
    };
}

programs!(ours, tourbillon, runtime(1));
programs!(
    tokios,
    tokio,
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap()
);

const ENDS: [(Polled, EndedBy); 5] = [
    (Polled::Panics, EndedBy::Itself),
    (Polled::IsReady, EndedBy::Itself),
    (Polled::Waits, EndedBy::Abort),
    (Polled::Waits, EndedBy::AbortAtOnce),
    (Polled::Waits, EndedBy::Shutdown),
];

#[test]
fn a_panicking_task_ends_as_in_tokio() {
    let _alarm = alarm();
    for (polled, by) in ENDS {
        for panics_in_drop in [false, true] {
            if panics_in_drop && polled == Polled::Panics {
                // tokio aborts the process in this case. A test below covers Tourbillon.
                continue;
            }
            let what = format!("{polled:?}, ended by {by:?}, panics in drop: {panics_in_drop}");
            let theirs = tokios::bomb(polled, panics_in_drop, by);
            assert_eq!(ours::bomb(polled, panics_in_drop, by), theirs, "{what}");
            let theirs = tokios::local(polled, panics_in_drop, by);
            let local = ours::local(polled, panics_in_drop, by);
            assert_eq!(local, theirs, "in a set: {what}");
        }
    }
}

#[test]
fn a_destructor_sees_that_its_future_is_panicking() {
    let _alarm = alarm();
    let (came, in_panic) = ours::bomb(Polled::Panics, false, EndedBy::Itself);
    assert_eq!(came, Came::Panicked("in poll".to_owned()));
    assert!(in_panic);
}

#[test]
fn a_destructor_panic_after_an_abort_is_returned_by_the_handle() {
    let _alarm = alarm();
    for by in [EndedBy::Abort, EndedBy::AbortAtOnce, EndedBy::Shutdown] {
        let (came, in_panic) = ours::bomb(Polled::Waits, true, by);
        assert_eq!(came, Came::Panicked("in drop".to_owned()), "{by:?}");
        assert!(!in_panic);
    }
}

#[test]
fn a_destructor_panic_during_a_future_panic_does_not_end_the_process() {
    alone(|| {
        for run in [ours::bomb, ours::local] {
            let (came, in_panic) = run(Polled::Panics, true, EndedBy::Itself);
            assert_eq!(came, Came::Panicked("in poll".to_owned()), "the first");
            assert!(in_panic);
        }
        let runtime = runtime(1);
        let (bomb, _dropped) = Bomb::new(Polled::Panics, true);
        assert!(runtime.block_on(runtime.spawn(bomb)).is_err());
        assert_eq!(panics(&runtime), 2, "both are counted");
        let lives = runtime.spawn(future::ready(7));
        assert_eq!(runtime.block_on(lives).unwrap(), 7);
    });
}

#[test]
fn an_unclaimed_output_is_dropped_as_a_part_of_its_task() {
    let _alarm = alarm();
    let theirs = tokios::output_is_dropped_in_its_task();
    assert_eq!(ours::output_is_dropped_in_its_task(), theirs);
}
