//! A `JoinSet` that is dropped, shut down or detached, tasks that are aborted, and destructors that
//! panic.

use std::{
    future::{self},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Poll},
    thread,
};

use crate::common::{
    Drops, Gate, PATIENCE, alarm,
    event::Event,
    eventually, message, on_worker,
    panics::{assert_alive, panics},
    runtime,
    woken::Woken,
};
use futures_lite::future::block_on;
use tourbillon::task::{JoinSet, yield_now};

/// Panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a destructor");
    }
}

#[test]
fn a_task_can_be_aborted_before_during_and_after_its_run() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let mut set = JoinSet::new();
    let (started, release) = (Gate::new(), Gate::new());
    let runs = {
        let (started, release) = (started.clone(), release.clone());
        let run = async move {
            started.open();
            release.wait();
            yield_now().await;
            unreachable!("it was aborted");
        };
        set.spawn_on(run, runtime.handle())
    };
    started.wait();
    let drops = Drops::new();
    let token = drops.token();
    let queued = set.spawn_on(
        async move {
            let _token = token;
            unreachable!("it was aborted");
        },
        runtime.handle(),
    );
    queued.abort();
    runs.abort();
    assert!(!runs.is_finished() && !queued.is_finished());
    assert!(set.try_join_next().is_none());
    release.open();
    for _ in 0..2 {
        let error = block_on(set.join_next()).unwrap().unwrap_err();
        assert!(error.is_cancelled());
    }
    assert_eq!(drops.count(), 1);
    let ended = set.spawn_on(async { 9 }, runtime.handle());
    eventually("it has ended", || ended.is_finished());
    ended.abort();
    set.abort_all();
    assert_eq!(block_on(set.join_next()).unwrap().unwrap(), 9);
    assert_eq!(panics(&runtime), 0);
}

#[test]
fn a_dropped_set_aborts_all_its_tasks() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (drops, results) = (Drops::new(), Drops::new());
    let (started, release) = (Gate::new(), Gate::new());
    let mut set = JoinSet::new();
    for n in 0..300 {
        let (token, result) = (drops.token(), results.token());
        let (started, release) = (started.clone(), release.clone());
        let work = async move {
            let _token = token;
            match n {
                0 => {
                    started.open();
                    release.wait();
                }
                _ if n % 3 == 0 => future::pending().await,
                _ if n % 3 == 1 => {
                    while Arc::new(n) != Arc::new(0) {
                        yield_now().await;
                    }
                }
                _ => {}
            }
            result
        };
        set.spawn_on(work, runtime.handle());
    }
    started.wait();
    drop(set);
    release.open();
    eventually("all are dropped", || drops.count() == 300);
    eventually("results, too", || results.count() == 300);
    assert_alive(&runtime);
}

#[test]
fn a_shutdown_wakes_a_waiter_outside_of_the_runtime() {
    let _alarm = alarm();
    for waits_in_runtime in [false, true] {
        let (waiting, ended) = (runtime(1), runtime(2));
        let mut set = JoinSet::new();
        for _ in 0..100 {
            set.spawn_on(future::pending::<()>(), ended.handle());
        }
        let handle = ended.handle().clone();
        let asked = Gate::new();
        let wait = {
            let asked = asked.clone();
            async move {
                let mut cancelled = 0;
                loop {
                    let mut next = pin!(set.join_next());
                    let first = futures_lite::future::poll_once(next.as_mut()).await;
                    asked.open();
                    let ended = match first {
                        Some(ended) => ended,
                        None => next.await,
                    };
                    let Some(ended) = ended else { break };
                    assert!(ended.unwrap_err().is_cancelled());
                    cancelled += 1;
                }
                // Tasks and jobs that are spawned after the end of the runtime are cancelled.
                let late = set.spawn_on(future::pending(), &handle);
                set.spawn_blocking_on(|| (), &handle);
                assert!(late.is_finished());
                for _ in 0..2 {
                    let error = set.join_next().await.unwrap().unwrap_err();
                    assert!(error.is_cancelled());
                }
                cancelled
            }
        };
        let (give, take) = mpsc::channel();
        if waits_in_runtime {
            waiting.spawn(async move { give.send(wait.await).unwrap() });
        } else {
            thread::spawn(move || give.send(block_on(wait)).unwrap());
        }
        asked.wait();
        drop(ended);
        assert_eq!(take.recv_timeout(PATIENCE).unwrap(), 100);
    }
}

#[test]
fn a_runtime_can_end_while_its_tasks_wait_for_join_sets() {
    let _alarm = alarm();
    let drops = Drops::new();
    for _ in 0..20 {
        let runtime = runtime(2);
        let asked = Gate::new();
        for _ in 0..10 {
            let (asked, token) = (asked.clone(), drops.token());
            let tokens: Vec<_> = (0..10).map(|_| drops.token()).collect();
            runtime.spawn(async move {
                let _token = token;
                let mut set: JoinSet<()> = tokens
                    .into_iter()
                    .map(|token| async move {
                        let _token = token;
                        future::pending().await
                    })
                    .collect();
                asked.open();
                set.join_next().await;
                // The shutdown of the runtime cancels the tasks of the set, and drops this task,
                // too.
                set.shutdown().await;
            });
        }
        asked.wait();
    }
    // Tasks that were never polled also drop their tokens.
    assert_eq!(drops.count(), 20 * 10 * 11);
}

#[test]
fn panicking_destructors_are_contained() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for drops_set in [true, false] {
        let before = panics(&runtime);
        let mut set = JoinSet::new();
        for n in 0..100 {
            let held = Panics;
            let work = async move {
                // Half of the tasks wait forever. The others return results that panic when they
                // are dropped.
                if n % 2 == 0 {
                    let _held = held;
                    future::pending::<()>().await;
                    unreachable!();
                }
                held
            };
            let task = set.spawn_on(work, runtime.handle());
            eventually("it ends", || n % 2 == 0 || task.is_finished());
        }
        if drops_set {
            drop(set);
        } else {
            block_on(set.shutdown());
            assert!(set.is_empty());
        }
        eventually("all are counted", || panics(&runtime) == before + 100);
        assert_alive(&runtime);
    }
}

#[test]
fn a_detached_result_that_panics_on_drop_is_contained() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let mut set = JoinSet::new();
    for _ in 0..3 {
        let task = set.spawn_on(async { Panics }, runtime.handle());
        eventually("it has ended", || task.is_finished());
    }
    on_worker(&runtime, || ());
    set.detach_all();
    assert!(set.is_empty());
    assert_eq!(panics(&runtime), 3);
    assert_alive(&runtime);
}

#[test]
fn detached_tasks_run_on_and_wake_the_waiter() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (mut set, event, drops) = (JoinSet::new(), Event::default(), Drops::new());
    let done = Gate::new();
    {
        let (event, done, token) = (event.clone(), done.clone(), drops.token());
        let work = async move {
            event.wait().await;
            done.open();
            token
        };
        set.spawn_on(work, runtime.handle());
    }
    let (woken, waker) = Woken::new();
    let mut cx = Context::from_waker(&waker);
    assert!(set.poll_join_next(&mut cx).is_pending());
    set.detach_all();
    assert_eq!((set.len(), woken.count()), (0, 1));
    assert!(matches!(set.poll_join_next(&mut cx), Poll::Ready(None)));
    // This task gets the detached task's place. The set must not confuse the two.
    set.spawn_on(future::pending(), runtime.handle());
    assert!(set.poll_join_next(&mut cx).is_pending());
    event.set();
    done.wait();
    eventually("its result is dropped", || drops.count() == 1);
    assert_eq!(woken.count(), 1);
    assert!(set.poll_join_next(&mut cx).is_pending());
}

#[test]
fn join_all_ends_with_the_first_panic() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (drops, release) = (Drops::new(), Event::default());
    let mut set = JoinSet::new();
    for n in 0..10 {
        let (token, release) = (drops.token(), release.clone());
        let work = async move {
            let _token = token;
            if n == 5 {
                release.wait().await;
                panic!("task {n}");
            }
            future::pending::<()>().await;
        };
        set.spawn_on(work, runtime.handle());
    }
    release.set();
    let all = AssertUnwindSafe(set.join_all());
    let panic = catch_unwind(|| block_on({ all }.0)).unwrap_err();
    assert_eq!(message(&*panic), "task 5");
    eventually("the others are aborted", || drops.count() == 10);
    let mut set = JoinSet::new();
    let task = set.spawn_on(future::pending::<()>(), runtime.handle());
    task.abort();
    let all = AssertUnwindSafe(set.join_all());
    let panic = catch_unwind(|| block_on({ all }.0)).unwrap_err();
    assert_eq!(
        message(&*panic),
        format!("task {} was cancelled", task.id())
    );
}
