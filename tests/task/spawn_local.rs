//! Tasks that are pinned to a worker, and the local tasks that they spawn there.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    future::{self, poll_fn},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    event::Event,
    eventually, message, on_worker,
    panics::{assert_alive, panics},
    resident::{Homes, Wakers},
    runtime,
    told::worker_number,
};
use futures::{FutureExt, select};
use tourbillon::{
    Handle, SpawnError, Timer,
    runtime::Builder,
    task::{JoinSet, block_in_place, spawn_local, spawn_pinned, spawn_pinned_by_idx, yield_now},
    time::sleep,
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_pinned_task_always_runs_on_its_worker() {
    let _alarm = alarm();
    let runtime = runtime(3);
    for worker in [0, 1, 2, 1] {
        let task = runtime.handle().spawn_pinned_by_idx(
            move || async move {
                let here = thread::current().id();
                for round in 0..50 {
                    assert_eq!(worker_number(), Some(worker));
                    assert_eq!(thread::current().id(), here);
                    match round % 3 {
                        0 => yield_now().await,
                        1 => sleep(Duration::from_micros(50)).await,
                        // Another worker wakes this task, most likely.
                        _ => tourbillon::spawn(yield_now()).await.unwrap(),
                    }
                }
            },
            worker,
        );
        runtime.block_on(task.unwrap()).unwrap();
    }
}

#[test]
fn an_unknown_worker_and_an_ended_runtime_are_refused() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let refused = SpawnError::NoSuchWorker {
        worker: 2,
        workers: 2,
    };
    let create = || future::ready(());
    assert_eq!(
        runtime.handle().spawn_pinned_by_idx(create, 2).unwrap_err(),
        refused
    );
    assert!(refused.to_string().contains("no worker 2"), "{refused}");
    assert_eq!(
        spawn_pinned_by_idx(create, 0).unwrap_err(),
        SpawnError::NoRuntime
    );

    let handle = runtime.handle().clone();
    drop(runtime);
    for worker in [0, 7] {
        let homes = Arc::new(());
        let held = homes.clone();
        let late = handle.spawn_pinned_by_idx(
            move || {
                drop(held);
                future::ready(())
            },
            worker,
        );
        assert_eq!(late.unwrap_err(), SpawnError::Shutdown);
        assert_eq!(Arc::strong_count(&homes), 1, "what was given is dropped");
    }
    let late = handle.spawn_pinned(create);
    let error = futures_lite::future::block_on(late).unwrap_err();
    assert!(error.is_cancelled());
}

#[test]
fn pinned_tasks_are_spread_over_the_workers() {
    let _alarm = alarm();
    let runtime = runtime(4);
    let spread = || async {
        let mut workers = HashSet::new();
        for _ in 0..8 {
            let number = spawn_pinned(|| async { worker_number() });
            workers.insert(number.await.unwrap().expect("it is a worker"));
        }
        workers.len()
    };
    // Each task goes to the next worker in turn or to the one after it, so no worker gets all
    // tasks.
    assert!(runtime.block_on(spread()) > 1);
    assert!(runtime.block_on(runtime.spawn(spread())).unwrap() > 1);
}

#[test]
fn values_that_are_not_send_live_across_awaits() {
    let _alarm = alarm();
    fn descend(depth: u32, seen: Rc<RefCell<Vec<u32>>>, homes: Homes) {
        spawn_local(async move {
            let resident = homes.resident();
            for _ in 0..5 {
                resident.look();
                sleep(Duration::from_micros(20)).await;
                yield_now().await;
            }
            seen.borrow_mut().push(depth);
            if depth > 0 {
                descend(depth - 1, seen, homes);
            }
        });
    }
    let runtime = runtime(3);
    let homes = Homes::new();
    let given = homes.clone();
    let seen = runtime.handle().spawn_pinned(|| async move {
        let seen = Rc::new(RefCell::new(Vec::new()));
        descend(9, seen.clone(), given);
        while seen.borrow().len() < 10 {
            yield_now().await;
        }
        seen.take()
    });
    let expected: Vec<u32> = (0..10).rev().collect();
    assert_eq!(runtime.block_on(seen).unwrap(), expected);
    drop(runtime);
    homes.assert_all_dropped_at_home();
}

#[test]
fn a_result_that_is_not_send_is_joined_on_its_thread() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let sum = runtime.handle().spawn_pinned(|| async {
        let task = spawn_local(async { Rc::new(Cell::new(40)) });
        let shared = task.await.unwrap();
        shared.set(shared.get() + 2);
        // The handle is dropped, so the output of this task is dropped on its own thread.
        drop(spawn_local(async { Rc::new(()) }));
        shared.get()
    });
    assert_eq!(runtime.block_on(sum).unwrap(), 42);
}

/// Each thread waits for the effect of its wake-up, so the worker often sleeps in between.
#[test]
fn remote_wakes_reach_pinned_tasks() {
    const ROUNDS: usize = 2_000;
    let _alarm = alarm();
    let runtime = runtime(2);
    let homes = Homes::new();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (runtime, homes) = (&runtime, homes.clone());
            scope.spawn(move || {
                let given = Arc::new(AtomicUsize::new(0));
                let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
                let (sender, receiver) = mpsc::channel();
                let (all, slot) = (given.clone(), waker.clone());
                let create = move || {
                    let resident = homes.resident();
                    let mut taken = 0;
                    poll_fn(move |cx| {
                        resident.look();
                        *slot.lock().unwrap() = Some(cx.waker().clone());
                        while taken < all.load(SeqCst) {
                            taken += 1;
                            sender.send(taken).unwrap();
                        }
                        if taken == ROUNDS {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                };
                let task = runtime
                    .handle()
                    .spawn_pinned_by_idx(create, thread % 2)
                    .unwrap();
                eventually("it runs", || waker.lock().unwrap().is_some());
                for round in 1..=ROUNDS {
                    given.store(round, SeqCst);
                    let waker = waker.lock().unwrap().clone();
                    waker.expect("it has left it").wake();
                    let taken = receiver.recv_timeout(PATIENCE);
                    assert_eq!(taken, Ok(round), "a wake-up was lost");
                }
                runtime.block_on(task).unwrap();
            });
        }
    });
    drop(runtime);
    homes.assert_all_dropped_at_home();
}

/// The threads wake the tasks without a pause. Wake-ups coincide with each other, and with a task
/// on its way to or from its queue.
#[test]
fn no_remote_wake_is_lost() {
    const TASKS: usize = 8;
    const EACH: usize = 5_000;
    let _alarm = alarm();
    let runtime = runtime(2);
    let homes = Homes::new();
    let counts: Arc<[AtomicUsize; TASKS]> = Arc::default();
    let wakers = Wakers::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|index| {
            let (homes, counts, leaves) = (homes.clone(), counts.clone(), wakers.clone());
            let create = move || {
                let resident = homes.resident();
                let mut is_new = true;
                poll_fn(move |cx| {
                    resident.look();
                    if std::mem::take(&mut is_new) {
                        leaves.add(cx.waker());
                    }
                    if counts[index].load(SeqCst) == 4 * EACH {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
            };
            let task = runtime
                .handle()
                .spawn_pinned_by_idx(create, index % 2)
                .unwrap();
            // Wait for each task, so that the wakers are in the order of the tasks.
            eventually("it runs", || wakers.len() == index + 1);
            task
        })
        .collect();
    let wakers = wakers.all();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..EACH * TASKS {
                    let index = round % TASKS;
                    counts[index].fetch_add(1, SeqCst);
                    wakers[index].wake_by_ref();
                }
            });
        }
    });
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    drop(runtime);
    homes.assert_all_dropped_at_home();
}

#[test]
fn a_remote_abort_drops_the_future_on_its_own_thread() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let homes = Homes::new();
    for round in 0..200 {
        let (given, event) = (homes.clone(), Event::default());
        let runs = event.clone();
        let task = runtime.handle().spawn_pinned(move || async move {
            let _resident = given.resident();
            let inner = given.clone();
            let _detached = spawn_local(async move {
                let _resident = inner.resident();
                sleep(Duration::from_micros(10)).await;
            });
            runs.set();
            future::pending::<()>().await;
        });
        if round % 2 == 0 {
            // Otherwise, the task may not even have begun when it is aborted.
            runtime.block_on(event.wait());
        }
        let abort = task.abort_handle();
        thread::spawn(move || abort.abort()).join().unwrap();
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.is_cancelled());
    }
    eventually("those that were detached have ended", || {
        runtime
            .metrics()
            .workers()
            .iter()
            .all(|worker| worker.pinned_tasks() == 0)
    });
    homes.assert_all_dropped_at_home();
}

#[test]
fn a_panic_is_returned_to_the_join_handle_and_the_worker_goes_on() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let create = runtime
        .handle()
        .spawn_pinned(|| -> future::Ready<()> { panic!("in create") });
    let error = runtime.block_on(create).unwrap_err();
    assert_eq!(message(&*error.into_panic()), "in create");
    let nested = runtime.handle().spawn_pinned(|| async {
        let inner = spawn_local(async {
            yield_now().await;
            let shared = Rc::new(Cell::new(0));
            assert_eq!(shared.get(), 1, "inside");
        });
        let error = inner.await.unwrap_err();
        (error.is_panic(), error.id())
    });
    assert!(runtime.block_on(nested).unwrap().0);
    assert_eq!(panics(&runtime), 2);
    assert_alive(&runtime);
}

#[test]
fn spawn_local_outside_of_a_local_context_panics() {
    fn refused() -> bool {
        let spawned = std::panic::catch_unwind(|| drop(spawn_local(async {})));
        spawned.is_err_and(|panic| {
            message(&*panic).contains("called from outside of a `task::LocalSet`")
        })
    }
    let _alarm = alarm();
    let runtime = runtime(1);
    assert!(refused(), "on a thread of no runtime");
    assert!(runtime.block_on(async { refused() }), "in block_on");
    assert!(on_worker(&runtime, refused), "in a callback");
    let in_task = runtime.spawn(async { refused() });
    assert!(runtime.block_on(in_task).unwrap(), "in a task");
    let after_pinned = runtime.block_on(async {
        spawn_pinned(|| async { spawn_local(async {}).await })
            .await
            .unwrap()
            .unwrap();
        tourbillon::spawn(async { refused() }).await.unwrap()
    });
    assert!(
        after_pinned,
        "in a task of a worker that has had pinned ones"
    );
}

#[test]
fn timers_of_a_pinned_task_are_on_the_shard_of_its_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for worker in [0, 1] {
        let handle = runtime.handle().clone();
        let stored = move || {
            let metrics = handle.metrics();
            metrics
                .workers()
                .iter()
                .map(|it| it.stored())
                .collect::<Vec<_>>()
        };
        let create = move || async move {
            let timer = tourbillon::after(HOUR, || ());
            assert_eq!(stored()[1 - worker], 0);
            assert_eq!(stored()[worker], 1);
            timer.cancel();
            // A timer of this worker wakes the local task, whichever worker runs the callback.
            let (event, set) = (Event::default(), Rc::new(Cell::new(false)));
            let (waits, says) = (event.clone(), set.clone());
            let waiting = spawn_local(async move {
                waits.wait().await;
                says.set(true);
            });
            let timer = Timer::after(MS).on_worker(worker);
            timer.start(move || event.set());
            waiting.await.unwrap();
            set.get()
        };
        let task = runtime
            .handle()
            .spawn_pinned_by_idx(create, worker)
            .unwrap();
        assert!(runtime.block_on(task).unwrap());
    }
}

#[test]
fn select_and_join_sets_work_in_local_tasks() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let task = runtime.handle().spawn_pinned(|| async {
        let count = Rc::new(Cell::new(0));
        let mut set = JoinSet::new();
        for n in 0..100_u64 {
            let count = count.clone();
            set.spawn_local(async move {
                sleep(Duration::from_micros(n % 7)).await;
                count.set(count.get() + 1);
                Rc::new(n)
            });
        }
        let mut sum = 0;
        let mut never = Box::pin(sleep(HOUR)).fuse();
        loop {
            select! {
                () = never => unreachable!("nothing takes an hour"),
                ended = Box::pin(set.join_next()).fuse() => match ended {
                    Some(n) => sum += *n.unwrap(),
                    None => break,
                },
            }
        }
        (count.get(), sum)
    });
    assert_eq!(runtime.block_on(task).unwrap(), (100, 4_950));
}

#[test]
fn pinned_tasks_are_counted_and_have_ids() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let gate = Event::default();
    let wait = gate.clone();
    let create = move || async move {
        let own = tourbillon::task::id();
        let inner = spawn_local(async { tourbillon::task::id() });
        let number = inner.id();
        assert_eq!(inner.await.unwrap(), number);
        assert_ne!(own, number);
        wait.wait().await;
        own
    };
    let task = runtime.handle().spawn_pinned_by_idx(create, 1).unwrap();
    let pinned = || {
        let metrics = runtime.metrics();
        [0, 1].map(|worker| metrics.workers()[worker].pinned_tasks())
    };
    eventually("the inner one has ended", || pinned() == [0, 1]);
    gate.set();
    let id = task.id();
    assert_eq!(runtime.block_on(task).unwrap(), id);
    assert_eq!(pinned(), [0, 0]);
}

#[test]
fn a_blocking_pinned_task_is_reported_by_name() {
    let _alarm = alarm();
    let (sender, receiver) = mpsc::channel();
    let runtime = Builder::new()
        .worker_threads(1)
        .stall_threshold(Duration::from_millis(20))
        .on_stall(move |stall| _ = sender.send(stall.clone()))
        .build()
        .unwrap();
    let handle = runtime.handle();
    let line = line!() + 1;
    let task = handle.spawn_pinned(|| async { thread::sleep(Duration::from_millis(60)) });
    runtime.block_on(task).unwrap();
    let stall = loop {
        let stall = receiver.recv_timeout(PATIENCE).expect("it is reported");
        // On a busy machine, another stall may be reported first.
        let spawned = stall.job.and_then(|job| job.spawned);
        if spawned.is_some_and(|at| at.line() == line) {
            break stall;
        }
    };
    let name = stall.job.unwrap().name;
    assert!(name.contains("a_blocking_pinned_task"), "{stall}");
}

/// The local tasks of the worker wait until the call ends, because no other thread may run them.
#[test]
fn block_in_place_delays_local_tasks_only() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let ran = Arc::new(AtomicBool::new(false));
    let local_ran = ran.clone();
    let task = runtime.handle().spawn_pinned(move || async move {
        let local = local_ran.clone();
        let waits = spawn_local(async move { local.store(true, SeqCst) });
        let others = Gate::new();
        let opens = others.clone();
        tourbillon::spawn(async move { opens.open() });
        block_in_place(|| others.wait());
        assert!(!local_ran.load(SeqCst), "it may run here alone");
        let handle = Handle::current();
        block_in_place(|| handle.block_on(tourbillon::spawn(async {})).unwrap());
        waits.await.unwrap();
    });
    runtime.block_on(task).unwrap();
    assert!(ran.load(SeqCst));
}
