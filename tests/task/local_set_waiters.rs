//! Several waiters of one `LocalSet`, one of which does not return.

use std::{future::pending, pin::pin, rc::Rc, sync::mpsc, thread, time::Duration};

use crate::common::PATIENCE;
use futures_lite::future::{block_on, poll_once, zip};
use tourbillon::{
    Runtime,
    sync::Notify,
    task::{LocalSet, spawn_local, yield_now},
    time::sleep,
};

/// Runs `f` on a thread of its own. Returns `false` if `f` hangs.
fn ends(f: impl FnOnce() + Send + 'static) -> bool {
    let (through, told) = mpsc::channel();
    thread::spawn(move || {
        f();
        let _ = through.send(());
    });
    told.recv_timeout(PATIENCE).is_ok()
}

/// If a waiter leaves queued tasks and does not come back, the other waiters run them.
#[test]
fn tasks_of_an_absent_waiter_run_in_the_others() {
    assert!(ends(|| {
        let runtime = Runtime::new().unwrap();
        let set = Rc::new(LocalSet::new());
        let outer = LocalSet::new();
        outer.block_on(&runtime, async {
            let go = Rc::new(Notify::new());
            let long = set.spawn_local({
                let go = go.clone();
                async move {
                    go.notified().await;
                    for _ in 0..1_000 {
                        yield_now().await;
                    }
                }
            });
            let waits = spawn_local({
                let set = set.clone();
                async move { set.run_until(long).await.unwrap() }
            });
            let frozen = spawn_local({
                let set = set.clone();
                async move {
                    yield_now().await;
                    let mut told = false;
                    let mut f = pin!(set.run_until(async move {
                        if !std::mem::replace(&mut told, true) {
                            go.notify_one();
                        }
                        pending::<()>().await;
                    }));
                    assert!(poll_once(f.as_mut()).await.is_none());
                    // This task now waits for something else, and keeps `f` without polling it.
                    sleep(Duration::from_secs(3_600)).await;
                }
            });
            waits.await.unwrap();
            frozen.abort();
        });
    }));
}

/// A task of the set blocks its thread while it waits for another task of the set.
#[test]
fn a_waiter_inside_a_task_of_the_set_is_woken() {
    assert!(ends(|| {
        let runtime = Runtime::new().unwrap();
        let set = Rc::new(LocalSet::new());
        let inner = set.clone();
        let task = set.spawn_local(async move {
            let go = Rc::new(Notify::new());
            let other = spawn_local({
                let go = go.clone();
                async move { go.notified().await }
            });
            block_on(zip(inner.run_until(other), async {
                yield_now().await;
                go.notify_one();
            }))
            .0
            .unwrap();
        });
        set.block_on(&runtime, task).unwrap();
    }));
}
