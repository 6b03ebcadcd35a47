//! An aborted task ends at its next await and is dropped. Abort does not change a finished task.

use std::{
    future,
    sync::{Arc, mpsc},
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, alarm,
    blocking::{block_a_thread, one_blocking_thread},
    eventually, rounds, runtime,
};
use tourbillon::{
    JoinHandle,
    task::{AbortHandle, spawn_blocking, try_id, yield_now},
};

#[test]
fn an_aborted_pending_task_is_dropped() {
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
        assert_eq!(
            error.to_string(),
            format!("task {} was cancelled", error.id())
        );
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
    // The abort also works if the join handle is dropped right after it.
    let task = runtime.spawn(drops.pending());
    task.abort();
    drop(task);
    eventually("it is dropped", || drops.count() == 2);
}

#[test]
fn an_aborted_running_task_ends_at_its_next_await() {
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
    assert_eq!(runtime.metrics().total().panics(), 0);
}

#[test]
fn a_task_can_abort_itself() {
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
    assert_eq!(runtime.metrics().total().panics(), 0);
}

#[test]
fn abort_does_not_change_a_finished_task() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let task = runtime.spawn(async { 9 });
    eventually("it is finished", || task.is_finished());
    task.abort();
    // The next task may reuse the registry slot of `task`. The second abort must not reach it.
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
fn an_abort_of_a_queued_task_is_not_lost() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for i in rounds(40_000) {
        let task = runtime.spawn(future::pending::<()>());
        for _ in 0..i % 400 {
            std::hint::spin_loop();
        }
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    }
}

#[test]
fn an_abort_handle_outlives_the_join_handle_and_works_on_any_thread() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let task = runtime.spawn(drops.pending());
    let abort = task.abort_handle();
    assert_eq!(abort.id(), task.id());
    drop(task);
    let clones: Vec<_> = (0..4).map(|_| abort.clone()).collect();
    assert!(!abort.is_finished());
    for clone in clones {
        std::thread::spawn(move || clone.abort()).join().unwrap();
    }
    eventually("it is finished", || abort.is_finished());
    assert_eq!(drops.count(), 1);
    abort.abort();
}

#[test]
fn an_abort_handle_is_finished_after_the_destructors_ran() {
    struct Waits(Gate, Gate);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.open();
            self.1.wait();
        }
    }
    let _alarm = alarm();
    let runtime = runtime(1);
    for returns in [false, true] {
        let (begun, release) = (Gate::new(), Gate::new());
        let waits = Waits(begun.clone(), release.clone());
        let task = runtime.spawn(async move {
            let _waits = waits;
            if !returns {
                future::pending::<()>().await;
            }
        });
        let abort = task.abort_handle();
        if !returns {
            abort.abort();
        }
        begun.wait();
        assert!(!abort.is_finished());
        abort.abort();
        release.open();
        assert_eq!(runtime.block_on(task).is_ok(), returns);
        assert!(abort.is_finished());
    }
}

#[test]
fn an_abort_handle_of_a_finished_task_aborts_no_other_task() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let first = runtime.spawn(async { 9 });
    let abort = first.abort_handle();
    eventually("it is finished", || first.is_finished());
    // The next task may reuse the registry slot of `first`.
    let next = runtime.spawn(async {
        yield_now().await;
        10
    });
    abort.abort();
    let late = first.abort_handle();
    assert_ne!(late.id(), next.id());
    assert_eq!(runtime.block_on(first).unwrap(), 9);
    assert_eq!(runtime.block_on(next).unwrap(), 10);
    assert!(abort.is_finished() && late.is_finished());
}

#[test]
fn an_abort_handle_drops_a_queued_job_but_not_a_running_one() {
    let _alarm = alarm();
    let runtime = one_blocking_thread();
    let drops = Drops::new();
    let (runs, release) = block_a_thread(&runtime);
    let token = drops.token();
    let queued = runtime.spawn_blocking(move || drop(token));
    runs.abort_handle().abort();
    let abort = queued.abort_handle();
    abort.abort();
    assert!(runtime.block_on(queued).unwrap_err().is_cancelled());
    assert_eq!(drops.count(), 1);
    assert!(abort.is_finished() && !runs.is_finished());
    release.open();
    assert_eq!(runtime.block_on(runs).unwrap(), 1);
}

#[test]
fn an_abort_handle_outlives_the_runtime() {
    let _alarm = alarm();
    let handles: Vec<AbortHandle> = {
        let runtime = runtime(2);
        let spawn = |_| runtime.spawn(future::pending::<()>()).abort_handle();
        (0..100).map(spawn).collect()
    };
    for handle in handles {
        assert!(handle.is_finished());
        handle.abort();
    }
}

#[test]
fn a_task_has_its_id_until_its_end() {
    struct Tells(mpsc::Sender<Option<tourbillon::task::Id>>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(try_id()).unwrap();
        }
    }
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, told) = mpsc::channel();
    let tells = Tells(sender);
    let task = runtime.spawn(async move {
        let tells = tells;
        tells.0.send(try_id()).unwrap();
        future::pending::<()>().await;
    });
    let id = Some(task.id());
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), id);
    task.abort();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), id);
    assert_eq!(Some(runtime.block_on(task).unwrap_err().id()), id);
    // On a blocking thread, a future in `block_on` is part of the job and has the id of the job.
    runtime.block_on(async {
        assert_eq!(try_id(), None);
        let handle = tourbillon::Handle::current();
        let job = spawn_blocking(move || (try_id(), handle.block_on(async { try_id() })));
        let id = Some(job.id());
        assert_eq!(job.await.unwrap(), (id, id));
    });
    // No id is left behind on a worker.
    assert_eq!(crate::common::on_worker(&runtime, try_id), None);
}
