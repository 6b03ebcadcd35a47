//! Tasks: spawned, joined, aborted, woken from anywhere, and moved between workers.

mod common;

use std::{
    cell::Cell,
    future::{self, Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, message, on_worker, runtime};
use tourbillon::{Handle, JoinHandle, NoRuntime, Runtime, runtime::Builder, task::yield_now};

/// A runtime whose threads all have this name.
fn named(name: &str, workers: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .thread_name(name)
        .build()
        .unwrap()
}

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// What somebody else completes, from any thread.
#[derive(Clone, Default)]
struct Event(Arc<Mutex<(bool, Option<Waker>)>>);

impl Event {
    fn set(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn a_task_gives_its_result_to_who_joins_it() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let sum = runtime.block_on(async {
        let a = tourbillon::spawn(async { 1 });
        let b = tourbillon::spawn(async {
            let inner = tourbillon::spawn(async { String::from("20") });
            inner.await.unwrap().parse::<i32>().unwrap()
        });
        a.await.unwrap() + b.await.unwrap()
    });
    assert_eq!(sum, 21);
    let task = runtime.handle().spawn(async { vec![1, 2, 3] });
    assert_eq!(runtime.handle().block_on(task).unwrap(), [1, 2, 3]);
}

#[test]
fn tasks_run_on_workers_and_block_on_on_its_caller() {
    let _alarm = alarm();
    let runtime = named("workers", 2);
    let here = thread::current().id();
    runtime.block_on(async {
        assert_eq!(thread::current().id(), here);
        let name = tourbillon::spawn(async { thread_name() });
        assert_eq!(name.await.unwrap(), "workers");
        assert_eq!(thread::current().id(), here);
    });
}

#[test]
fn block_on_may_borrow_and_need_not_be_send() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let cell = Cell::new(1);
    let text = String::from("borrowed");
    let answer = runtime.block_on(async {
        yield_now().await;
        cell.set(2);
        &text
    });
    assert_eq!((answer.as_str(), cell.get()), ("borrowed", 2));
}

#[test]
fn block_on_lets_the_panic_of_its_future_through() {
    let runtime = runtime(1);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async { panic!("mine") })
    }))
    .unwrap_err();
    assert_eq!(message(&*panic), "mine");
    assert!(Handle::try_current().is_err(), "the context is left");
    assert_eq!(runtime.block_on(async { 3 }), 3);
}

#[test]
fn a_dropped_handle_lets_the_task_run_on() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (event, done) = (Event::default(), Gate::new());
    {
        let (event, done) = (event.clone(), done.clone());
        drop(runtime.spawn(async move {
            event.wait().await;
            done.open();
        }));
    }
    assert!(!done.is_open());
    event.set();
    done.wait();
}

#[test]
fn a_panic_is_told_to_who_joins_and_to_nobody_else() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let literal = runtime.block_on(runtime.spawn(async { panic!("literal") }));
    let error: tourbillon::JoinError = literal.map(|(): ()| ()).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    assert!(error.to_string().contains("literal"), "{error}");
    assert!(format!("{error:?}").contains("literal"));
    assert_eq!(message(&*error.into_panic()), "literal");

    let number = 7;
    let formatted = runtime.spawn(async move {
        yield_now().await;
        panic!("formatted {number}")
    });
    let error = runtime.block_on(formatted).map(|(): ()| ()).unwrap_err();
    assert!(error.to_string().contains("formatted 7"), "{error}");
    let error = std::io::Error::from(error);
    assert!(error.to_string().contains("formatted 7"), "{error}");

    // Anything may be thrown.
    let task = runtime.spawn(async { std::panic::panic_any(Cell::new(5)) });
    let error = runtime.block_on(task).map(|(): ()| ()).unwrap_err();
    assert_eq!(error.to_string(), "task panicked");
    let payload = error.try_into_panic().unwrap();
    assert_eq!(payload.downcast::<Cell<i32>>().unwrap().get(), 5);

    assert_eq!(runtime.metrics().total().panics, 3);
    assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
}

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
fn is_finished_tells_when_a_task_has_ended() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let event = Event::default();
    let task = {
        let event = event.clone();
        runtime.spawn(async move { event.wait().await })
    };
    on_worker(&runtime, || ());
    assert!(!task.is_finished());
    assert!(format!("{task:?}").contains("false"));
    event.set();
    eventually("it is finished", || task.is_finished());
    assert!(format!("{task:?}").contains("true"));
}

#[test]
fn a_join_handle_polled_again_says_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let mut task = runtime.spawn(async { 1 });
    runtime.block_on(async {
        assert_eq!((&mut task).await.unwrap(), 1);
        assert!((&mut task).await.unwrap_err().is_cancelled());
    });
    assert!(task.is_finished());
}

#[test]
fn a_join_handle_may_change_hands_while_it_is_awaited() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let event = Event::default();
    let mut task = {
        let event = event.clone();
        runtime.spawn(async move {
            event.wait().await;
            11
        })
    };
    // Polled here first, and then by another task, which is the one to be woken.
    let noop = Waker::noop();
    let polled = Pin::new(&mut task).poll(&mut Context::from_waker(noop));
    assert!(polled.is_pending());
    let other = runtime.spawn(async move { task.await.unwrap() });
    on_worker(&runtime, || ());
    event.set();
    assert_eq!(runtime.block_on(other).unwrap(), 11);
}

#[test]
fn yielding_tasks_take_turns() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let turns = Arc::new(Mutex::new(Vec::new()));
    let tasks = {
        let turns = turns.clone();
        // Spawned by one job, so that none of them runs before all are there.
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
fn tasks_that_are_always_ready_starve_nobody() {
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
    // A timer, a sleep, work from outside, and a socket.
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

/// Two tasks that do nothing but wake each other.
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
    // All of this has to get past two tasks of which one is always to run next.
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
    // One of them ends, and may leave the other waiting.
    drop(pair);
}

#[test]
fn block_on_in_a_worker_panics_and_the_worker_lives_on() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let inner = handle.clone();
    let task = handle.spawn(async move { inner.block_on(async { 1 }) });
    let error = runtime.block_on(task).unwrap_err();
    assert!(error.to_string().contains("block_on"), "{error}");

    let inner = handle.clone();
    handle.after(Duration::ZERO, move || inner.block_on(async {}));
    eventually("both panics are counted", || {
        runtime.metrics().total().panics == 2
    });

    // On the worker of another runtime, too: it has work of its own.
    let other = common::runtime(1);
    let task = other.spawn(async move { handle.block_on(async { 1 }) });
    assert!(other.block_on(task).unwrap_err().is_panic());
    assert_eq!(runtime.block_on(runtime.spawn(async { 2 })).unwrap(), 2);
    assert_eq!(other.block_on(other.spawn(async { 3 })).unwrap(), 3);
}

#[test]
fn block_on_may_be_nested_outside_of_workers() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    let names = a.block_on(async {
        let first = tourbillon::spawn(async { thread_name() }).await.unwrap();
        let second = b.block_on(async {
            tourbillon::time::sleep(Duration::from_millis(1)).await;
            tourbillon::spawn(async { thread_name() }).await.unwrap()
        });
        let third = tourbillon::spawn(async { thread_name() }).await.unwrap();
        [first, second, third]
    });
    assert_eq!(names, ["a", "b", "a"]);
}

#[test]
fn runtimes_spawn_and_arm_on_each_other() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    let to = b.handle().clone();
    let names = a.block_on(a.spawn(async move {
        let on_b = to.spawn(async { thread_name() }).await.unwrap();
        let entered = {
            let _entered = to.enter();
            tourbillon::spawn(async { thread_name() })
        };
        let (sender, receiver) = mpsc::channel();
        let timer = {
            let _entered = to.enter();
            tourbillon::after(Duration::ZERO, move || sender.send(thread_name()).unwrap())
        };
        let timed = receiver.recv_timeout(PATIENCE).unwrap();
        drop(timer);
        let here = tourbillon::spawn(async { thread_name() }).await.unwrap();
        [on_b, entered.await.unwrap(), timed, here]
    }));
    assert_eq!(names.unwrap(), ["b", "b", "b", "a"]);
}

/// Which runtime the calling thread is in, by the name of its threads.
fn current() -> Option<String> {
    let handle = Handle::try_current().ok()?;
    let (sender, receiver) = mpsc::channel();
    handle.after(Duration::ZERO, move || sender.send(thread_name()).unwrap());
    Some(receiver.recv_timeout(PATIENCE).unwrap())
}

#[test]
fn entered_runtimes_nest() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    {
        let _a = a.enter();
        assert_eq!(current().as_deref(), Some("a"));
        {
            let _b = b.enter();
            assert_eq!(current().as_deref(), Some("b"));
            let _again = a.handle().enter();
            assert_eq!(current().as_deref(), Some("a"));
            b.block_on(async { assert_eq!(current().as_deref(), Some("b")) });
            assert_eq!(current().as_deref(), Some("a"));
        }
        assert_eq!(current().as_deref(), Some("a"));
    }
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
}

#[test]
fn guards_dropped_out_of_order_leave_nothing_entered() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    let outer = a.enter();
    let inner = b.enter();
    drop(outer);
    // Those entered later went with it.
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    drop(inner);
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    // A guard that is dropped late takes only its own with it.
    let first = a.enter();
    let second = b.enter();
    drop(first);
    let _third = a.enter();
    let _fourth = b.enter();
    drop(second);
    assert_eq!(current().as_deref(), Some("b"));
}

#[test]
fn outside_of_a_runtime_there_is_no_current_one() {
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    let error = NoRuntime.to_string();
    assert!(error.contains("in no Tourbillon runtime"), "{error}");
    let panic = std::panic::catch_unwind(|| drop(Handle::current())).unwrap_err();
    assert!(message(&*panic).contains("in no Tourbillon runtime"));
    let panic = std::panic::catch_unwind(|| drop(tourbillon::spawn(async {}))).unwrap_err();
    assert!(message(&*panic).contains("in no Tourbillon runtime"));
}

#[test]
fn a_thread_in_a_task_or_callback_is_in_its_runtime() {
    let _alarm = alarm();
    let runtime = named("mine", 1);
    assert_eq!(
        on_worker(&runtime, || Handle::try_current().is_ok()),
        Handle::try_current().is_err()
    );
    let task = runtime.spawn(async { tourbillon::spawn(async { thread_name() }).await.unwrap() });
    assert_eq!(runtime.block_on(task).unwrap(), "mine");
}

#[test]
fn tasks_are_woken_from_foreign_threads() {
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
    // By the worker itself, so that the task cannot run in between.
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
fn what_one_worker_spawns_all_workers_run() {
    let _alarm = alarm();
    for workers in [2, 4] {
        let runtime = runtime(workers);
        for _ in 0..20 {
            let barrier = Arc::new(Barrier::new(workers));
            let barriers: Vec<_> = (0..workers).map(|_| barrier.clone()).collect();
            // Each blocks its worker until all of them run.
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
fn what_is_spawned_outside_all_workers_run() {
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
fn a_task_goes_on_where_it_is_woken() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // One task blocks its worker; the other, which may have begun there, still gets on.
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

/// A worker that was woken to search for work counts as a searcher, and while there is one nobody is
/// woken. It must not take that along into a callback of its own that came due meanwhile.
#[test]
fn a_worker_that_was_woken_to_search_and_finds_its_own_timer_hides_no_work() {
    let _alarm = alarm();
    let runtime = runtime(3);
    for i in 0..600 {
        let release = Gate::new();
        let gate = release.clone();
        let due = std::time::Instant::now() + Duration::from_micros(400);
        let stuck = Arc::new(AtomicBool::new(false));
        let told = stuck.clone();
        let timer = runtime.at(due, move || {
            told.store(!gate.wait_for(PATIENCE / 2), Ordering::SeqCst);
        });
        // About when the timer comes due, on either side of it.
        let spawn_at = due - Duration::from_micros(40) + Duration::from_nanos(150 * i);
        while std::time::Instant::now() < spawn_at {
            std::hint::spin_loop();
        }
        let task = runtime.spawn(async {});
        runtime.block_on(task).unwrap();
        release.open();
        eventually("the callback has ended", || {
            matches!(timer.status(), tourbillon::Status::Over(_))
        });
        assert!(
            !stuck.load(Ordering::SeqCst),
            "the task waited for the callback"
        );
    }
}

#[test]
fn a_hundred_thousand_tasks_complete() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let done = Arc::new(AtomicUsize::new(0));
    // From outside and from a worker.
    for _ in 0..50_000 {
        let done = done.clone();
        runtime.spawn(async move {
            yield_now().await;
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    let inner = done.clone();
    let sum = runtime.spawn(async move {
        let mut tasks = Vec::new();
        for i in 0..50_000_u64 {
            let done = inner.clone();
            tasks.push(tourbillon::spawn(async move {
                done.fetch_add(1, Ordering::SeqCst);
                i
            }));
        }
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        sum
    });
    assert_eq!(runtime.block_on(sum).unwrap(), 50_000 * 49_999 / 2);
    eventually("all have ended", || done.load(Ordering::SeqCst) == 100_000);
}

#[test]
fn a_task_that_ends_frees_what_it_holds_though_its_handle_is_kept() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let token = drops.token();
    let task = runtime.spawn(async move {
        let _token = token;
        yield_now().await;
    });
    eventually("it is finished", || task.is_finished());
    eventually("it is dropped", || drops.count() == 1);
    runtime.block_on(task).unwrap();

    // And its result, if nobody wants it.
    let token = drops.token();
    let task = runtime.spawn(async move { token });
    eventually("it is finished", || task.is_finished());
    assert_eq!(drops.count(), 1);
    drop(task);
    assert_eq!(drops.count(), 2);
    let token = drops.token();
    drop(runtime.spawn(async move { token }));
    eventually("the result is dropped", || drops.count() == 3);
}
