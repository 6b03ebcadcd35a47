//! A ready task runs: whichever thread woke it, whatever else is ready, and whichever worker is
//! free.

use std::{
    future::poll_fn,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use crate::common::{Gate, PATIENCE, alarm, event::Event, eventually, on_worker, runtime};
use tourbillon::{JoinHandle, Runtime, task::yield_now};

#[test]
fn yielding_tasks_take_turns() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let turns = Arc::new(Mutex::new(Vec::new()));
    let tasks = {
        let turns = turns.clone();
        // One job spawns all tasks, so that none of them runs before all are spawned.
        on_worker(&runtime, move || {
            let tasks = (0..3).map(|i| {
                let turns = turns.clone();
                tourbillon::spawn(async move {
                    for _ in 0..100 {
                        turns.lock().unwrap().push(i);
                        yield_now().await;
                    }
                })
            });
            tasks.collect::<Vec<_>>()
        })
    };
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let turns = turns.lock().unwrap();
    assert_eq!(turns.len(), 300);
    for round in turns.chunks(3) {
        assert_eq!(round, [0, 1, 2]);
    }
}

#[test]
fn ready_tasks_do_not_starve_others() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    yield_now().await;
                }
            })
        })
        .collect();
    // The worker still serves a timer, a sleep, a remote spawn and a socket.
    on_worker(&runtime, || ());
    runtime.block_on(tourbillon::time::sleep(Duration::from_millis(2)));
    assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
    runtime.block_on(async {
        use futures_lite::{AsyncReadExt, AsyncWriteExt};
        use tourbillon::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tourbillon::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"hi").await.unwrap();
        });
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hi");
        server.await.unwrap();
    });
    stop.store(true, Ordering::SeqCst);
    for task in busy {
        runtime.block_on(task).unwrap();
    }
}

/// Spawns two tasks that do nothing but wake each other.
fn ping_pong(runtime: &Runtime, stop: &Arc<AtomicBool>) -> [JoinHandle<usize>; 2] {
    let wakers: Arc<Mutex<[Option<Waker>; 2]>> = Arc::default();
    [0, 1].map(|me| {
        let (wakers, stop) = (wakers.clone(), stop.clone());
        let mut polls = 0;
        runtime.spawn(poll_fn(move |cx| {
            polls += 1;
            let mut wakers = wakers.lock().unwrap();
            wakers[me] = Some(cx.waker().clone());
            if let Some(other) = wakers[1 - me].take() {
                other.wake();
            }
            if stop.load(Ordering::SeqCst) {
                Poll::Ready(polls)
            } else {
                Poll::Pending
            }
        }))
    })
}

#[test]
fn two_tasks_that_wake_each_other_do_not_starve_the_rest() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let pair = ping_pong(&runtime, &stop);
    // All this work must run, although one of the two tasks is always the next to run.
    for _ in 0..100 {
        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
    }
    on_worker(&runtime, || ());
    runtime.block_on(tourbillon::time::sleep(Duration::from_millis(1)));
    let queued = runtime.block_on(runtime.spawn(async {
        let inner = tourbillon::spawn(async { 2 });
        inner.await.unwrap()
    }));
    assert_eq!(queued.unwrap(), 2);
    stop.store(true, Ordering::SeqCst);
    // One task may end and leave the other waiting, so do not await them.
    drop(pair);
}

#[test]
fn remote_threads_wake_tasks() {
    let _alarm = alarm();
    let runtime = runtime(2);
    const TASKS: usize = 2_000;
    let events: Vec<Event> = (0..TASKS).map(|_| Event::default()).collect();
    let done = Arc::new(AtomicUsize::new(0));
    for event in &events {
        let (event, done) = (event.clone(), done.clone());
        runtime.spawn(async move {
            event.wait().await;
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    thread::scope(|scope| {
        for events in events.chunks(TASKS / 4) {
            scope.spawn(|| events.iter().for_each(Event::set));
        }
    });
    eventually("all were woken", || done.load(Ordering::SeqCst) == TASKS);
}

#[test]
fn a_task_of_one_runtime_wakes_a_task_of_another() {
    let _alarm = alarm();
    let (a, b) = (runtime(1), runtime(1));
    for _ in 0..200 {
        let (there, back) = (Event::default(), Event::default());
        let ponging = {
            let (there, back) = (there.clone(), back.clone());
            b.spawn(async move {
                there.wait().await;
                back.set();
            })
        };
        let pinging = a.spawn(async move {
            there.set();
            back.wait().await;
        });
        a.block_on(pinging).unwrap();
        a.block_on(ponging).unwrap();
    }
}

#[test]
fn a_wake_after_the_end_does_nothing() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let polls = Arc::new(AtomicUsize::new(0));
    let task = {
        let (kept, polls) = (kept.clone(), polls.clone());
        runtime.spawn(poll_fn(move |cx| {
            kept.lock().unwrap().push(cx.waker().clone());
            match polls.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                _ => Poll::Ready(5),
            }
        }))
    };
    assert_eq!(runtime.block_on(task).unwrap(), 5);
    for waker in kept.lock().unwrap().drain(..) {
        waker.wake_by_ref();
        waker.wake();
    }
    on_worker(&runtime, || ());
    assert_eq!(polls.load(Ordering::SeqCst), 2);
}

#[test]
fn many_wakes_make_one_poll() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (waker, polls) = (
        Arc::<Mutex<Option<Waker>>>::default(),
        Arc::new(AtomicUsize::new(0)),
    );
    {
        let (waker, polls) = (waker.clone(), polls.clone());
        runtime.spawn(poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            *waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
    }
    eventually("it was polled", || waker.lock().unwrap().is_some());
    let waker = waker.lock().unwrap().clone().unwrap();
    let before = polls.load(Ordering::SeqCst);
    // Wake the task on the worker, so that it cannot run in between.
    on_worker(&runtime, move || {
        for _ in 0..100 {
            waker.wake_by_ref();
        }
    });
    eventually("it was polled again", || {
        polls.load(Ordering::SeqCst) > before
    });
    on_worker(&runtime, || ());
    assert_eq!(polls.load(Ordering::SeqCst), before + 1);
}

#[test]
fn tasks_spawned_by_one_worker_run_on_all_workers() {
    let _alarm = alarm();
    for workers in [2, 4] {
        let runtime = runtime(workers);
        for _ in 0..20 {
            let barrier = Arc::new(Barrier::new(workers));
            let barriers: Vec<_> = (0..workers).map(|_| barrier.clone()).collect();
            // Each task blocks its worker until all of them run.
            let tasks = on_worker(&runtime, move || {
                let tasks = barriers.into_iter().map(|barrier| {
                    tourbillon::spawn(async move {
                        barrier.wait();
                    })
                });
                tasks.collect::<Vec<_>>()
            });
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
        }
    }
}

#[test]
fn tasks_spawned_outside_run_on_all_workers() {
    let _alarm = alarm();
    for workers in [2, 4] {
        let runtime = runtime(workers);
        for _ in 0..20 {
            let barrier = Arc::new(Barrier::new(workers));
            let tasks: Vec<_> = (0..workers)
                .map(|_| {
                    let barrier = barrier.clone();
                    runtime.spawn(async move {
                        barrier.wait();
                    })
                })
                .collect();
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
        }
    }
}

#[test]
fn a_task_continues_on_the_worker_that_wakes_it() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // One task blocks its worker. The other task goes on, even if it began on that worker.
    for _ in 0..50 {
        let (event, blocked, release) = (Event::default(), Gate::new(), Gate::new());
        let waiting = {
            let event = event.clone();
            runtime.spawn(async move { event.wait().await })
        };
        let blocking = {
            let (blocked, release) = (blocked.clone(), release.clone());
            runtime.spawn(async move {
                blocked.open();
                release.wait();
            })
        };
        blocked.wait();
        event.set();
        runtime.block_on(waiting).unwrap();
        release.open();
        runtime.block_on(blocking).unwrap();
    }
}

/// A worker that was woken to search for work counts as a searcher, and no other worker is woken
/// while there is one. The worker must stop counting before it runs a callback that came due.
#[test]
fn a_searcher_that_runs_its_own_timer_hides_no_work() {
    let _alarm = alarm();
    let runtime = runtime(3);
    for i in 0..600 {
        let release = Gate::new();
        let gate = release.clone();
        let due = std::time::Instant::now() + Duration::from_micros(400);
        let stuck = Arc::new(AtomicBool::new(false));
        let told = stuck.clone();
        let timer = runtime.handle().at(due, move || {
            told.store(!gate.wait_for(PATIENCE / 2), Ordering::SeqCst);
        });
        // Spawn the task shortly before or after the timer comes due.
        let spawn_at = due - Duration::from_micros(40) + Duration::from_nanos(150 * i);
        while std::time::Instant::now() < spawn_at {
            std::hint::spin_loop();
        }
        let task = runtime.spawn(async {});
        runtime.block_on(task).unwrap();
        release.open();
        eventually("the callback has ended", || {
            matches!(timer.status(), tourbillon::timer::Status::Over(_))
        });
        assert!(
            !stuck.load(Ordering::SeqCst),
            "the task waited for the callback"
        );
    }
}
