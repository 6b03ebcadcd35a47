//! A process that is stopped for seconds (`SIGSTOP`, a debugger, a frozen container) and continues:
//! timers that came due meanwhile fire then, once and not early, and recurring timers follow their
//! policy.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use tourbillon::{
    Runtime, Timer,
    runtime::Builder,
    time::{BootInstant, MissedTickBehavior, interval, sleep_until, timeout},
};

use crate::common::{
    HOUR, PATIENCE, alarm, eventually,
    process::{child, is_child, test_name},
    timers::none_early,
};

/// For how long the process is stopped.
const STOPPED: Duration = Duration::from_secs(2);
/// A gap this long is a stop; a slow machine has shorter ones.
const GAP: Duration = Duration::from_millis(1_900);
/// The period of recurring timers.
const PERIOD: Duration = Duration::from_millis(7);

/// A child that is killed when this is dropped, also on a panic: it would stay stopped for ever.
/// (The signal reaches a stopped process, too.)
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // This does nothing to a child that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `body` in a process of its own, which is stopped when it has said that it is ready.
fn stopped<F: FnOnce()>(body: F) {
    let name = test_name::<F>();
    if is_child(name) {
        return body();
    }
    let _alarm = alarm();
    let child = child(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let child = &mut child.0;
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.ends_with("ready\n") {
        let read = out.read_line(&mut said).unwrap();
        assert!(read > 0, "it ended before it was ready: {said}");
    }
    // Stop it somewhere in the middle of its work.
    thread::sleep(Duration::from_millis(100));
    let pid = child.id() as libc::pid_t;
    // SAFETY: the arguments are numbers, and the child has not been waited for.
    let send = |signal| assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    send(libc::SIGSTOP);
    eventually("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, state) = stat.rsplit_once(") ").unwrap();
        state.starts_with('T')
    });
    thread::sleep(STOPPED);
    send(libc::SIGCONT);
    let (mut rest, mut errors) = (String::new(), String::new());
    out.read_to_string(&mut rest).unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    let status = child.wait().unwrap();
    let ran = rest.contains("test result: ok. 1 passed");
    assert!(status.success() && ran, "{status}\n{said}{rest}\n{errors}");
}

/// Prints that the process may be stopped, and waits until it has been stopped.
fn be_stopped() {
    println!("ready");
    let mut last = Instant::now();
    let begun = last;
    loop {
        thread::sleep(Duration::from_millis(1));
        let now = Instant::now();
        if now - last >= GAP {
            return;
        }
        assert!(now - begun < PATIENCE, "nobody stops us");
        last = now;
    }
}

/// Pairs of a deadline and the time at which it was served.
type Moments = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// Starts a recurring timer. Each run is recorded with its deadline.
fn recurring(runtime: &Runtime) -> (Moments, Arc<OnceLock<Timer>>) {
    let (moments, own) = (Moments::default(), Arc::new(OnceLock::<Timer>::new()));
    let (noted, known) = (moments.clone(), own.clone());
    let timer = runtime.handle().every(PERIOD, move || {
        let now = Instant::now();
        let deadline = known.get().and_then(Timer::deadline);
        if let Some(deadline) = deadline {
            noted.lock().unwrap().push((deadline.into_std(), now));
        }
    });
    own.set(timer).unwrap();
    (moments, own)
}

fn ticking(runtime: &Runtime, behavior: MissedTickBehavior) -> Moments {
    let moments = Moments::default();
    let noted = moments.clone();
    runtime.spawn(async move {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(behavior);
        loop {
            let due = ticks.tick().await;
            let now = Instant::now();
            noted.lock().unwrap().push((due.into_std(), now));
        }
    });
    moments
}

/// Checks that no run was early or came twice, and that the process was stopped. Returns the
/// runs.
fn check(moments: &Moments) -> Vec<(Instant, Instant)> {
    let moments = moments.lock().unwrap().clone();
    for (due, at) in &moments {
        assert!(at >= due, "early by {:?}", *due - *at);
    }
    assert!(moments.is_sorted_by(|one, other| one.0 < other.0), "twice");
    let gap = moments.windows(2).map(|pair| pair[1].1 - pair[0].1).max();
    assert!(gap.unwrap() >= GAP, "it was not stopped");
    moments
}

/// Returns the number of periods between each deadline and the next, and the rest. The rest is
/// zero on the grid.
fn steps(moments: &[(Instant, Instant)]) -> Vec<(u128, u128)> {
    let period = PERIOD.as_nanos();
    let steps = moments.windows(2).map(|pair| {
        let step = (pair[1].0 - pair[0].0).as_nanos();
        (step / period, step % period)
    });
    steps.collect()
}

fn all_due_comes_once() {
    let runtime = Builder::new()
        .worker_threads(2)
        .helpers(0..=1)
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let far = runtime.handle().after(HOUR, || unreachable!("in an hour"));
    let (sender, receiver) = mpsc::channel();
    let fired = Arc::new(AtomicUsize::new(0));
    // Timers that are due before, during and after the stop.
    const EACH: u64 = 1_000;
    for i in 0..EACH {
        let asked = Instant::now() + Duration::from_micros(2_500 * i);
        let (report, fired) = (sender.clone(), fired.clone());
        tourbillon::at(asked, move || {
            fired.fetch_add(1, SeqCst);
            report.send((asked, Instant::now())).unwrap();
        });
        let report = sender.clone();
        tourbillon::spawn(async move {
            sleep_until(asked.into()).await;
            report.send((asked, Instant::now())).unwrap();
        });
    }
    let mut count = 2 * EACH as usize;
    for i in 0..20 {
        let after = Duration::from_millis(120 * i);
        let asked = Instant::now();
        let (boot, wall) = (BootInstant::now() + after, SystemTime::now() + after);
        let report = sender.clone();
        Timer::at_boot(boot).start(move || {
            assert!(BootInstant::now() >= boot);
            report.send((asked, Instant::now())).unwrap();
        });
        let report = sender.clone();
        Timer::at_wall(wall)
            .on(runtime.handle())
            .start(move || report.send((asked, Instant::now())).unwrap());
        count += 2;
    }
    // A timeout and the sleep in it, which are both over when the process continues. Either may
    // be found first, because several workers take parts of the late timers.
    let both = Instant::now() + Duration::from_secs(1);
    let limited = runtime.spawn(timeout(Duration::from_secs(1), sleep_until(both.into())));
    let waits = thread::spawn({
        let handle = runtime.handle().clone();
        move || {
            let due = Instant::now() + Duration::from_millis(800);
            handle.block_on(sleep_until(due.into()));
            assert!(Instant::now() >= due);
        }
    });
    be_stopped();
    none_early(&receiver, count);
    waits.join().unwrap();
    let (Ok(()) | Err(_)) = runtime.block_on(limited).unwrap();
    assert_eq!(fired.load(SeqCst), EACH as usize, "each once");
    assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err());
    assert!(far.is_pending());
}

#[test]
fn timers_due_during_a_stop_fire_once_and_not_early() {
    stopped(|| {
        all_due_comes_once();
    });
}

#[test]
fn recurring_timers_follow_their_policy_after_a_stop() {
    stopped(|| {
        let runtime = crate::common::runtime(2);
        let (callbacks, _own) = recurring(&runtime);
        let burst = ticking(&runtime, MissedTickBehavior::Burst);
        let delay = ticking(&runtime, MissedTickBehavior::Delay);
        let skip = ticking(&runtime, MissedTickBehavior::Skip);
        be_stopped();
        // Wait until each is done with the missed runs, and continues.
        eventually("all go on", || {
            [&callbacks, &burst, &delay, &skip].iter().all(|moments| {
                let moments = moments.lock().unwrap();
                let mut pairs = moments.windows(2);
                let resumed = pairs.find(|pair| pair[1].1 - pair[0].1 >= GAP);
                let later = |at: Instant| moments.iter().filter(|(due, _)| *due > at).count();
                resumed.is_some_and(|pair| later(pair[1].1) >= 10)
            })
        });
        // `Burst` has each tick, the missed ones at once.
        assert!(steps(&check(&burst)).iter().all(|step| *step == (1, 0)));
        // `Skip` and callbacks run once for all missed ticks. Then they continue on the grid of
        // the first.
        let missed = GAP.as_nanos() / PERIOD.as_nanos() - 1;
        for skips in [&callbacks, &skip] {
            let steps = steps(&check(skips));
            assert!(steps.iter().all(|(_, off)| *off == 0), "off the grid");
            let most = steps.iter().map(|(periods, _)| *periods).max().unwrap();
            assert!(most >= missed, "{most}");
        }
        // `Delay` counts from the time of the late tick.
        let delays = check(&delay);
        for pair in delays.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= PERIOD);
            // Check this only if the worker was as late as that, which is rare.
            if pair[0].1 - pair[0].0 >= GAP {
                // The ticking task reads the time before it records the tick, and may be stopped
                // between the two.
                assert!(pair[1].0 + GAP / 2 >= pair[0].1, "counted from then");
            }
        }
    });
}

/// A job that is stopped with the process is a stall, one for each worker that has a job. Workers
/// that sleep report none.
#[test]
fn only_jobs_that_were_stopped_are_reported_as_stalls() {
    stopped(|| {
        let stalls = Arc::new(Mutex::new(Vec::new()));
        let build = |workers| {
            let stalls = stalls.clone();
            Builder::new()
                .worker_threads(workers)
                .stall_threshold(Duration::from_millis(1_500))
                .on_stall(move |stall| {
                    // A peer may have reported it before its end.
                    if !stall.is_running {
                        stalls.lock().unwrap().push(stall.to_string());
                    }
                })
                .build()
                .unwrap()
        };
        // The workers of this runtime sleep almost all the time.
        let idle = build(2);
        idle.handle().every(HOUR, || ());
        let _later = idle.handle().after(Duration::from_millis(500), || ());
        // One worker of this runtime has a job all the time.
        let busy = build(2);
        let stop = Arc::new(AtomicUsize::new(0));
        let stopped = stop.clone();
        busy.spawn(async move {
            while stopped.load(SeqCst) == 0 {
                thread::sleep(Duration::from_micros(100));
            }
        });
        thread::sleep(Duration::from_millis(50));
        be_stopped();
        thread::sleep(Duration::from_millis(50));
        stop.store(1, SeqCst);
        eventually("the job is reported", || !stalls.lock().unwrap().is_empty());
        drop(busy);
        let of_idle = idle.metrics().total().stalls();
        drop(idle);
        let stalls = stalls.lock().unwrap();
        assert_eq!(of_idle, 0, "{stalls:?}");
        assert_eq!(stalls.len(), 1, "{stalls:?}");
        assert!(stalls[0].contains("stopped"), "{stalls:?}");
    });
}
