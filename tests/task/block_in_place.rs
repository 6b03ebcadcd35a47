//! While a worker is in `block_in_place`, peers or a helper do its work.
//!
//! Each test unblocks the worker only after all events have arrived, so every event arrived while
//! the worker was blocked.

use std::{
    io::Write,
    panic::catch_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{
        AllBlocked, REST, SOON, Says, all_come_but_on, assert_ends, in_a_task, is_a_worker,
        nothing_comes, short_lived,
    },
    event::Event,
    eventually, message,
    net::connections,
    on_worker,
    paused::paused,
    runtime,
    told::{Told, worker_number},
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    Handle, Timer, net::TcpStream, runtime::Builder, task::block_in_place, time::sleep,
    timer::Outcome,
};

/// Peers serve the work that the worker had before, and the work that comes later.
#[test]
fn the_work_of_a_blocked_worker_is_served() {
    const TIMERS: usize = 200;
    const SOCKETS: usize = 20;
    const TASKS: usize = 50;
    const ALL: usize = 2 * TIMERS + SOCKETS + 2 * TASKS + 2;
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (says, came) = Says::new();
        let since = Instant::now();
        let (ours, theirs) = connections(SOCKETS);
        let reads = Arc::new(AtomicUsize::new(0));
        let (next, inside) = (Event::default(), Event::default());
        for (event, index) in [(&next, ALL - 1), (&inside, ALL - 2)] {
            let (event, says) = (event.clone(), says.clone());
            runtime.spawn(async move {
                event.wait().await;
                says.came(index, since);
            });
        }
        thread::sleep(REST);
        let release = Gate::new();
        let (sender, receiver) = mpsc::channel();
        let (gate, reading) = (release.clone(), reads.clone());
        let task = runtime.spawn(async move {
            let due = Instant::now() + SOON;
            for index in 0..TIMERS {
                drop(tourbillon::at(due, says.comes(index, due)));
            }
            let mut base = 2 * TIMERS;
            for (index, stream) in ours.into_iter().enumerate() {
                let mut stream = TcpStream::from_std(stream).unwrap();
                let (says, reading) = (says.clone(), reading.clone());
                tourbillon::spawn(async move {
                    reading.fetch_add(1, SeqCst);
                    assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
                    says.came(base + index, since);
                });
            }
            base += SOCKETS;
            let spawn = |base| {
                for index in base..base + TASKS {
                    let says = says.clone();
                    tourbillon::spawn(async move { says.came(index, since) });
                }
            };
            spawn(base);
            // This wakes a task into the LIFO slot of the worker.
            next.set();
            let here = thread::current().id();
            block_in_place(|| {
                inside.set();
                spawn(base + TASKS);
                for index in TIMERS..2 * TIMERS {
                    drop(tourbillon::at(due, says.comes(index, due)));
                }
                sender.send(here).unwrap();
                gate.wait();
            });
            assert_eq!(thread::current().id(), here);
            assert!(is_a_worker(), "again");
        });
        let blocked = receiver.recv_timeout(PATIENCE).expect("it blocks");
        eventually("they read", || reads.load(SeqCst) == SOCKETS);
        thread::sleep(REST);
        for mut stream in theirs {
            stream.write_all(&[1]).unwrap();
        }
        all_come_but_on(&[blocked], &came, ALL);
        release.open();
        runtime.block_on(task).unwrap();
        nothing_comes(&runtime, &came);
    }
}

#[test]
fn all_workers_can_block_at_once() {
    const COUNT: usize = 100;
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = short_lived(workers);
        for _ in 0..3 {
            let (says, came) = Says::new();
            let release = Gate::new();
            // Make more calls than there are workers, so that helpers block, too.
            let away = 2 * workers;
            let tasks: Vec<_> = (0..away)
                .map(|_| {
                    let (begun, gate) = (Gate::new(), release.clone());
                    let open = begun.clone();
                    let task = runtime.spawn(async move {
                        block_in_place(|| {
                            open.open();
                            gate.wait();
                        });
                    });
                    begun.wait();
                    task
                })
                .collect();
            let now = Instant::now();
            for index in 0..COUNT {
                drop(runtime.handle().at(now, says.comes(index, now)));
                let says = says.clone();
                runtime.spawn(async move { says.came(COUNT + index, now) });
            }
            all_come_but_on(&[], &came, 2 * COUNT);
            let helpers = runtime.metrics().num_helpers();
            assert!((workers + 1..=away).contains(&helpers), "{helpers} helpers");
            release.open();
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
            eventually("they have gone", || runtime.metrics().num_helpers() == 0);
            // Once no call is active, no helper may start any more.
            let started = runtime.metrics().helpers_started();
            drop(AllBlocked::all(&runtime));
            assert_eq!(runtime.metrics().helpers_started(), started);
            nothing_comes(&runtime, &came);
        }
    }
}

#[test]
fn calls_can_be_nested() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let sum = in_a_task(&runtime, move || {
        let sum = block_in_place(|| {
            let one = block_in_place(|| block_in_place(|| 1));
            // The nested calls have returned, but the outer call still holds the worker away.
            let other = handle.spawn(async { 2 });
            assert!(!is_a_worker());
            one + handle.block_on(other).unwrap()
        });
        assert!(is_a_worker());
        sum
    });
    assert_eq!(sum, 3);
}

#[test]
fn other_threads_just_call_the_function() {
    let _alarm = alarm();
    assert_eq!(block_in_place(|| 1), 1);
    let runtime = runtime(1);
    let here = thread::current().id();
    let call = || block_in_place(|| thread::current().id());
    assert_eq!(runtime.block_on(async { call() }), here);
    {
        let _entered = runtime.enter();
        assert_eq!(call(), here);
    }
    let blocking = runtime.spawn_blocking(move || {
        let handle = Handle::current();
        block_in_place(|| handle.block_on(async { sleep(SOON / 20).await }));
        call() == thread::current().id()
    });
    assert!(runtime.block_on(blocking).unwrap());
    assert_eq!(runtime.metrics().helpers_started(), 0);
}

#[test]
fn a_blocked_helper_is_replaced_by_another() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = Builder::new()
            .worker_threads(workers)
            .helpers(0..=1)
            .build()
            .unwrap();
        let blocked = AllBlocked::all(&runtime);
        let (sender, receiver) = mpsc::channel();
        runtime.spawn(async move {
            assert_eq!(worker_number(), None, "they are blocked");
            assert!(is_a_worker());
            let answer = block_in_place(|| {
                assert!(!is_a_worker());
                let handle = Handle::current();
                let other = tourbillon::spawn(async {
                    sleep(SOON / 20).await;
                    thread::current().id()
                });
                handle.block_on(other).unwrap() != thread::current().id()
            });
            assert!(is_a_worker());
            sender.send(answer).unwrap();
        });
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(true));
        assert_eq!(runtime.metrics().num_helpers(), 2);
        drop(blocked);
    }
}

/// The inner `block_on` waits for the timers and the queue of this very worker.
#[test]
fn the_runtime_of_the_worker_can_be_blocked_on() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        for _ in 0..20 {
            let task = runtime.spawn(async {
                let mut sleeping = Box::pin(sleep(SOON / 10));
                let first = futures_lite::future::poll_once(&mut sleeping).await;
                let worker = worker_number();
                let task = tourbillon::spawn(async move {
                    if first.is_none() {
                        sleeping.await;
                    }
                    let timers = (0..4).map(|n| sleep(n * SOON / 20));
                    for timer in timers {
                        timer.await;
                    }
                    42
                });
                let handle = Handle::current();
                let answer = block_in_place(|| {
                    handle.block_on(async {
                        sleep(SOON / 20).await;
                        task.await.unwrap()
                    })
                });
                assert_eq!(worker_number(), worker, "the task is where it was");
                sleep(SOON / 20).await;
                answer
            });
            assert_eq!(runtime.block_on(task).unwrap(), 42);
        }
    }
}

#[test]
fn results_and_panics_pass_through() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let answer: Result<String, u8> = in_a_task(&runtime, || block_in_place(|| Err(7)));
    assert_eq!(answer, Err(7));
    for _ in 0..3 {
        let task = runtime.spawn(async { block_in_place(|| panic!("on purpose")) });
        let error = runtime.block_on(task).unwrap_err();
        assert_eq!(message(&*error.into_panic()), "on purpose");
        // If the task catches the panic, its thread is a worker again.
        in_a_task(&runtime, || {
            let caught = catch_unwind(|| block_in_place(|| panic!("on purpose, to be caught")));
            assert!(caught.is_err());
            assert!(is_a_worker(), "it is away no more");
        });
        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
    }
    assert_eq!(runtime.metrics().num_workers(), 1);
}

#[test]
fn callbacks_can_block_and_be_cancelled_meanwhile() {
    const PERIOD: Duration = Duration::from_millis(2);
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let told = Told::new();
        let (sender, begins) = mpsc::channel();
        let release = Gate::new();
        let (gate, begun) = (release.clone(), sender.clone());
        let once = runtime.handle().after(Duration::ZERO, move || {
            block_in_place(|| {
                begun.send(()).unwrap();
                gate.wait();
            });
        });
        let gate = release.clone();
        let every = runtime.handle().every(PERIOD, move || {
            block_in_place(|| {
                sender.send(()).unwrap();
                gate.wait();
            });
        });
        for _ in 0..2 {
            begins.recv_timeout(PATIENCE).expect("both are at it");
        }
        let other = Timer::after(HOUR).on(runtime.handle());
        let other = other.start_with(told.once());
        // A recurring callback never runs twice at the same time, not even while it blocks.
        thread::sleep(10 * PERIOD);
        assert!(begins.try_recv().is_err(), "it runs already");
        other.cancel();
        assert_ends(&other, Outcome::Cancelled);
        eventually("it is told by somebody else", || told.all() == [0, 1, 0]);
        every.cancel();
        once.cancel();
        release.open();
        assert_ends(&every, Outcome::Cancelled);
        assert_ends(&once, Outcome::Fired);
        assert!(begins.try_recv().is_err(), "it was cancelled");
        on_worker(&runtime, || assert!(is_a_worker()));
    }
}

/// Without rescue, a helper still runs the tasks in the queue of the blocked worker.
#[test]
fn queued_tasks_run_without_rescue() {
    let _alarm = alarm();
    for builder in [
        Builder::new().rescue_latency(Duration::MAX),
        Builder::new().start_paused(true),
    ] {
        let runtime = builder.worker_threads(1).build().unwrap();
        for round in 0..3 {
            let sum = in_a_task(&runtime, move || {
                let handle = Handle::current();
                block_in_place(|| {
                    let tasks = [round, 40].map(|n| handle.spawn(async move { n }));
                    let [first, second] = tasks.map(|task| handle.block_on(task).unwrap());
                    first + second
                })
            });
            assert_eq!(sum, round + 40);
        }
    }
}

#[test]
fn a_paused_clock_stands_still_while_a_worker_blocks() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = paused(workers);
        let start = runtime.block_on(async { tourbillon::time::Instant::now() });
        let (begun, release) = (Gate::new(), Gate::new());
        let (open, gate) = (begun.clone(), release.clone());
        let task = runtime.spawn(async move {
            block_in_place(|| {
                open.open();
                if workers > 1 {
                    // Tasks still run if another worker does not block.
                    let other = tourbillon::spawn(async { 1 });
                    assert_eq!(Handle::current().block_on(other).unwrap(), 1);
                }
                gate.wait();
            });
            sleep(HOUR).await;
            start.elapsed()
        });
        begun.wait();
        let handle = runtime.handle().clone();
        let sleeper = thread::spawn(move || {
            handle.block_on(async move {
                sleep(2 * HOUR).await;
                start.elapsed()
            })
        });
        thread::sleep(3 * REST);
        assert!(!sleeper.is_finished(), "a worker is at a task");
        release.open();
        assert_eq!(sleeper.join().unwrap(), 2 * HOUR);
        assert_eq!(runtime.block_on(task).unwrap(), HOUR);
    }
}

/// Calls begin and end while peers and helpers take the tasks and timers of the worker.
#[test]
fn no_work_is_lost_or_repeated_when_a_call_begins_or_ends() {
    const TIMES: usize = 300;
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (says, came) = Says::new();
        let order = Arc::new(Mutex::new(()));
        let since = Instant::now();
        let blocks = {
            let (says, order) = (says.clone(), order.clone());
            runtime.spawn(async move {
                for n in 0..TIMES {
                    let now = Instant::now();
                    let theirs = says.clone();
                    tourbillon::spawn(async move { theirs.came(4 * n, since) });
                    drop(tourbillon::at(now, says.comes(4 * n + 1, now)));
                    block_in_place(|| {
                        drop(order.lock());
                        let theirs = says.clone();
                        tourbillon::spawn(async move { theirs.came(4 * n + 2, since) });
                        drop(tourbillon::at(now, says.comes(4 * n + 3, now)));
                        if n % 10 == 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                    });
                    if n % 3 == 0 {
                        tourbillon::task::yield_now().await;
                    }
                }
            })
        };
        all_come_but_on(&[], &came, 4 * TIMES);
        runtime.block_on(blocks).unwrap();
        nothing_comes(&runtime, &came);
    }
}
