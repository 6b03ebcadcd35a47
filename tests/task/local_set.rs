//! Tasks of a `LocalSet` run on the thread that waits for the set.

use std::{
    cell::{Cell, RefCell},
    future::{self, Future, poll_fn},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use crate::common::{
    HOUR, alarm,
    event::Event,
    eventually, message,
    resident::{Homes, Wakers},
    runtime,
    woken::Woken,
};
use futures::{FutureExt, join, select};
use tourbillon::{
    task::{JoinSet, LocalSet, consume_budget, spawn_local, yield_now},
    time::sleep,
};

#[test]
fn a_set_is_ready_when_all_its_tasks_have_ended() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let order = Rc::new(RefCell::new(Vec::new()));
    let set = LocalSet::new();
    for n in 0..3 {
        let order = order.clone();
        set.spawn_local(async move {
            yield_now().await;
            order.borrow_mut().push(n);
            spawn_local(async move {
                sleep(Duration::from_millis(1)).await;
                order.borrow_mut().push(10 + n);
            });
        });
    }
    assert!(order.borrow().is_empty(), "nobody waits for it");
    runtime.block_on(set);
    let mut order = order.take();
    assert_eq!(
        order[..3],
        [0, 1, 2],
        "in the order in which they are ready"
    );
    order.sort();
    assert_eq!(order, [0, 1, 2, 10, 11, 12]);
    runtime.block_on(LocalSet::new());
}

#[test]
fn a_set_needs_no_runtime() {
    let _alarm = alarm();
    let set = LocalSet::default();
    let task = set.spawn_local(async {
        yield_now().await;
        Rc::new(1)
    });
    let sum = futures_lite::future::block_on(set.run_until(async {
        let other = spawn_local(async { Rc::new(2) });
        *task.await.unwrap() + *other.await.unwrap()
    }));
    assert_eq!(sum, 3);
    let panics = set.spawn_local(async { panic!("without a runtime") });
    let error = futures_lite::future::block_on(set.run_until(panics)).unwrap_err();
    assert_eq!(message(&*error.into_panic()), "without a runtime");
    futures_lite::future::block_on(set);
}

#[test]
fn run_until_leaves_other_tasks_for_later() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let set = LocalSet::new();
    let polls = Rc::new(Cell::new(0));
    let count = polls.clone();
    set.spawn_local(async move {
        loop {
            count.set(count.get() + 1);
            yield_now().await;
        }
    });
    assert_eq!(set.block_on(&runtime, async { 42 }), 42);
    let first = polls.get();
    set.block_on(&runtime, sleep(Duration::from_millis(1)));
    let second = polls.get();
    assert!(second > first, "it goes on");
    runtime.block_on(sleep(Duration::from_millis(1)));
    assert_eq!(polls.get(), second, "and stands still in between");
}

/// A task that never waits does not keep the future of `block_on` or its own siblings from being
/// polled.
#[test]
fn an_always_ready_task_does_not_starve_the_set() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let set = LocalSet::new();
    let over = Rc::new(Cell::new(false));
    for by_budget in [false, true] {
        let over = over.clone();
        set.spawn_local(async move {
            while !over.get() {
                if by_budget {
                    consume_budget().await;
                } else {
                    yield_now().await;
                }
            }
        });
    }
    let turns = Rc::new(Cell::new(0));
    let counts = turns.clone();
    set.block_on(&runtime, async {
        spawn_local(async move {
            for _ in 0..1_000 {
                counts.set(counts.get() + 1);
                yield_now().await;
            }
        });
        let handle = tourbillon::spawn(async {
            for _ in 0..100 {
                yield_now().await;
            }
        });
        handle.await.unwrap();
        while turns.get() < 1_000 {
            yield_now().await;
        }
    });
    over.set(true);
    runtime.block_on(set);
}

#[test]
fn remote_wakes_reach_the_tasks_of_a_set() {
    const TASKS: usize = 8;
    const EACH: usize = 5_000;
    let _alarm = alarm();
    let runtime = runtime(2);
    let (homes, wakers) = (Homes::new(), Wakers::default());
    let counts: Arc<[AtomicUsize; TASKS]> = Arc::default();
    let set = LocalSet::new();
    for index in 0..TASKS {
        let (resident, counts, leaves) = (homes.resident(), counts.clone(), wakers.clone());
        let mut is_new = true;
        set.spawn_local(poll_fn(move |cx| {
            resident.look();
            if std::mem::take(&mut is_new) {
                leaves.add(cx.waker());
            }
            if counts[index].load(SeqCst) == 4 * EACH {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
    }
    set.block_on(&runtime, async {
        while wakers.len() < TASKS {
            yield_now().await;
        }
    });
    let wakers = wakers.all();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..EACH * TASKS {
                    counts[round % TASKS].fetch_add(1, SeqCst);
                    wakers[round % TASKS].wake_by_ref();
                }
            });
        }
        runtime.block_on(set);
    });
    homes.assert_all_dropped_at_home();
}

/// The set and the other thread wait for each other, so each wake-up finds the set asleep.
#[test]
fn a_sleeping_set_is_woken_by_every_wake() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let count = Arc::new(AtomicUsize::new(0));
    let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
    let (seen, slot) = (count.clone(), waker.clone());
    let set = LocalSet::new();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let acknowledges = acknowledged.clone();
    set.spawn_local(poll_fn(move |cx| {
        *slot.lock().unwrap() = Some(cx.waker().clone());
        let now = seen.load(SeqCst);
        acknowledges.store(now, SeqCst);
        if now == 2_000 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually("it runs", || waker.lock().unwrap().is_some());
            for round in 1..=2_000 {
                count.store(round, SeqCst);
                waker.lock().unwrap().clone().unwrap().wake();
                let start = std::time::Instant::now();
                while acknowledged.load(SeqCst) < round {
                    assert!(
                        start.elapsed() < crate::common::PATIENCE,
                        "a wake-up was lost"
                    );
                    thread::yield_now();
                }
            }
        });
        runtime.block_on(set);
    });
}

#[test]
fn several_waiters_can_drive_one_set() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let set = LocalSet::new();
    let homes = Homes::new();
    let given = homes.clone();
    let nap = move || {
        let resident = given.resident();
        async move {
            for _ in 0..20 {
                sleep(Duration::from_micros(50)).await;
                resident.look();
            }
        }
    };
    runtime.block_on(async {
        let (one, two) = (set.spawn_local(nap()), set.spawn_local(nap()));
        let both = join!(set.run_until(one), set.run_until(two));
        assert!(both.0.is_ok() && both.1.is_ok());
    });
    // The waiters are different tasks. One of them gives up when the other has left the set to it.
    let outer = LocalSet::new();
    let set = Rc::new(set);
    outer.block_on(&runtime, async {
        for _ in 0..50 {
            let event = Event::default();
            let (inner, waits) = (set.clone(), event.clone());
            let task = inner.spawn_local(async move {
                waits.wait().await;
                sleep(Duration::from_micros(10)).await;
            });
            let stays = spawn_local(async move { inner.run_until(task).await.unwrap() });
            yield_now().await;
            let given_up = set.clone();
            let leaves = spawn_local(async move {
                given_up.run_until(future::pending::<()>()).await;
            });
            yield_now().await;
            thread::spawn(move || event.set()).join().unwrap();
            leaves.abort();
            stays.await.unwrap();
        }
    });
    drop(outer);
    drop(set);
    homes.assert_all_dropped_at_home();
}

/// Tasks that are spawned during a poll wake no other waiter, because the polling waiter would run
/// them. If that waiter stops, it wakes another one.
#[test]
fn a_waiter_that_stops_passes_queued_tasks_to_the_others() {
    for is_through in [true, false] {
        let set = LocalSet::new();
        let ran = Rc::new(Cell::new(0));
        let (woken, waker) = Woken::new();
        let mut stays = Box::pin(set.run_until(future::pending::<()>()));
        let mut cx = Context::from_waker(&waker);
        assert!(stays.as_mut().poll(&mut cx).is_pending());

        let mut leaves = Box::pin(set.run_until(async {
            // Spawn more tasks than one poll of the set runs.
            for _ in 0..100 {
                let ran = ran.clone();
                spawn_local(async move { ran.set(ran.get() + 1) });
            }
            if !is_through {
                future::pending::<()>().await;
            }
        }));
        let mut others = Context::from_waker(Waker::noop());
        let polled = leaves.as_mut().poll(&mut others);
        assert_eq!(polled.is_ready(), is_through);
        assert!(ran.get() < 100);
        drop(leaves);
        assert!(woken.count() > 0, "it is told");
        while ran.get() < 100 {
            assert!(stays.as_mut().poll(&mut cx).is_pending());
        }
    }
}

#[test]
fn a_task_spawned_from_outside_wakes_the_waiter() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (outer, inner) = (LocalSet::new(), Rc::new(LocalSet::new()));
    outer.block_on(&runtime, async {
        let (event, waits) = (Event::default(), inner.clone());
        let set = event.clone();
        let waiting = spawn_local(async move { waits.run_until(event.wait()).await });
        yield_now().await;
        // The waiter sleeps. This task is not in the inner set and does not poll it.
        inner.spawn_local(async move { set.set() });
        waiting.await.unwrap();
    });
}

#[test]
fn sets_can_be_entered_and_left_in_any_order() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (one, two) = (LocalSet::new(), LocalSet::new());
    let spawn = |name: &'static str| spawn_local(async move { name });
    let refused = || std::panic::catch_unwind(|| drop(spawn_local(async {}))).is_err();
    assert!(refused());
    let in_one = one.enter();
    let first = spawn("one");
    let in_two = two.enter();
    let second = spawn("two");
    drop(in_one);
    let third = spawn("two");
    // A task spawns into its own set, not into a set that its thread has entered.
    let inside = one.spawn_local(async move { spawn("one").await.unwrap() });
    drop(in_two);
    assert!(refused());
    one.block_on(&runtime, async {
        assert_eq!(first.await.unwrap(), "one");
        assert_eq!(inside.await.unwrap(), "one");
        assert!(!second.is_finished() && !third.is_finished());
    });
    two.block_on(&runtime, async {
        assert_eq!(second.await.unwrap(), "two");
        // A set that is entered inside of a task takes precedence over the set of the task.
        let entered = one.enter();
        let elsewhere = spawn("one");
        drop(entered);
        let here = spawn("two");
        assert_eq!(here.await.unwrap(), "two");
        assert!(!elsewhere.is_finished());
    });
    let kept = one.enter();
    drop(one);
    let late = spawn("one");
    let error = futures_lite::future::block_on(late).unwrap_err();
    assert!(error.is_cancelled(), "the set is no more");
    drop(kept);
}

#[test]
fn a_remote_abort_drops_the_task_on_the_thread_of_the_set() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let homes = Homes::new();
    let set = LocalSet::new();
    let given = homes.clone();
    set.block_on(&runtime, async {
        for round in 0..200 {
            let resident = given.resident();
            let task = spawn_local(async move {
                resident.look();
                future::pending::<()>().await;
            });
            if round % 2 == 0 {
                yield_now().await;
            }
            let abort = task.abort_handle();
            let aborting = thread::spawn(move || abort.abort());
            assert!(task.await.unwrap_err().is_cancelled());
            aborting.join().unwrap();
        }
    });
    assert_eq!(homes.dropped(), 200);
    homes.assert_all_dropped_at_home();
}

#[test]
fn a_set_in_a_pinned_task_uses_its_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let task = runtime.handle().spawn_pinned(|| async {
        let here = thread::current().id();
        let set = LocalSet::new();
        let mut ended = JoinSet::new();
        for n in 0..100_u64 {
            let local = async move {
                sleep(Duration::from_micros(n)).await;
                assert_eq!(thread::current().id(), here);
                Rc::new(n)
            };
            ended.spawn_local_on(local, &set);
        }
        // Outside of `run_until`, `spawn_local` spawns onto the worker and not into the set.
        let beside = spawn_local(async { 1 });
        let sum = set.run_until(async {
            let mut sum = 0;
            while let Some(n) = ended.join_next().await {
                sum += *n.unwrap();
            }
            sum
        });
        sum.await + beside.await.unwrap()
    });
    assert_eq!(runtime.block_on(task).unwrap(), 4_951);
}

#[test]
fn select_works_in_a_set() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let set = LocalSet::new();
    let first = set.block_on(&runtime, async {
        let mut quick = spawn_local(async { Rc::new("task") }).fuse();
        let mut slow = Box::pin(sleep(HOUR)).fuse();
        select! {
            ended = quick => *ended.unwrap(),
            () = slow => "sleep",
        }
    });
    assert_eq!(first, "task");
}
