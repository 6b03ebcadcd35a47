//! A `JoinSet` returns each result once, in the order of completion, and wakes its waiter for
//! nothing else.

use std::{
    cell::Cell,
    collections::HashMap,
    future::{self, Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
};

use crate::common::{
    Drops, Random, alarm,
    blocking::{blocking_job, one_blocking_thread},
    event::Event,
    eventually, message, on_worker, runtime,
    woken::Woken,
};
use futures_lite::future::{block_on, or};
use tourbillon::{
    Runtime,
    task::{AbortHandle, Id, JoinSet, yield_now},
};

fn poll<T>(set: &mut JoinSet<T>, waker: &Waker) -> Poll<Option<T>> {
    let polled = set.poll_join_next(&mut Context::from_waker(waker));
    polled.map(|ended| ended.map(Result::unwrap))
}

/// Spawns a task that waits for the event and returns `n`.
fn spawn_waiting(
    set: &mut JoinSet<usize>,
    runtime: &Runtime,
    event: &Event,
    n: usize,
) -> AbortHandle {
    let event = event.clone();
    let wait = async move {
        event.wait().await;
        n
    };
    set.spawn_on(wait, runtime.handle())
}

#[test]
fn a_join_set_can_be_sent_shared_and_moved() {
    fn is<T: Send + Sync + Unpin>() {}
    is::<JoinSet<Cell<u32>>>();
    is::<JoinSet<std::marker::PhantomPinned>>();
    is::<AbortHandle>();
    assert_eq!(
        format!("{:?}", JoinSet::<()>::default()),
        "JoinSet { len: 0 }"
    );
}

#[test]
fn join_next_of_an_empty_set_returns_none() {
    let _alarm = alarm();
    let mut set = JoinSet::<()>::new();
    assert!(set.is_empty() && set.try_join_next().is_none());
    assert!(block_on(set.join_next()).is_none());
    block_on(set.shutdown());
    assert_eq!(block_on(set.join_all()), []);
}

#[test]
#[should_panic(expected = "runtime")]
fn spawn_outside_of_a_runtime_panics() {
    JoinSet::new().spawn(async {});
}

#[test]
fn results_come_in_the_order_of_completion() {
    let _alarm = alarm();
    // The only worker completes a task before it runs anything else.
    let runtime = runtime(1);
    let mut set = JoinSet::new();
    let events: Vec<Event> = (0..20).map(|_| Event::default()).collect();
    let tasks: Vec<_> = events
        .iter()
        .enumerate()
        .map(|(n, event)| spawn_waiting(&mut set, &runtime, event, n))
        .collect();
    assert_eq!(set.len(), 20);
    assert!(set.try_join_next().is_none());
    let order: Vec<usize> = (0..20).map(|n| n * 7 % 20).collect();
    let (now, later) = order.split_at(10);
    for &n in now {
        events[n].set();
        assert_eq!(block_on(set.join_next()).unwrap().unwrap(), n);
    }
    for &n in later {
        events[n].set();
        eventually("it has ended", || tasks[n].is_finished());
        on_worker(&runtime, || ());
    }
    assert_eq!(set.len(), 10, "they ended, and were not taken");
    assert_eq!(block_on(set.join_all()), later);
}

#[test]
fn panics_and_aborts_are_returned_with_the_task_id() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let mut set = JoinSet::new();
    let mut expected = HashMap::new();
    for n in 0..300 {
        let work = async move {
            match n % 3 {
                0 => future::pending().await,
                1 => panic!("task {n}"),
                _ => n,
            }
        };
        let abort = set.spawn_on(work, runtime.handle());
        if n % 3 == 0 {
            abort.abort();
        }
        expected.insert(abort.id(), n);
    }
    while let Some(ended) = block_on(set.join_next_with_id()) {
        match ended {
            Ok((id, n)) => assert_eq!(expected.remove(&id), Some(n)),
            Err(error) => {
                let n = expected.remove(&error.id()).unwrap();
                assert_eq!(error.is_cancelled(), n % 3 == 0);
                if let Ok(panic) = error.try_into_panic() {
                    assert_eq!(message(&*panic), format!("task {n}"));
                }
            }
        }
    }
    assert!(expected.is_empty());
}

#[test]
fn the_waiter_is_woken_at_most_once_per_finished_task() {
    let _alarm = alarm();
    const TASKS: usize = 10_000;
    let runtime = runtime(2);
    let mut set = JoinSet::new();
    for n in 0..TASKS {
        let work = async move {
            for _ in 0..n % 5 {
                yield_now().await;
            }
            n
        };
        set.spawn_on(work, runtime.handle());
    }
    let (mut polls, mut seen) = (0, vec![false; TASKS]);
    block_on(async {
        while let Some(ended) = poll_fn(|cx| {
            polls += 1;
            set.poll_join_next(cx)
        })
        .await
        {
            assert!(!std::mem::replace(&mut seen[ended.unwrap()], true));
        }
    });
    assert!(seen.iter().all(|seen| *seen));
    // Each task causes one wake-up, and one more if its wake-up was under way when the waiter took
    // the result.
    assert!(polls <= 3 * TASKS + 1, "{polls}");
}

#[test]
fn unfinished_tasks_do_not_wake_the_waiter() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let mut set = JoinSet::new();
    let (turns, event) = (Arc::new(AtomicUsize::new(0)), Event::default());
    for n in 0..100 {
        let turns = turns.clone();
        let turn = async move {
            loop {
                yield_now().await;
                turns.fetch_add(1, Ordering::Relaxed);
            }
        };
        if n == 50 {
            spawn_waiting(&mut set, &runtime, &event, n);
        }
        set.spawn_on(turn, runtime.handle());
    }
    let (woken, waker) = Woken::new();
    assert!(poll(&mut set, &waker).is_pending());
    let before = turns.load(Ordering::Relaxed);
    eventually("they go on", || {
        turns.load(Ordering::Relaxed) > before + 1_000
    });
    assert_eq!(woken.count(), 0);
    event.set();
    eventually("one ends", || woken.count() == 1);
    assert_eq!(poll(&mut set, &waker), Poll::Ready(Some(50)));
    assert!(poll(&mut set, &waker).is_pending());
    assert_eq!(woken.count(), 1);
    block_on(set.shutdown());
    assert!(set.is_empty());
}

#[test]
fn the_last_waker_is_woken() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (mut set, event) = (JoinSet::new(), Event::default());
    spawn_waiting(&mut set, &runtime, &event, 1);
    let ((first, first_waker), (last, last_waker)) = (Woken::new(), Woken::new());
    assert!(poll(&mut set, &first_waker).is_pending());
    assert!(poll(&mut set, &last_waker).is_pending());
    drop(first_waker);
    assert_eq!(Arc::strong_count(&first), 1, "it is not kept");
    event.set();
    eventually("it is woken", || last.count() == 1);
    assert_eq!(first.count(), 0);
    assert_eq!(poll(&mut set, &last_waker), Poll::Ready(Some(1)));
    // A task that outlives its set keeps no waker either.
    let (begun, release, job) = blocking_job(2);
    set.spawn_blocking_on(job, runtime.handle());
    begun.wait();
    assert!(poll(&mut set, &last_waker).is_pending());
    drop((set, last_waker));
    assert_eq!(Arc::strong_count(&last), 1);
    release.open();
}

#[test]
fn a_set_can_be_moved_between_polls() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let mut set = JoinSet::new();
    let events: Vec<Event> = (0..100).map(|_| Event::default()).collect();
    for (n, event) in events.iter().enumerate() {
        spawn_waiting(&mut set, &runtime, event, n);
    }
    // Two tasks poll the set in turn. Then a thread gets the first result, and a last task gets
    // the rest.
    for _ in 0..2 {
        set = runtime
            .block_on(runtime.spawn(async move {
                poll_fn(|cx| {
                    assert!(set.poll_join_next(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                set
            }))
            .unwrap();
    }
    let waits = thread::spawn(move || {
        let (_, waker) = Woken::new();
        let first = {
            let mut asked = pin!(set.join_next());
            let mut cx = Context::from_waker(&waker);
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            events.iter().for_each(Event::set);
            block_on(asked).unwrap().unwrap()
        };
        (first, set)
    });
    let (first, set) = waits.join().unwrap();
    let rest = runtime.block_on(runtime.spawn(set.join_all())).unwrap();
    assert_eq!(first + rest.iter().sum::<usize>(), 99 * 100 / 2);
}

#[test]
fn a_task_spawned_during_a_poll_wakes_the_waiter() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for _ in 0..300 {
        let (mut set, event) = (JoinSet::new(), Event::default());
        spawn_waiting(&mut set, &runtime, &event, 0);
        let mut more = 10;
        let mut sum = 0;
        runtime.block_on(poll_fn(|cx| {
            loop {
                let polled = poll(&mut set, cx.waker());
                if more > 0 {
                    set.spawn(future::ready(more));
                    more -= 1;
                } else {
                    event.set();
                }
                match polled {
                    Poll::Ready(Some(n)) => sum += n,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }));
        assert_eq!(sum, 55);
    }
}

#[test]
fn tasks_can_have_sets_of_their_own() {
    fn count(depth: usize) -> std::pin::Pin<Box<dyn Future<Output = usize> + Send>> {
        Box::pin(async move {
            let below: JoinSet<usize> = (0..depth).map(|_| count(depth - 1)).collect();
            1 + below.join_all().await.iter().sum::<usize>()
        })
    }
    let _alarm = alarm();
    let runtime = runtime(2);
    assert_eq!(runtime.block_on(runtime.spawn(count(6))).unwrap(), 1957);
}

#[test]
fn a_dropped_join_next_loses_no_result() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let sum = runtime.block_on(runtime.spawn(async {
        let mut set: JoinSet<usize> = (0..3_000)
            .map(|n| async move {
                for _ in 0..n % 7 {
                    yield_now().await;
                }
                n
            })
            .collect();
        let (mut sum, mut given_up) = (0, 0);
        while !set.is_empty() {
            let next = async { Some(set.join_next().await.unwrap().unwrap()) };
            let other = async {
                yield_now().await;
                None
            };
            // Alternate the order, so that `next` is also dropped while a result is ready.
            let first = if given_up % 2 == 0 {
                or(next, other).await
            } else {
                or(other, next).await
            };
            match first {
                Some(n) => sum += n,
                None => given_up += 1,
            }
        }
        sum
    }));
    assert_eq!(sum.unwrap(), 2_999 * 3_000 / 2);
}

#[test]
fn blocking_jobs_are_tasks_of_the_set() {
    let _alarm = alarm();
    let runtime = one_blocking_thread();
    let (begun, release, job) = blocking_job(7);
    let (mut set, drops) = (JoinSet::new(), Drops::new());
    set.spawn_blocking_on(job, runtime.handle());
    begun.wait();
    let token = drops.token();
    let queued = set.spawn_blocking_on(
        move || {
            drop(token);
            8
        },
        runtime.handle(),
    );
    set.abort_all();
    let error = block_on(set.join_next()).unwrap().unwrap_err();
    assert!(error.is_cancelled() && error.id() == queued.id());
    assert_eq!(drops.count(), 1);
    release.open();
    assert_eq!(block_on(set.join_all()), [7], "it had begun");
    runtime.block_on(async {
        let mut set = JoinSet::new();
        set.spawn_blocking(|| panic!("a job"));
        let ended: Result<(), _> = set.join_next().await.unwrap();
        assert!(ended.unwrap_err().is_panic());
    });
}

#[test]
fn a_loop_over_finished_tasks_yields() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let gave_way = runtime.block_on(runtime.spawn(async {
        let ran = Arc::new(AtomicBool::new(false));
        let mut set = JoinSet::new();
        set.extend((0..1_000).map(|_| async {}));
        assert_eq!(set.len(), 1_000);
        let tasks_end = set.spawn(async {});
        while !tasks_end.is_finished() {
            yield_now().await;
        }
        let other = ran.clone();
        tourbillon::spawn(async move { other.store(true, Ordering::Relaxed) });
        let mut before = 0;
        while set.join_next().await.is_some() && !ran.load(Ordering::Relaxed) {
            before += 1;
        }
        before
    }));
    let before = gave_way.unwrap();
    assert!(before < 200, "{before}");
}

/// The fate of a task in a random program.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Returns,
    Panics,
    Waits,
}

#[test]
fn random_programs_get_each_result_once() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut set = JoinSet::new();
        let mut alive = HashMap::new();
        let mut aborts = HashMap::new();
        let end = |ended: Result<(Id, u64), tourbillon::JoinError>,
                   alive: &mut HashMap<_, Fate>,
                   aborts: &mut HashMap<_, (AbortHandle, bool)>| {
            let id = ended
                .as_ref()
                .map_or_else(|error| error.id(), |(id, _)| *id);
            let fate = alive.remove(&id).expect("it was in the set, once");
            let (_, aborted) = aborts.remove(&id).unwrap();
            match ended {
                Ok(_) => assert!(fate == Fate::Returns),
                Err(error) if error.is_panic() => assert!(fate == Fate::Panics),
                Err(_) => assert!(aborted),
            }
        };
        for _ in 0..200 {
            match random.below(10) {
                0..5 => {
                    let fate = [Fate::Returns, Fate::Panics, Fate::Waits][random.below(3) as usize];
                    let turns = random.below(4);
                    let work = async move {
                        for _ in 0..turns {
                            yield_now().await;
                        }
                        match fate {
                            Fate::Returns => turns,
                            // `resume_unwind` panics without a message on the standard error.
                            Fate::Panics => std::panic::resume_unwind(Box::new(turns)),
                            Fate::Waits => future::pending().await,
                        }
                    };
                    let abort = set.spawn_on(work, runtime.handle());
                    alive.insert(abort.id(), fate);
                    aborts.insert(abort.id(), (abort, false));
                }
                5..7 => {
                    if let Some((abort, aborted)) = aborts.values_mut().next() {
                        abort.abort();
                        *aborted = true;
                    }
                }
                7 if random.below(10) == 0 => {
                    set.abort_all();
                    aborts.values_mut().for_each(|(_, aborted)| *aborted = true);
                }
                8 if random.below(20) == 0 => {
                    set.detach_all();
                    // Abort the detached tasks, because some of them wait forever.
                    aborts.drain().for_each(|(_, (abort, _))| abort.abort());
                    alive.clear();
                }
                _ => {
                    if let Some(ended) = set.try_join_next_with_id() {
                        end(ended, &mut alive, &mut aborts);
                    }
                }
            }
            assert_eq!(set.len(), alive.len());
        }
        set.abort_all();
        aborts.values_mut().for_each(|(_, aborted)| *aborted = true);
        while let Some(ended) = block_on(set.join_next_with_id()) {
            end(ended, &mut alive, &mut aborts);
        }
        assert!(alive.is_empty());
    }
}
