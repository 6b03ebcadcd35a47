//! Futures of tasks, timers and notifications that are dropped between polls, at each poll. The
//! table is in docs/reference/cancel-safety.md.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, mpsc},
    time::Duration,
};

use tourbillon::{
    sync::Notify,
    task::{
        JoinSet, LocalSet, consume_budget, coop, spawn_blocking, spawn_local, unconstrained,
        yield_now,
    },
    timer::Cancel,
};

use crate::common::{Drops, Gate, HOUR, alarm, dropped::in_each_way, eventually, runtime};

/// Runs `cases` in a runtime, and checks that no task stays.
fn leaves_no_task(cases: impl AsyncFnOnce()) {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(cases());
    eventually("the tasks end", || runtime.metrics().num_alive_tasks() == 0);
}

#[test]
fn a_wait_for_a_task_that_is_dropped_loses_no_output() {
    leaves_no_task(async || {
        in_each_way(async |way| {
            let begin = Arc::new(Notify::new());
            let mut task = tourbillon::spawn({
                let begin = begin.clone();
                async move {
                    begin.notified().await;
                    7
                }
            });
            let ended = way.run(&mut task, async || begin.notify_one()).await;
            let is_ready = ended.is_some();
            let output = match ended {
                Some(output) => output,
                None => task.await,
            };
            assert_eq!(output.unwrap(), 7);
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let gate = Gate::new();
            let job = gate.clone();
            let mut job = spawn_blocking(move || {
                job.wait();
                7
            });
            let ended = way.run(&mut job, async || gate.open()).await;
            let is_ready = ended.is_some();
            let output = match ended {
                Some(output) => output,
                None => job.await,
            };
            assert_eq!(output.unwrap(), 7);
            is_ready
        })
        .await;
        // The handle itself: the task runs on.
        in_each_way(async |way| {
            let begin = Arc::new(Notify::new());
            let (sender, receiver) = mpsc::channel();
            let task = tourbillon::spawn({
                let begin = begin.clone();
                async move {
                    begin.notified().await;
                    sender.send(()).unwrap();
                }
            });
            let ended = way.run(task, async || begin.notify_one()).await;
            eventually("the task ends", || receiver.try_recv().is_ok());
            ended.is_some()
        })
        .await;
    });
}

#[test]
fn a_wait_for_a_set_of_tasks_that_is_dropped_loses_no_output() {
    leaves_no_task(async || {
        for with_id in [false, true] {
            in_each_way(async |way| {
                let begin = Arc::new(Notify::new());
                let mut set = JoinSet::new();
                for number in 0..3 {
                    let begin = begin.clone();
                    set.spawn(async move {
                        begin.notified().await;
                        number
                    });
                }
                let event = async || (0..3).for_each(|_| begin.notify_one());
                // The tasks may not wait yet: a notification that none waits for is kept once.
                while Arc::strong_count(&begin) < 4 {
                    yield_now().await;
                }
                let mut sum = 0;
                let is_ready = if with_id {
                    let ended = way.run(set.join_next_with_id(), event).await;
                    let is_ready = ended.is_some();
                    sum += ended.map_or(0, |ended| ended.unwrap().unwrap().1);
                    is_ready
                } else {
                    let ended = way.run(set.join_next(), event).await;
                    let is_ready = ended.is_some();
                    sum += ended.map_or(0, |ended| ended.unwrap().unwrap());
                    is_ready
                };
                assert_eq!(set.len(), if is_ready { 2 } else { 3 });
                while !set.is_empty() {
                    begin.notify_one();
                    sum += set.join_next().await.unwrap().unwrap();
                }
                assert_eq!(sum, 3);
                is_ready
            })
            .await;
        }
        // Both of these consume the set, or end its tasks.
        in_each_way(async |way| {
            let (begin, drops) = (Arc::new(Notify::new()), Drops::new());
            let mut set = JoinSet::new();
            for _ in 0..3 {
                let (begin, token) = (begin.clone(), drops.token());
                set.spawn(async move {
                    begin.notified().await;
                    drop(token);
                });
            }
            let event = async || {
                while drops.count() < 3 {
                    begin.notify_one();
                    yield_now().await;
                }
            };
            // Without the event the tasks are aborted.
            let ended = match way.polls() {
                true => way.run(set.join_all(), event).await,
                false => way.run(set.join_all(), async || {}).await,
            };
            eventually("all tasks end", || drops.count() == 3);
            ended.is_some()
        })
        .await;
        in_each_way(async |way| {
            let drops = Drops::new();
            let mut set = JoinSet::new();
            (0..3).for_each(|_| _ = set.spawn(drops.pending()));
            let ended = way.run(set.shutdown(), async || {}).await;
            if way.polls() {
                // They were aborted at the first poll, and those that were not awaited are there.
                eventually("all tasks end", || drops.count() == 3);
                assert!(ended.is_none() || set.is_empty());
                while let Some(joined) = set.join_next().await {
                    assert!(joined.unwrap_err().is_cancelled());
                }
            } else {
                assert_eq!((drops.count(), set.len()), (0, 3));
            }
            ended.is_some()
        })
        .await;
    });
}

#[test]
fn a_wait_for_local_tasks_that_is_dropped_keeps_them() {
    leaves_no_task(async || {
        for awaits_set in [false, true] {
            in_each_way(async |way| {
                let mut set = LocalSet::new();
                let count = Rc::new(Cell::new(0));
                let begin = Rc::new(Notify::new());
                let task = set.spawn_local({
                    let (count, begin) = (count.clone(), begin.clone());
                    async move {
                        begin.notified().await;
                        spawn_local(async move { count.set(count.get() + 1) })
                            .await
                            .unwrap();
                    }
                });
                let event = async || begin.notify_one();
                let is_ready = if awaits_set {
                    way.run(&mut set, event).await.is_some()
                } else {
                    let ended = way.run(set.run_until(task), event).await;
                    ended.map(Result::unwrap).is_some()
                };
                assert!(!is_ready || count.get() == 1);
                set.await;
                assert_eq!(count.get(), 1);
                is_ready
            })
            .await;
        }
    });
}

tourbillon::task_local! {
    static NUMBER: u32;
}

#[test]
fn a_scope_that_is_dropped_drops_its_future_within() {
    struct Look(Rc<Cell<u32>>);
    impl Drop for Look {
        fn drop(&mut self) {
            self.0.set(NUMBER.get());
        }
    }
    leaves_no_task(async || {
        in_each_way(async |way| {
            let seen = Rc::new(Cell::new(0));
            let look = Look(seen.clone());
            let notify = Notify::new();
            let scope = NUMBER.scope(7, async {
                notify.notified().await;
                drop(look);
            });
            let ended = way.run(scope, async || notify.notify_one()).await;
            assert_eq!(seen.get(), 7);
            assert!(NUMBER.try_get().is_err());
            ended.is_some()
        })
        .await;
    });
}

#[test]
fn a_yield_and_a_unit_of_the_budget_can_be_dropped() {
    let work = async || {
        in_each_way(async |way| way.run(yield_now(), async || {}).await.is_some()).await;
        in_each_way(async |way| {
            while coop::has_budget_remaining() {
                consume_budget().await;
            }
            way.run(consume_budget(), async || {}).await.is_some()
        })
        .await;
        for wrapper in 0..2 {
            in_each_way(async |way| {
                let notify = Notify::new();
                let event = async || notify.notify_one();
                let wait = notify.notified();
                let ended = match wrapper {
                    0 => way.run(unconstrained(wait), event).await,
                    _ => way.run(coop::cooperative(wait), event).await,
                };
                if ended.is_none() {
                    notify.notified().await;
                }
                ended.is_some()
            })
            .await;
        }
    };
    leaves_no_task(work);
}

#[test]
fn a_wait_for_a_notification_that_is_dropped_passes_it_on() {
    leaves_no_task(async || {
        for kind in 0..3 {
            in_each_way(async |way| {
                let notify = Arc::new(Notify::new());
                let event = async || notify.notify_one();
                let is_ready = match kind {
                    0 => way.run(notify.notified(), event).await.is_some(),
                    1 => way
                        .run(notify.clone().notified_owned(), event)
                        .await
                        .is_some(),
                    _ => {
                        let ended = way.run(notify.notified_timeout(HOUR), event).await;
                        ended.map(Result::unwrap).is_some()
                    }
                };
                let brief = Duration::from_millis(1);
                if is_ready {
                    assert!(
                        notify.notified_timeout(brief).await.is_err(),
                        "it was taken"
                    );
                } else {
                    notify.notified().await;
                }
                is_ready
            })
            .await;
        }
    });
}

#[test]
fn a_wait_for_a_callback_that_is_dropped_has_cancelled_its_timer() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle();
    runtime.block_on(in_each_way(async |way| {
        // The callback runs, and the wait is for its end.
        let (begun, gate) = (Gate::new(), Gate::new());
        let timer = handle.every(Duration::from_micros(1), {
            let (begun, gate) = (begun.clone(), gate.clone());
            move || {
                begun.open();
                gate.wait();
            }
        });
        begun.wait();
        let ended = way.run(timer.cancel_and_wait(), async || gate.open()).await;
        if way.polls() {
            assert_ne!(
                timer.cancel(),
                Cancel::Cancelled,
                "the first poll has cancelled it"
            );
        }
        timer.cancel_and_wait().await.unwrap();
        ended.map(Result::unwrap).is_some()
    }));
}
