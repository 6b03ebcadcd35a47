//! An aborted task ends at its next await and is dropped; one that has finished is not changed.

mod common;

use std::{
    future,
    sync::{Arc, mpsc},
};

use common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, runtime};
use tourbillon::{JoinHandle, task::yield_now};

#[test]
fn a_pending_task_that_is_aborted_is_dropped() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for started in [false, true] {
        let drops = Drops::new();
        let token = drops.token();
        let polled = Gate::new();
        let task = {
            let polled = polled.clone();
            runtime.spawn(async move {
                let _token = token;
                polled.open();
                future::pending::<()>().await;
            })
        };
        if started {
            polled.wait();
        }
        assert_eq!(drops.count(), 0);
        task.abort();
        task.abort();
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic());
        assert_eq!(error.to_string(), "task was cancelled");
        assert!(error.try_into_panic().is_err());
        assert_eq!(drops.count(), 1, "dropped before it is told");
    }
}

#[test]
fn an_aborted_task_is_finished_without_being_joined() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let token = drops.token();
    let task = runtime.spawn(async move {
        let _token = token;
        tourbillon::time::sleep(HOUR).await;
    });
    assert!(!task.is_finished());
    task.abort();
    eventually("it is finished", || task.is_finished());
    eventually("it is dropped", || drops.count() == 1);
    // And if nobody holds a handle at all.
    let token = drops.token();
    let task = runtime.spawn(async move {
        let _token = token;
        future::pending::<()>().await;
    });
    task.abort();
    drop(task);
    eventually("it is dropped", || drops.count() == 2);
}

#[test]
fn a_running_task_that_is_aborted_ends_at_its_next_await() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    for returns in [false, true] {
        let (started, release) = (Gate::new(), Gate::new());
        let token = drops.token();
        let task = {
            let (started, release) = (started.clone(), release.clone());
            runtime.spawn(async move {
                let _token = token;
                started.open();
                release.wait();
                if returns {
                    return 5;
                }
                yield_now().await;
                unreachable!("it was aborted");
            })
        };
        started.wait();
        task.abort();
        assert!(!task.is_finished(), "it runs");
        release.open();
        let joined = runtime.block_on(task);
        if returns {
            assert_eq!(joined.unwrap(), 5, "it had no await left");
        } else {
            assert!(joined.unwrap_err().is_cancelled());
        }
    }
    assert_eq!(drops.count(), 2);
    assert_eq!(runtime.metrics().total().panics, 0);
}

#[test]
fn a_task_may_abort_itself() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (give, take) = mpsc::channel::<Arc<JoinHandle<()>>>();
    let task = Arc::new(runtime.spawn(async move {
        take.recv_timeout(PATIENCE).unwrap().abort();
        yield_now().await;
        unreachable!("it was aborted");
    }));
    give.send(task.clone()).unwrap();
    eventually("it is finished", || task.is_finished());
    assert_eq!(runtime.metrics().total().panics, 0);
}

#[test]
fn a_finished_task_is_not_changed_by_abort() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let task = runtime.spawn(async { 9 });
    eventually("it is finished", || task.is_finished());
    task.abort();
    // Another in its place in the books must not be hit.
    let next = runtime.spawn(async {
        yield_now().await;
        10
    });
    task.abort();
    assert!(task.is_finished());
    assert_eq!(runtime.block_on(task).unwrap(), 9);
    assert_eq!(runtime.block_on(next).unwrap(), 10);
}

#[test]
fn an_abort_during_a_storm_of_wakes_is_exact() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let mut cancelled = 0;
    for i in 0..2_000 {
        let token = drops.token();
        let task = runtime.spawn(async move {
            let _token = token;
            for _ in 0..20 {
                yield_now().await;
            }
        });
        for _ in 0..i % 50 * 30 {
            std::hint::spin_loop();
        }
        task.abort();
        match runtime.block_on(task) {
            Ok(()) => {}
            Err(error) => {
                assert!(error.is_cancelled());
                cancelled += 1;
            }
        }
        assert_eq!(drops.count(), i + 1);
    }
    assert!(cancelled > 0, "no abort came in time");
}

#[test]
fn an_abort_that_meets_the_task_on_its_way_to_be_polled_is_not_lost() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // Somebody else for the processors: the two meet where one of them is held up.
    let stop = Gate::new();
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.is_open() {})
        })
        .collect();
    for _ in 0..3_000 {
        let task = runtime.spawn(future::pending::<()>());
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    }
    stop.open();
    for thread in busy {
        thread.join().unwrap();
    }
}
