//! The companion ends after its runtime, and within the same time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{Runtime, tokio::Compat};

use crate::{
    common::{process::alone, threads_named},
    with_companion,
};

/// Counts its values that have been dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_drop_ends_the_tasks_of_both() {
    let runtime = with_companion();
    let dropped = Arc::new(AtomicUsize::new(0));
    let task = |dropped: Dropped| async move {
        let _dropped = dropped;
        std::future::pending::<()>().await;
    };
    runtime.spawn(task(Dropped(dropped.clone())));
    let on_tokio = task(Dropped(dropped.clone()));
    runtime.block_on(async { drop(tokio::spawn(on_tokio)) });
    drop(runtime);
    assert_eq!(dropped.load(SeqCst), 2);
}

#[test]
fn a_blocking_job_that_was_accepted_uses_tokio_until_it_ends() {
    for is_dropped in [true, false] {
        let runtime = with_companion();
        let (go, wait) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        runtime.spawn_blocking(move || {
            let companion = tokio::runtime::Handle::current();
            wait.recv().unwrap_err();
            let slept = companion.block_on(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                tokio::spawn(async { 7 }).await.unwrap()
            });
            sender.send(slept).unwrap();
        });
        if is_dropped {
            let dropping = thread::spawn(move || drop(runtime));
            thread::sleep(Duration::from_millis(20));
            drop(go);
            dropping.join().unwrap();
        } else {
            runtime.shutdown_background();
            drop(go);
        }
        assert_eq!(receiver.recv(), Ok(7));
    }
}

#[test]
fn a_timeout_holds_for_both() {
    let runtime = with_companion();
    let (sender, receiver) = mpsc::channel::<()>();
    runtime.block_on(async {
        tokio::task::spawn_blocking(move || receiver.recv());
    });
    // By now the job has probably begun. It does not end.
    thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    assert!(!runtime.shutdown_timeout(Duration::from_millis(30)));
    assert!(start.elapsed() >= Duration::from_millis(30));
    drop(sender);
}

#[test]
fn a_shutdown_in_time_says_so() {
    let runtime = with_companion();
    runtime.block_on(async { tokio::spawn(async {}).await.unwrap() });
    assert!(runtime.shutdown_timeout(Duration::from_secs(60)));
}

#[test]
fn sleeps_of_tokio_tasks_do_not_hold_up_the_end() {
    let runtime = with_companion();
    runtime.block_on(async {
        tokio::spawn(tourbillon::time::sleep(Duration::from_secs(3600)));
        tokio::task::spawn_blocking(|| {
            let sleep = tourbillon::time::sleep(Duration::from_secs(3600));
            tourbillon::Handle::current().block_on(sleep);
        });
        tokio::task::yield_now().await;
    });
    drop(runtime);
}

#[test]
fn a_runtime_may_end_in_a_task_of_tokio() {
    // The task belongs to a runtime of tokio that the program has built.
    let outer = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    outer.block_on(async {
        let runtime = with_companion();
        runtime.spawn(async {}).await.unwrap();
        drop(runtime);
    });
    // The task belongs to the runtime's own companion. The drop waits for nothing there.
    let runtime = with_companion();
    let (sender, receiver) = mpsc::channel();
    let companion = runtime.block_on(async { tokio::runtime::Handle::current() });
    companion.spawn(async move {
        drop(runtime);
        sender.send(()).unwrap();
    });
    receiver.recv().unwrap();
}

#[test]
fn a_runtime_may_end_in_its_own_task() {
    let runtime = Arc::new(with_companion());
    let (sender, receiver) = mpsc::channel();
    let own = runtime.clone();
    let is_last = Arc::new(AtomicBool::new(false));
    let may_drop = is_last.clone();
    runtime.spawn(async move {
        while !may_drop.load(SeqCst) {
            tourbillon::task::yield_now().await;
        }
        drop(own);
        sender.send(()).unwrap();
    });
    drop(runtime);
    is_last.store(true, SeqCst);
    receiver.recv().unwrap();
}

#[test]
fn no_thread_of_the_companion_remains() {
    alone(|| {
        for use_compat in [false, true] {
            let runtime = if use_compat {
                Runtime::new().unwrap()
            } else {
                with_companion()
            };
            runtime.block_on(Compat::new(async {
                tokio::task::spawn_blocking(|| ()).await.unwrap();
            }));
            assert!(threads_named("tourbillon-toki") > 0);
            drop(runtime);
            assert_eq!(threads_named("tourbillon-toki"), 0);
        }
    });
}
