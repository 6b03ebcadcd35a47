//! While all workers are blocked, helpers do their work, up to the bound of the builder.
//!
//! A test unblocks the workers after all events have come. `helper_threads` tests how helpers
//! start and end.

use std::{
    future::Future,
    io::Write,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Waker},
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{AllBlocked, REST, SOON, Says, assert_ends, nothing_comes},
    event::Event,
    eventually,
    net::connections,
    panics::assert_alive,
    rounds, skip,
    told::worker_number,
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    Runtime, Timer, net::TcpStream, runtime::Builder, task::yield_now, time::sleep, timer::Outcome,
};

fn runtime(workers: usize, most: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .helpers(0..=most)
        .build()
        .unwrap()
}

/// Blocks a helper until the returned gate is opened. All workers must be blocked.
#[track_caller]
fn block_a_helper(runtime: &Runtime) -> Gate {
    let release = Gate::new();
    let (sender, receiver) = mpsc::channel();
    let gate = release.clone();
    runtime.spawn(async move {
        sender.send(worker_number()).unwrap();
        gate.wait();
    });
    let worker = receiver
        .recv_timeout(PATIENCE / 3)
        .expect("a helper runs it");
    assert_eq!(worker, None, "they are blocked");
    release
}

/// The timers are armed on each worker, and the sockets are registered there or elsewhere.
#[test]
fn timers_and_sockets_are_served_while_all_workers_are_blocked() {
    const TIMERS: usize = 1_000;
    const SOCKETS: usize = 100;
    let _alarm = alarm();
    for (workers, most) in [(1, 1), (1, 3), (2, 1), (2, 2)] {
        let runtime = runtime(workers, most);
        let (fires, fired) = Says::new();
        let (reads, read) = Says::new();
        let (ours, theirs) = connections(SOCKETS);
        let ours = Mutex::new(ours.into_iter().enumerate());
        let wrote: Arc<[OnceLock<Instant>]> = (0..SOCKETS).map(|_| OnceLock::new()).collect();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (writes, count) = (wrote.clone(), waiting.clone());
        // The deadline comes after all timers are armed and all workers are blocked.
        let due = Instant::now() + 15 * SOON;
        let blocked = AllBlocked::after(&runtime, move |worker| {
            for index in (worker..TIMERS).step_by(workers) {
                drop(tourbillon::at(due, fires.comes(index, due)));
            }
            for (index, stream) in ours.lock().unwrap().by_ref().take(SOCKETS / workers) {
                let mut stream = TcpStream::from_std(stream).unwrap();
                let (writes, reads, count) = (writes.clone(), reads.clone(), count.clone());
                tourbillon::spawn(async move {
                    // The socket is waited for from this poll on, and not only once a helper has
                    // time for the task.
                    let mut byte = [0];
                    let mut reading = pin!(stream.read(&mut byte));
                    let noop = Waker::noop();
                    let now = reading.as_mut().poll(&mut Context::from_waker(noop));
                    count.fetch_add(1, SeqCst);
                    assert!(now.is_pending(), "nothing was written");
                    assert_eq!(reading.await.unwrap(), 1);
                    reads.came(index, *writes[index].get().unwrap());
                });
            }
        });
        eventually("all tasks read", || waiting.load(SeqCst) == SOCKETS);
        thread::sleep(REST);
        for (mut stream, wrote) in theirs.iter().zip(&*wrote) {
            wrote.set(Instant::now()).unwrap();
            stream.write_all(&[1]).unwrap();
        }
        // The workers are blocked until all have come: helpers have served them.
        blocked.all_come_elsewhere(&read, SOCKETS);
        blocked.all_come_elsewhere(&fired, TIMERS);
        eventually("all are counted", || {
            runtime.metrics().helper_counts().callbacks() >= TIMERS as u64
        });
        drop(blocked);
        nothing_comes(&runtime, &fired);
    }
}

#[test]
fn tasks_in_all_queues_run_while_all_workers_are_blocked() {
    const QUEUED: usize = 100;
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers, 1);
        let (says, came) = Says::new();
        let since = Instant::now();
        // The blocking task wakes each of these tasks, which puts them into the LIFO slot of its
        // worker.
        let events: Arc<[Event]> = (0..workers).map(|_| Event::default()).collect();
        let waiting = Arc::new(AtomicUsize::new(0));
        for (index, event) in events.iter().cloned().enumerate() {
            let (says, waiting) = (says.clone(), waiting.clone());
            runtime.spawn(async move {
                waiting.fetch_add(1, SeqCst);
                event.wait().await;
                says.came(index, since);
            });
        }
        eventually("they wait", || waiting.load(SeqCst) == workers);
        thread::sleep(REST);
        let inside = says.clone();
        let blocked = AllBlocked::after(&runtime, move |worker| {
            for index in 0..QUEUED {
                let says = inside.clone();
                let index = workers + worker * QUEUED + index;
                tourbillon::spawn(async move { says.came(index, since) });
            }
            events[worker].set();
        });
        let queued = workers + workers * QUEUED;
        for index in queued..queued + QUEUED {
            let says = says.clone();
            runtime.spawn(async move { says.came(index, since) });
        }
        blocked.all_come_elsewhere(&came, queued + QUEUED);
        // Then one task at a time, when the helper is in reserve again.
        for _ in 0..5 {
            thread::sleep(REST);
            let says = says.clone();
            runtime.spawn(async move { says.came(0, since) });
            blocked.all_come_elsewhere(&came, 1);
        }
        drop(blocked);
        nothing_comes(&runtime, &came);
    }
}

#[test]
fn timers_of_all_kinds_fire_while_all_workers_are_blocked() {
    const COUNT: usize = 200;
    const PERIOD: Duration = Duration::from_millis(5);
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers, 1);
        let (says, came) = Says::new();
        let (ticks, ticked) = Says::new();
        let blocked = AllBlocked::all(&runtime);
        let start = Instant::now();
        for index in 0..COUNT {
            let due = start + Duration::from_micros(100) * index as u32;
            let timer = Timer::at(due).on(runtime.handle());
            timer
                .on_worker(index % workers)
                .start(says.comes(index, due));
        }
        blocked.all_come_elsewhere(&came, COUNT);
        for delay in [0, 100, 1_000, 10_000].map(Duration::from_micros) {
            thread::sleep(REST);
            let due = Instant::now() + delay;
            drop(runtime.handle().at(due, says.comes(0, due)));
            blocked.all_come_elsewhere(&came, 1);
            let due = Instant::now() + delay;
            let wall = Timer::at_wall(SystemTime::now() + delay).on(runtime.handle());
            // The two clocks are read at different moments.
            drop(wall.start(says.comes(0, due - Duration::from_millis(5))));
            blocked.all_come_elsewhere(&came, 1);
        }
        let armed = Instant::now();
        let timer = runtime.handle().every(PERIOD, move || ticks.came(0, armed));
        for n in 1..=10 {
            let [came] = &blocked.all_come_elsewhere(&ticked, 1)[..] else {
                unreachable!("one was asked for")
            };
            assert!(came.at >= armed + n * PERIOD, "run {n} is early");
        }
        timer.cancel();
        assert_ends(&timer, Outcome::Cancelled);
        drop(blocked);
        // Discard the runs between the last received one and the timer's end.
        let _runs = ticked.try_iter().count();
        nothing_comes(&runtime, &ticked);
        nothing_comes(&runtime, &came);
    }
}

#[test]
fn blocked_helpers_are_replaced_up_to_the_bound() {
    let _alarm = alarm();
    for (workers, most) in [(1, 1), (1, 3), (2, 2)] {
        let runtime = runtime(workers, most);
        let (says, came) = Says::new();
        let blocked = AllBlocked::all(&runtime);
        let gates: Vec<_> = (0..most).map(|_| block_a_helper(&runtime)).collect();
        assert_eq!(runtime.metrics().num_helpers(), most);
        assert_eq!(runtime.metrics().num_idle_helpers(), 0);
        let now = Instant::now();
        drop(runtime.handle().at(now, says.comes(0, now)));
        let theirs = says.clone();
        runtime.spawn(async move { theirs.came(1, now) });
        thread::sleep(10 * REST);
        assert!(came.try_recv().is_err(), "there is nobody left");
        assert_eq!(runtime.metrics().num_helpers(), most);
        assert_eq!(runtime.metrics().helpers_started(), most as u64);
        // Any helper that is released goes on with the waiting tasks.
        gates[most / 2].open();
        blocked.all_come_elsewhere(&came, 2);
        assert_eq!(runtime.metrics().helpers_started(), most as u64);
        gates.iter().for_each(Gate::open);
        drop(blocked);
        nothing_comes(&runtime, &came);
    }
}

/// The next helper can take everything from a blocked helper's queue and LIFO slot, as from a
/// worker's.
#[test]
fn the_queue_of_a_blocked_helper_is_run_by_the_next() {
    const QUEUED: usize = 20;
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers, 2);
        let (says, came) = Says::new();
        let blocked = AllBlocked::all(&runtime);
        let since = Instant::now();
        let (event, waits) = (Event::default(), Gate::new());
        let (awaited, open, theirs) = (event.clone(), waits.clone(), says.clone());
        runtime.spawn(async move {
            open.open();
            awaited.wait().await;
            theirs.came(QUEUED, since);
        });
        waits.wait();
        thread::sleep(REST);
        let release = Gate::new();
        let gate = release.clone();
        let (sender, receiver) = mpsc::channel();
        let theirs = says.clone();
        runtime.spawn(async move {
            sender.send(thread::current().id()).unwrap();
            for index in 0..QUEUED {
                let says = theirs.clone();
                tourbillon::spawn(async move { says.came(index, since) });
            }
            event.set();
            gate.wait();
        });
        let helper = receiver
            .recv_timeout(PATIENCE / 3)
            .expect("a helper runs it");
        for came in blocked.all_come_elsewhere(&came, QUEUED + 1) {
            assert_ne!(came.thread, helper, "it is blocked");
        }
        release.open();
        drop(blocked);
        nothing_comes(&runtime, &came);
    }
}

#[test]
fn an_upper_bound_of_zero_starts_no_helper() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = Builder::new()
            .worker_threads(workers)
            .helpers(0..=0)
            .build()
            .unwrap();
        let (says, came) = Says::new();
        for _ in 0..3 {
            let blocked = AllBlocked::all(&runtime);
            let now = Instant::now();
            drop(runtime.handle().at(now, says.comes(0, now)));
            thread::sleep(3 * REST);
            assert!(came.try_recv().is_err(), "they are blocked");
            drop(blocked);
            came.recv_timeout(PATIENCE).expect("it comes then");
        }
        let metrics = runtime.metrics();
        assert_eq!(metrics.num_helpers(), 0);
        assert_eq!(metrics.helpers_started(), 0);
        assert_eq!(metrics.helper_counts(), &Default::default());
    }
}

/// This holds if each job is short and the machine gives the threads their time.
#[test]
fn busy_workers_get_no_helper() {
    const LONG: Duration = Duration::from_micros(400);
    let _alarm = alarm();
    let runtime = runtime(2, 2);
    let (mut alone, mut helped) = (0, Vec::new());
    // On a busy machine most rounds do not count, and a single one says little.
    rounds(u64::MAX).any(|_| {
        let before = runtime.metrics();
        let longest = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let (longest, stop) = (longest.clone(), stop.clone());
                let mut last = Instant::now();
                runtime.spawn(async move {
                    while !stop.load(SeqCst) {
                        while last.elapsed() < Duration::from_micros(30) {
                            std::hint::spin_loop();
                        }
                        yield_now().await;
                        longest.fetch_max(last.elapsed().as_nanos() as u64, SeqCst);
                        last = Instant::now();
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(8));
        stop.store(true, SeqCst);
        tasks
            .into_iter()
            .for_each(|task| runtime.block_on(task).unwrap());
        if Duration::from_nanos(longest.load(SeqCst)) > LONG {
            // To the watchdog, a worker that the machine does not run looks blocked.
            return false;
        }
        let after = runtime.metrics();
        let by_helpers = after.helper_counts().polls() - before.helper_counts().polls();
        let all = after.total().polls() - before.total().polls();
        if all < 20 {
            // The machine ran no worker in time: none was busy.
            return false;
        }
        if by_helpers * 10 <= all {
            alone += 1;
        } else {
            helped.push((by_helpers, all));
        }
        alone + helped.len() >= 20
    });
    if alone == 0 && helped.is_empty() {
        return skip("the machine lets no worker run for long");
    }
    // The machine may also stop a worker between two jobs, which no job notices.
    assert!(helped.len() <= alone, "{alone} times not, but {helped:?}");
}

#[test]
fn a_panic_on_a_helper_is_contained() {
    const JOBS: usize = 20;
    let _alarm = alarm();
    let runtime = runtime(1, 1);
    let (says, came) = Says::new();
    let blocked = AllBlocked::all(&runtime);
    let now = Instant::now();
    let mut tasks = Vec::new();
    for index in 0..JOBS {
        let timer = runtime
            .handle()
            .after(Duration::ZERO, || panic!("on purpose, in a callback"));
        assert_ends(&timer, Outcome::Fired);
        tasks.push(runtime.spawn(async { panic!("on purpose, in a task") }));
        drop(runtime.handle().at(now, says.comes(index, now)));
    }
    blocked.all_come_elsewhere(&came, JOBS);
    for task in tasks {
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.is_panic());
    }
    let metrics = runtime.metrics();
    assert!(metrics.helper_counts().panics() >= JOBS as u64);
    assert_eq!(metrics.helpers_started(), 1, "it lives on");
    drop(blocked);
    assert_alive(&runtime);
}

/// The counts of timers are right on whichever thread the timers are armed, moved and run.
#[test]
fn helper_counts_balance_and_never_decrease() {
    const ROUNDS: usize = 15;
    const SLEEPS: u64 = 5;
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .helpers(0..=2)
        .thread_keep_alive(Duration::from_millis(2))
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (handle, stopped) = (runtime.handle().clone(), stop.clone());
    let sampler = thread::spawn(move || {
        let mut last = handle.metrics();
        while !stopped.load(SeqCst) {
            let now = handle.metrics();
            let both = [last.total(), now.total()];
            let [last_counts, counts] = both.map(|it| {
                let over = [it.fired(), it.cancelled(), it.shut_down()];
                let done = [
                    it.fired(),
                    it.callbacks(),
                    it.polls(),
                    it.steal_operations(),
                ];
                let help = [
                    it.alarms(),
                    it.rescued_timers(),
                    it.rescued_tasks(),
                    it.panics(),
                ];
                (over, done, help)
            });
            let goes_on = |a: &[u64], b: &[u64]| a.iter().zip(b).all(|(a, b)| a <= b);
            assert!(
                goes_on(&last_counts.0, &counts.0)
                    && goes_on(&last_counts.1, &counts.1)
                    && goes_on(&last_counts.2, &counts.2),
                "{last:?}, and then {now:?}"
            );
            assert!(last.helpers_started() <= now.helpers_started());
            assert!(now.num_helpers() <= 2 && now.num_idle_helpers() <= 2);
            last = now;
        }
    });
    for round in 1..=ROUNDS {
        let blocked = AllBlocked::all(&runtime);
        let done = Gate::new();
        let open = done.clone();
        runtime.spawn(async move {
            let timers: Vec<_> = (0..50).map(|_| tourbillon::after(HOUR, || ())).collect();
            timers.iter().for_each(|timer| _ = timer.cancel());
            for _ in 0..50 {
                drop(tourbillon::after(Duration::ZERO, || ()));
            }
            for _ in 0..SLEEPS {
                sleep(Duration::from_micros(100)).await;
            }
            open.open();
        });
        done.wait();
        drop(blocked);
        eventually("they have ended", || runtime.metrics().num_helpers() == 0);
        eventually("all is counted", || {
            let counts = runtime.metrics().total();
            counts.armed() == (100 + SLEEPS) * round as u64
                && counts.cancelled() == 50 * round as u64
                && counts.fired() == (50 + SLEEPS) * round as u64
        });
        assert_eq!(runtime.metrics().total().shut_down(), 0);
    }
    stop.store(true, SeqCst);
    sampler.join().unwrap();
    let metrics = runtime.metrics();
    assert!(metrics.helpers_started() >= ROUNDS as u64);
    assert!(metrics.helper_counts().fired() > 0);
}
