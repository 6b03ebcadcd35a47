//! A runtime that ends drops each local task on its own thread, whenever other threads wake it.

use std::{
    future::{self, Future, pending, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    thread,
    time::Duration,
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    event::Event,
    eventually, fds,
    process::alone,
    resident::{Homes, Wakers},
    runtime, threads,
};
use tourbillon::{
    JoinHandle, Runtime, SpawnError,
    task::{spawn_local, spawn_pinned, spawn_pinned_by_idx},
    time::sleep,
};

/// Runs a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Returns a future that waits forever. It adds its waker to `wakers`, and `homes` checks that it
/// stays on its thread.
fn stay(homes: &Homes, wakers: &Wakers) -> impl Future<Output = ()> + use<> {
    let (resident, wakers) = (homes.resident(), wakers.clone());
    let mut is_new = true;
    poll_fn(move |cx| {
        resident.look();
        if std::mem::take(&mut is_new) {
            wakers.add(cx.waker());
        }
        Poll::Pending
    })
}

/// Spawns `count` pinned tasks on each worker. Each of them spawns a local task, and all of them
/// wait forever.
fn residents(runtime: &Runtime, count: usize) -> (Homes, Wakers, Vec<JoinHandle<()>>) {
    let (homes, wakers) = (Homes::new(), Wakers::default());
    let workers = runtime.metrics().num_workers();
    let tasks: Vec<_> = (0..workers * count)
        .map(|n| {
            let (homes, wakers) = (homes.clone(), wakers.clone());
            let create = move || async move {
                drop(spawn_local(stay(&homes, &wakers)));
                stay(&homes, &wakers).await;
            };
            runtime
                .handle()
                .spawn_pinned_by_idx(create, n % workers)
                .unwrap()
        })
        .collect();
    eventually("all run", || wakers.len() == 2 * tasks.len());
    (homes, wakers, tasks)
}

fn assert_cancelled(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        let error = futures_lite::future::block_on(task).unwrap_err();
        assert!(error.is_cancelled());
    }
}

#[test]
fn every_kind_of_shutdown_drops_local_tasks_on_their_thread() {
    let _alarm = alarm();
    let ends: [fn(Runtime); 4] = [
        drop,
        |runtime| assert!(runtime.shutdown_timeout(PATIENCE)),
        |runtime| assert!(!runtime.shutdown_graceful(Duration::from_millis(1))),
        Runtime::shutdown_background,
    ];
    for end in ends {
        let runtime = runtime(3);
        let (homes, wakers, tasks) = residents(&runtime, 5);
        end(runtime);
        eventually("all are dropped", || homes.dropped() == homes.made());
        let late = wakers.all();
        thread::spawn(move || late.iter().for_each(|waker| waker.wake_by_ref()))
            .join()
            .unwrap();
        assert_cancelled(tasks);
        drop(wakers);
        homes.assert_all_dropped_at_home();
    }
}

#[test]
fn remote_wakes_during_shutdown_move_no_local_task() {
    let _alarm = alarm();
    for _ in 0..30 {
        let runtime = runtime(2);
        let (homes, wakers, tasks) = residents(&runtime, 4);
        wakers.storm(|| {
            drop(runtime);
            homes.assert_all_dropped_at_home();
        });
        assert_cancelled(tasks);
    }
}

#[test]
fn tasks_spawned_during_shutdown_are_refused_or_cancelled() {
    let _alarm = alarm();
    for _ in 0..30 {
        let runtime = runtime(2);
        let homes = Homes::new();
        let given = Arc::new(());
        let (handle, started) = (runtime.handle().clone(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for n in 0..3_usize {
                let (handle, homes, given) = (&handle, &homes, &given);
                let started = &started;
                scope.spawn(move || {
                    loop {
                        let (homes, held) = (homes.clone(), given.clone());
                        let create = move || async move {
                            let (_resident, _held) = (homes.resident(), held);
                            pending::<()>().await;
                        };
                        match handle.spawn_pinned_by_idx(create, n % 2) {
                            Ok(_detached) => _ = started.fetch_add(1, SeqCst),
                            Err(error) => {
                                assert_eq!(error, SpawnError::Shutdown);
                                return;
                            }
                        }
                    }
                });
            }
            eventually("some are there", || started.load(SeqCst) > 20);
            drop(runtime);
        });
        homes.assert_all_dropped_at_home();
        assert_eq!(Arc::strong_count(&given), 1, "those that never ran, too");
    }
}

#[test]
fn a_graceful_shutdown_waits_for_local_tasks() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let finished = Arc::new(AtomicUsize::new(0));
    for worker in [0, 1, 0] {
        let outer = finished.clone();
        let create = move || async move {
            let inner = outer.clone();
            // Only the shutdown waits for this task.
            drop(spawn_local(async move {
                sleep(Duration::from_millis(5)).await;
                inner.fetch_add(1, SeqCst);
            }));
            outer.fetch_add(1, SeqCst);
        };
        drop(
            runtime
                .handle()
                .spawn_pinned_by_idx(create, worker)
                .unwrap(),
        );
    }
    assert!(runtime.shutdown_graceful(PATIENCE));
    assert_eq!(finished.load(SeqCst), 6);
}

#[test]
fn destructors_can_spawn_and_panic() {
    // Run in a process of its own, because a failure may end the process.
    alone(|| {
        let runtime = runtime(2);
        let homes = Homes::new();
        let (sender, refused) = mpsc::channel();
        for n in 0..20 {
            let (homes, sender) = (homes.clone(), sender.clone());
            let event = Event::default();
            let runs = event.clone();
            let create = move || async move {
                let resident = homes.resident();
                let _spawns = OnDrop(move || {
                    resident.look();
                    let (for_local, for_worker) = (homes.resident(), Arc::new(()));
                    let local = spawn_local(async move { drop(for_local) });
                    drop(spawn_pinned(|| async { drop(for_worker) }));
                    drop(spawn_pinned_by_idx(|| future::ready(()), 1 - n % 2));
                    drop(tourbillon::spawn(async {}));
                    drop(tourbillon::after(HOUR, || ()));
                    sender.send(local.is_finished()).unwrap();
                    if n % 3 == 0 {
                        panic!("in a destructor");
                    }
                });
                runs.set();
                pending::<()>().await;
            };
            drop(runtime.handle().spawn_pinned_by_idx(create, n % 2).unwrap());
            runtime.block_on(event.wait());
        }
        drop(sender);
        let handle = runtime.handle().clone();
        drop(runtime);
        homes.assert_all_dropped_at_home();
        assert_eq!(refused.iter().filter(|&refused| refused).count(), 20);
        drop(handle);
    });
}

#[test]
fn a_blocked_worker_drops_its_local_tasks_when_it_returns() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (homes, _wakers, tasks) = residents(&runtime, 2);
    let (gate, stuck) = (Gate::new(), Gate::new());
    let (wait, is_stuck) = (gate.clone(), stuck.clone());
    let create = move || async move {
        is_stuck.open();
        wait.wait();
    };
    drop(runtime.handle().spawn_pinned_by_idx(create, 0).unwrap());
    stuck.wait();
    assert!(!runtime.shutdown_timeout(Duration::from_millis(50)));
    // The blocked worker has not dropped its tasks yet.
    eventually("the other worker's are dropped", || homes.dropped() == 4);
    gate.open();
    eventually("all are dropped", || homes.dropped() == homes.made());
    homes.assert_all_dropped_at_home();
    assert_cancelled(tasks);
}

#[test]
fn a_runtime_with_local_tasks_leaves_no_thread_and_no_descriptor() {
    alone(|| {
        let before = (threads(), fds());
        for _ in 0..10 {
            let runtime = runtime(2);
            let (homes, wakers, tasks) = residents(&runtime, 3);
            drop(runtime);
            homes.assert_all_dropped_at_home();
            drop((wakers, tasks));
        }
        eventually("all is as before", || (threads(), fds()) == before);
    });
}
