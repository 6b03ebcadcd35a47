//! A `LocalSet` that ends drops its tasks on its thread, whenever other threads wake them.

use std::{
    cell::RefCell,
    future::{pending, poll_fn},
    rc::Rc,
    task::Poll,
    time::Duration,
};

use crate::common::{
    alarm, eventually,
    process::alone,
    resident::{Homes, Wakers},
    runtime,
};
use tourbillon::{
    JoinHandle,
    task::{LocalSet, spawn_local, yield_now},
};

/// Returns a set of `count` tasks that wait for ever and have been polled once.
fn residents(homes: &Homes, wakers: &Wakers, count: usize) -> (LocalSet, Vec<JoinHandle<()>>) {
    let set = LocalSet::new();
    let tasks = (0..count).map(|_| {
        let (resident, wakers) = (homes.resident(), wakers.clone());
        let mut is_new = true;
        set.spawn_local(poll_fn(move |cx| {
            resident.look();
            if std::mem::take(&mut is_new) {
                wakers.add(cx.waker());
            }
            Poll::Pending
        }))
    });
    let tasks = tasks.collect();
    let before = wakers.len();
    futures_lite::future::block_on(set.run_until(async {
        while wakers.len() < before + count {
            yield_now().await;
        }
    }));
    (set, tasks)
}

#[test]
fn a_dropped_set_drops_its_tasks_on_its_thread_during_remote_wakes() {
    let _alarm = alarm();
    for _ in 0..100 {
        let (homes, wakers) = (Homes::new(), Wakers::default());
        let (set, tasks) = residents(&homes, &wakers, 6);
        let never_polled = set.spawn_local({
            let resident = homes.resident();
            async move { drop(resident) }
        });
        wakers.storm(|| {
            drop(set);
            homes.assert_all_dropped_at_home();
        });
        for task in tasks.into_iter().chain([never_polled]) {
            assert!(task.is_finished());
            let error = futures_lite::future::block_on(task).unwrap_err();
            assert!(error.is_cancelled());
        }
    }
}

#[test]
fn a_set_can_outlive_its_runtime() {
    let _alarm = alarm();
    let set = LocalSet::new();
    let task = {
        let runtime = runtime(1);
        let task = set.spawn_local(async {
            tourbillon::time::sleep(crate::common::HOUR).await;
            "woken by the end"
        });
        set.block_on(&runtime, yield_now());
        task
    };
    let said = futures_lite::future::block_on(set.run_until(task));
    assert_eq!(said.unwrap(), "woken by the end");
}

#[test]
fn destructors_can_spawn_into_the_ending_set_and_panic() {
    struct Spawns(Homes, Rc<RefCell<Vec<bool>>>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let resident = self.0.resident();
            let late = spawn_local(async move { drop(resident) });
            self.1.borrow_mut().push(late.is_finished());
            if self.1.borrow().len() % 2 == 0 {
                panic!("in a destructor");
            }
        }
    }
    // Run in a process of its own, because a panic that is not caught ends the process.
    alone(|| {
        let homes = Homes::new();
        let refused = Rc::new(RefCell::new(Vec::new()));
        let set = LocalSet::new();
        for _ in 0..10 {
            let held = Spawns(homes.clone(), refused.clone());
            set.spawn_local(async move {
                let _held = held;
                pending::<()>().await;
            });
        }
        futures_lite::future::block_on(set.run_until(yield_now()));
        drop(set);
        assert_eq!(refused.take(), [true; 10]);
        homes.assert_all_dropped_at_home();
    });
}

#[test]
fn sets_in_pinned_tasks_end_with_the_runtime_on_its_workers() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (homes, wakers) = (Homes::new(), Wakers::default());
    for worker in [0, 1, 0, 1] {
        let (homes, wakers) = (homes.clone(), wakers.clone());
        let create = move || async move {
            let (set, _tasks) = residents(&homes, &wakers, 3);
            set.await;
        };
        drop(
            runtime
                .handle()
                .spawn_pinned_by_idx(create, worker)
                .unwrap(),
        );
    }
    eventually("all run", || wakers.len() == 12);
    drop(runtime);
    homes.assert_all_dropped_at_home();
    wakers.all().iter().for_each(|waker| waker.wake_by_ref());
}

#[test]
fn a_dropped_run_until_leaves_the_tasks_in_the_set() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (homes, wakers) = (Homes::new(), Wakers::default());
    let (set, tasks) = residents(&homes, &wakers, 3);
    for _ in 0..3 {
        let nobody = set.run_until(pending::<()>());
        let waited = tourbillon::time::timeout(Duration::from_micros(100), nobody);
        assert!(runtime.block_on(waited).is_err());
        assert_eq!(homes.dropped(), 0);
    }
    assert!(tasks.iter().all(|task| !task.is_finished()));
    drop(set);
    homes.assert_all_dropped_at_home();
}
