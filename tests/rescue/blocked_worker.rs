//! Peers take over the work of a blocked worker: its timers, its inbox, its sockets, its queue and
//! its next task.
//!
//! The test unblocks a worker only after all events have come. So each event comes while the
//! worker is blocked. Time bounds are far above what is needed. `outcome.rs` shows that nothing is
//! done twice and that all answers are right.

use std::{
    future::{Future, poll_fn},
    io::Write,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Waker},
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{Blocked, REST, SOON, Says, all_come_elsewhere, assert_ends, nothing_comes},
    event::Event,
    eventually,
    net::connections,
    on_worker, runtime,
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    Timer,
    net::{TcpStream, UdpSocket},
    runtime::Builder,
    task::block_in_place,
    time::sleep_until,
    timer::{Cancel, Outcome, Reset},
};

/// Arms a sleep on the calling worker, and spawns a task that waits for it.
fn sleep_here(says: &Says, index: usize, due: Instant) {
    let mut sleep = Box::pin(sleep_until(due.into()));
    let armed = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let says = says.clone();
    tourbillon::spawn(async move {
        // On a slow machine, the deadline may have passed before the sleep was armed.
        if armed.is_pending() {
            sleep.await;
        }
        says.came(index, due);
    });
}

/// Spawns a task that waits for `future` and then calls `then`. The task adds 1 to `waiting` when
/// it begins to wait.
fn spawn_waiting<F>(
    waiting: &Arc<AtomicUsize>,
    future: F,
    then: impl FnOnce(F::Output) + Send + 'static,
) where
    F: Future + Send + 'static,
{
    let waiting = waiting.clone();
    tourbillon::spawn(async move {
        let mut future = pin!(future);
        let mut waits = false;
        let answer = poll_fn(|cx| {
            let poll = future.as_mut().poll(cx);
            if poll.is_pending() && !std::mem::replace(&mut waits, true) {
                waiting.fetch_add(1, SeqCst);
            }
            poll
        });
        then(answer.await);
    });
}

/// The timers are armed, and the sockets registered, on the blocked worker. The tasks wait
/// already, on any worker.
#[test]
fn timers_and_sockets_of_a_blocked_worker_are_served() {
    const TIMERS: usize = 1_000;
    const SLEEPS: usize = 100;
    const SOCKETS: usize = 100;
    let _alarm = alarm();
    let runtime = runtime(2);
    let (fires, fired) = Says::new();
    let (reads, read) = Says::new();
    let (ours, theirs) = connections(SOCKETS);
    let waiting = Arc::new(AtomicUsize::new(0));
    let wrote: Arc<[OnceLock<Instant>]> = (0..SOCKETS).map(|_| OnceLock::new()).collect();
    let (count, writes) = (waiting.clone(), wrote.clone());
    let (blocked, ()) = Blocked::after(runtime.handle(), move || {
        for (index, stream) in ours.into_iter().enumerate() {
            let mut stream = TcpStream::from_std(stream).unwrap();
            let (writes, reads) = (writes.clone(), reads.clone());
            let reading = async move { stream.read(&mut [0]).await };
            spawn_waiting(&count, reading, move |read| {
                assert_eq!(read.unwrap(), 1);
                reads.came(index, *writes[index].get().unwrap());
            });
        }
        // The deadline comes after all timers are armed.
        let due = Instant::now() + 10 * SOON;
        for index in 0..TIMERS {
            drop(tourbillon::at(due, fires.comes(index, due)));
        }
        for index in TIMERS..TIMERS + SLEEPS {
            sleep_here(&fires, index, due);
        }
    });
    eventually("all tasks read", || waiting.load(SeqCst) == SOCKETS);
    thread::sleep(REST);
    for (mut stream, wrote) in theirs.iter().zip(&*wrote) {
        wrote.set(Instant::now()).unwrap();
        stream.write_all(&[1]).unwrap();
    }
    // The worker stays blocked until all events have come, so a peer has served them.
    all_come_elsewhere(&blocked, &fired, TIMERS + SLEEPS);
    all_come_elsewhere(&blocked, &read, SOCKETS);
    drop(blocked);
    nothing_comes(&runtime, &fired);
}

/// The worker's alarm goes off once, when the worker blocks. From then on, each event of a socket
/// calls the peer.
#[test]
fn sockets_of_a_blocked_worker_do_not_wait_for_its_alarm() {
    const SOCKETS: usize = 20;
    let _alarm = alarm();
    let mut builder = Builder::new();
    let runtime = builder.worker_threads(2).rescue_latency(HOUR).build();
    let runtime = runtime.unwrap();
    let (ours, mut theirs) = connections(SOCKETS);
    let (reads, read) = mpsc::channel();
    let (blocks, blocked) = mpsc::channel();
    let (free, until) = mpsc::channel::<()>();
    let main = runtime.spawn(async move {
        for (index, stream) in ours.into_iter().enumerate() {
            let (mut stream, reads) = (TcpStream::from_std(stream).unwrap(), reads.clone());
            tourbillon::spawn(async move {
                while stream.read(&mut [0]).await.unwrap() == 1 {
                    reads.send(index).unwrap();
                }
            });
        }
        block_in_place(|| {
            blocks.send(()).unwrap();
            until.recv().unwrap();
        });
    });
    blocked.recv().unwrap();
    let mut each_is_read = || {
        for (index, stream) in theirs.iter_mut().enumerate() {
            stream.write_all(&[1]).unwrap();
            assert_eq!(read.recv_timeout(PATIENCE), Ok(index));
        }
    };
    each_is_read();
    each_is_read();
    free.send(()).unwrap();
    runtime.block_on(main).unwrap();
    each_is_read();
}

/// The peer is busy until all sockets are readable. It takes only so many events at a time, and the
/// next alarm is an hour away.
#[test]
fn a_peer_that_is_called_takes_all_events_of_a_blocked_worker() {
    const SOCKETS: usize = 600;
    let _alarm = alarm();
    let mut builder = Builder::new();
    let runtime = builder.worker_threads(2).rescue_latency(HOUR).build();
    let runtime = runtime.unwrap();
    let bind = |_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let ours: Vec<_> = (0..SOCKETS).map(bind).collect();
    let addresses: Vec<_> = ours.iter().map(|it| it.local_addr().unwrap()).collect();
    let theirs = bind(0);
    let (reads, read) = mpsc::channel();
    let (blocks, blocked) = mpsc::channel();
    let (free, until) = mpsc::channel::<()>();
    let main = runtime.spawn(async move {
        for socket in ours {
            socket.set_nonblocking(true).unwrap();
            let (socket, reads) = (UdpSocket::from_std(socket).unwrap(), reads.clone());
            tourbillon::spawn(async move {
                while socket.recv(&mut [0]).await.is_ok() {
                    reads.send(()).unwrap();
                }
            });
        }
        block_in_place(|| {
            blocks.send(()).unwrap();
            until.recv().unwrap();
        });
    });
    blocked.recv().unwrap();
    // The peer has come, and is called by each event from now on.
    theirs.send_to(&[1], addresses[0]).unwrap();
    assert_eq!(read.recv_timeout(PATIENCE), Ok(()));
    for _ in 0..2 {
        let (busy, is_busy) = mpsc::channel();
        let gate = Gate::new();
        let opens = gate.clone();
        drop(runtime.spawn(async move {
            busy.send(()).unwrap();
            gate.wait();
        }));
        is_busy.recv_timeout(PATIENCE).unwrap();
        for address in &addresses {
            theirs.send_to(&[1], address).unwrap();
        }
        opens.open();
        for _ in 0..SOCKETS {
            assert_eq!(read.recv_timeout(PATIENCE), Ok(()));
        }
    }
    free.send(()).unwrap();
    runtime.block_on(main).unwrap();
}

/// The timers are in the worker's inbox, which the worker itself would read only when it returns.
#[test]
fn timers_armed_remotely_on_a_blocked_worker_are_served() {
    const COUNT: usize = 200;
    let _alarm = alarm();
    let runtime = runtime(2);
    let blocked = Blocked::some(runtime.handle());
    let (says, came) = Says::new();
    let arm = |index, due| {
        let timer = Timer::at(due).on(runtime.handle());
        timer
            .on_worker(blocked.worker)
            .start(says.comes(index, due));
    };
    // Many timers in a row, the first of which are due immediately.
    let start = Instant::now();
    for index in 0..COUNT {
        arm(index, start + Duration::from_micros(50) * index as u32);
    }
    all_come_elsewhere(&blocked, &came, COUNT);
    // One at a time, while every other worker sleeps.
    for delay in [0, 1, 10, 100, 1_000, 10_000].map(Duration::from_micros) {
        thread::sleep(REST);
        arm(0, Instant::now() + delay);
        all_come_elsewhere(&blocked, &came, 1);
    }
    drop(blocked);
    nothing_comes(&runtime, &came);
}

/// The timer waits on the blocked worker for a late deadline, and is moved to an earlier one.
#[test]
fn a_timer_of_a_blocked_worker_that_is_moved_earlier_is_served() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (says, came) = Says::new();
    let (sender, due) = mpsc::channel();
    let (blocked, timer) = Blocked::after(runtime.handle(), move || {
        tourbillon::after(HOUR, move || says.came(0, due.recv().unwrap()))
    });
    thread::sleep(REST);
    let soon = Instant::now() + SOON;
    sender.send(soon).unwrap();
    assert_eq!(timer.reset_at(soon), Reset::Pending);
    all_come_elsewhere(&blocked, &came, 1);
    assert_ends(&timer, Outcome::Fired);
    drop(blocked);
    nothing_comes(&runtime, &came);
}

/// The blocked worker has woken the task itself, so the worker would run this task before all
/// else.
#[test]
fn the_next_task_of_a_blocked_worker_runs_elsewhere() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for _ in 0..10 {
        let (says, came) = Says::new();
        let (event, waiting) = (Event::default(), Arc::default());
        let (awaited, count) = (event.clone(), Arc::clone(&waiting));
        let since = Instant::now();
        on_worker(&runtime, move || {
            let wait = async move { awaited.wait().await };
            spawn_waiting(&count, wait, move |()| says.came(0, since));
        });
        eventually("it waits", || waiting.load(SeqCst) == 1);
        thread::sleep(REST);
        let (blocked, ()) = Blocked::after(runtime.handle(), move || event.set());
        all_come_elsewhere(&blocked, &came, 1);
        drop(blocked);
        nothing_comes(&runtime, &came);
    }
}

#[test]
fn queued_tasks_of_a_blocked_worker_run_elsewhere() {
    const WOKEN: usize = 5;
    const SPAWNED: usize = 100;
    let _alarm = alarm();
    let runtime = runtime(2);
    let (says, came) = Says::new();
    let waiting = Arc::new(AtomicUsize::new(0));
    let events: [Event; WOKEN] = Default::default();
    let (awaited, count, wakes) = (events.clone(), waiting.clone(), says.clone());
    let since = Instant::now();
    on_worker(&runtime, move || {
        for (index, event) in awaited.into_iter().enumerate() {
            let says = wakes.clone();
            let wait = async move { event.wait().await };
            spawn_waiting(&count, wait, move |()| says.came(index, since));
        }
    });
    eventually("they wait", || waiting.load(SeqCst) == WOKEN);
    thread::sleep(REST);
    let (blocked, ()) = Blocked::after(runtime.handle(), move || {
        for index in WOKEN..WOKEN + SPAWNED {
            let says = says.clone();
            tourbillon::spawn(async move { says.came(index, since) });
        }
        events.iter().for_each(Event::set);
    });
    all_come_elsewhere(&blocked, &came, WOKEN + SPAWNED);
    drop(blocked);
    nothing_comes(&runtime, &came);
}

#[test]
fn recurring_timers_of_a_blocked_worker_keep_running() {
    const PERIOD: Duration = Duration::from_millis(10);
    const RUNS: u32 = 10;
    let _alarm = alarm();
    let runtime = runtime(2);
    let (says, came) = Says::new();
    let (others, other) = Says::new();
    let (blocked, (timers, armed)) = Blocked::after(runtime.handle(), move || {
        let armed = Instant::now();
        let timers =
            [says, others].map(|says| tourbillon::every(PERIOD, move || says.came(0, armed)));
        (timers, armed)
    });
    // The timer keeps its grid: run `n` is not before `n` periods.
    let run = |n: u32| {
        let came = came.recv_timeout(PATIENCE / 3).expect("it runs on");
        assert!(came.at >= armed + PERIOD * n, "run {n} is early");
        came.thread
    };
    for n in 1..=RUNS {
        assert_ne!(run(n), blocked.thread, "it was blocked");
    }
    // One timer is cancelled now, and the other after the worker has run it again.
    let [first, second] = timers;
    let cancel = |timer: &Timer| {
        let how = timer.cancel();
        assert!(
            matches!(how, Cancel::Cancelled | Cancel::AfterRun),
            "{how:?}"
        );
        assert_ends(timer, Outcome::Cancelled);
    };
    cancel(&second);
    assert!(other.try_iter().count() > 0, "it ran, too");
    drop(blocked);
    for n in RUNS + 1..=2 * RUNS {
        run(n);
    }
    cancel(&first);
    // Discard the runs between the last received one and the timer's end.
    let _runs = came.try_iter().count();
    nothing_comes(&runtime, &came);
    nothing_comes(&runtime, &other);
}

/// The rescuer has taken a batch of due timers, and blocks in the first callback of the batch.
#[test]
fn a_rescuer_that_blocks_is_rescued_in_turn() {
    const EACH: usize = 50;
    let _alarm = alarm();
    let runtime = runtime(3);
    let (says, came) = Says::new();
    let (sender, receiver) = mpsc::channel();
    let release = Gate::new();
    let gate = release.clone();
    let (blocked, ()) = Blocked::after(runtime.handle(), move || {
        let due = Instant::now() + SOON;
        let theirs = says.clone();
        let first = move || {
            let later = Instant::now() + SOON;
            for index in EACH..2 * EACH {
                drop(tourbillon::at(later, theirs.comes(index, later)));
            }
            sender.send(thread::current().id()).unwrap();
            gate.wait();
        };
        drop(tourbillon::at(due, first));
        let due = due + Duration::from_nanos(1);
        for index in 0..EACH {
            drop(tourbillon::at(due, says.comes(index, due)));
        }
    });
    let second = receiver.recv_timeout(PATIENCE / 3).expect("a peer runs it");
    assert_ne!(second, blocked.thread, "it was blocked");
    for came in all_come_elsewhere(&blocked, &came, 2 * EACH) {
        assert!(came.index < EACH || came.thread != second, "it was blocked");
    }
    drop(blocked);
    release.open();
    nothing_comes(&runtime, &came);
}

/// No peer can help, and no helper starts.
#[test]
fn a_single_worker_does_its_work_when_it_returns() {
    const COUNT: usize = 100;
    let _alarm = alarm();
    let runtime = runtime(1);
    let (says, came) = Says::new();
    let (blocked, ()) = Blocked::after(runtime.handle(), move || {
        let due = Instant::now();
        for index in 0..COUNT {
            drop(tourbillon::at(due, says.comes(index, due)));
        }
        for index in COUNT..2 * COUNT {
            let says = says.clone();
            tourbillon::spawn(async move { says.came(index, due) });
        }
    });
    thread::sleep(10 * REST);
    assert!(came.try_recv().is_err(), "there is no other worker");
    let only = blocked.thread;
    drop(blocked);
    let mut left = vec![1; 2 * COUNT];
    for _ in 0..2 * COUNT {
        let came = came.recv_timeout(PATIENCE).expect("it comes");
        assert_eq!(came.thread, only, "there is no other worker");
        left[came.index] -= 1;
    }
    assert!(left.iter().all(|&left| left == 0), "twice");
    nothing_comes(&runtime, &came);
}
