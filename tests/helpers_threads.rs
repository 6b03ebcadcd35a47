//! Helpers come when they are needed, go when they are not, and end with their runtime.

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{AllBlocked, REST},
    event::Event,
    eventually, fds, isolated, threads,
    told::{Told, worker_number},
};
use tourbillon::{
    BuildError, Runtime, Timer,
    runtime::Builder,
    task::yield_now,
    time::{self, sleep},
};

const MS: Duration = Duration::from_millis(1);

fn builder(workers: usize) -> Builder {
    Builder::new().worker_threads(workers)
}

fn helpers(runtime: &Runtime) -> usize {
    runtime.metrics().num_helpers()
}

/// Has something run on a helper, in the place of workers that are all blocked; answers what it answers.
#[track_caller]
fn on_helper<R: Send + 'static>(runtime: &Runtime, f: impl FnOnce() -> R + Send + 'static) -> R {
    let blocked = AllBlocked::all(runtime);
    let (sender, receiver) = mpsc::channel();
    runtime.spawn(async move {
        assert_eq!(worker_number(), None, "they are blocked");
        let _ = sender.send(f());
    });
    let answer = receiver
        .recv_timeout(PATIENCE / 3)
        .expect("a helper runs it");
    drop(blocked);
    answer
}

#[test]
fn bounds_that_make_no_sense_are_an_error() {
    #[allow(
        clippy::reversed_empty_ranges,
        reason = "what the runtime is to say of one"
    )]
    for bounds in [5..=2, 0..=4097, 0..=usize::MAX, 4097..=usize::MAX] {
        let (least, most) = (*bounds.start(), *bounds.end());
        let error = builder(1).helpers(bounds).build().unwrap_err();
        assert!(
            matches!(error, BuildError::Helpers { least: l, most: m, max: 4096 } if (l, m) == (least, most)),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains(&format!("helpers({least}..={most})")),
            "{text}"
        );
    }
    drop(builder(1).helpers(0..=4096).build().unwrap());
}

#[test]
fn helpers_come_when_they_are_needed_and_go_when_they_are_idle() {
    isolated(
        "helpers_come_when_they_are_needed_and_go_when_they_are_idle",
        || {
            for workers in [1, 2] {
                let before = (threads(), fds());
                let runtime = builder(workers)
                    .helpers(0..=2)
                    .thread_keep_alive(REST)
                    .build()
                    .unwrap();
                let gone = || {
                    eventually("they have gone", || {
                        let metrics = runtime.metrics();
                        metrics.num_helpers() == 0
                            && metrics.num_idle_helpers() == 0
                            && threads() == before.0 + workers
                    });
                };
                // One comes when all workers are awake at once, as they may be in the beginning.
                gone();
                let started = runtime.metrics().helpers_started();
                // What a runtime needs, says the builder.
                let idle = (before.0 + workers, before.1 + 4 * workers + 2);
                for round in 1..=3 {
                    let name = on_helper(&runtime, || {
                        thread::current().name().unwrap_or_default().to_owned()
                    });
                    assert!(name.starts_with("tourbillon-helper-"), "{name}");
                    assert!(runtime.metrics().helpers_started() >= started + round);
                    gone();
                    eventually("all is as before", || (threads(), fds()) == idle);
                }
                drop(runtime);
                eventually("nothing is left", || (threads(), fds()) == before);
            }
        },
    );
}

#[test]
fn the_lower_bound_is_there_from_the_start_and_stays() {
    let _alarm = alarm();
    let runtime = builder(1)
        .helpers(2..=4)
        .thread_keep_alive(5 * MS)
        .build()
        .unwrap();
    assert_eq!(helpers(&runtime), 2);
    assert_eq!(runtime.metrics().helpers_started(), 2);
    thread::sleep(5 * REST);
    assert_eq!(runtime.metrics().num_idle_helpers(), 2);
    for _ in 0..3 {
        let blocked = AllBlocked::all(&runtime);
        let release = Gate::new();
        for _ in 0..3 {
            let (gate, begun) = (release.clone(), Gate::new());
            let open = begun.clone();
            runtime.spawn(async move {
                open.open();
                gate.wait();
            });
            begun.wait();
        }
        assert_eq!(helpers(&runtime), 4, "three are blocked, and one sits");
        release.open();
        drop(blocked);
        eventually("the others go", || helpers(&runtime) == 2);
        thread::sleep(REST);
        assert_eq!(helpers(&runtime), 2);
    }
}

/// The lower bound has threads that are never needed; that costs nothing.
#[test]
fn helpers_that_sit_use_no_processor_time() {
    fn cpu() -> Duration {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: a place for what is written, which zeroed is valid anyhow.
        let usage = unsafe {
            assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
            usage.assume_init()
        };
        let time = |it: libc::timeval| {
            Duration::from_secs(it.tv_sec as u64) + Duration::from_micros(it.tv_usec as u64)
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    }
    isolated("helpers_that_sit_use_no_processor_time", || {
        for keep_alive in [Duration::ZERO, Duration::from_nanos(1), HOUR, Duration::MAX] {
            let runtime = builder(1)
                .helpers(1..=1)
                .thread_keep_alive(keep_alive)
                .build()
                .unwrap();
            thread::sleep(REST);
            let before = cpu();
            thread::sleep(15 * REST);
            let used = cpu() - before;
            assert!(used < 5 * REST, "{used:?} with {keep_alive:?}");
            assert_eq!(helpers(&runtime), 1);
        }
    });
}

#[test]
fn any_keep_alive_works() {
    let _alarm = alarm();
    for keep_alive in [Duration::ZERO, Duration::from_nanos(1), HOUR, Duration::MAX] {
        let runtime = builder(1)
            .helpers(0..=1)
            .thread_keep_alive(keep_alive)
            .build()
            .unwrap();
        for n in 0..20 {
            assert_eq!(on_helper(&runtime, move || n), n);
        }
        if keep_alive >= HOUR {
            assert_eq!(runtime.metrics().helpers_started(), 1);
        } else {
            eventually("it has gone", || helpers(&runtime) == 0);
        }
    }
}

/// One that would be started again at once may as well stay.
#[test]
fn helpers_do_not_flap() {
    const KEEP_ALIVE: Duration = Duration::from_millis(40);
    const LIVES: u32 = 25;
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = builder(workers)
            .helpers(0..=2)
            .thread_keep_alive(KEEP_ALIVE)
            .build()
            .unwrap();
        let end = Instant::now() + LIVES * KEEP_ALIVE;
        while Instant::now() < end {
            let tasks: Vec<_> = (0..2 * workers)
                .map(|_| {
                    runtime.spawn(async {
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_micros(100) {
                            std::hint::spin_loop();
                        }
                    })
                })
                .collect();
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
            thread::sleep(MS);
        }
        // A second one may come, when the first had just been called, and go.
        let started = runtime.metrics().helpers_started();
        assert!(started <= u64::from(LIVES) / 2, "{started} started");
    }
}

#[test]
fn hooks_run_on_helpers_too() {
    let _alarm = alarm();
    let (starts, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |of: &Arc<AtomicUsize>| {
        let of = of.clone();
        move || {
            let name = thread::current().name().unwrap_or_default().to_owned();
            of.fetch_add(usize::from(name.starts_with("tourbillon-helper-")), SeqCst);
        }
    };
    let runtime = builder(1)
        .helpers(0..=2)
        .thread_keep_alive(MS)
        .on_thread_start(count(&starts))
        .on_thread_stop(count(&stops))
        .build()
        .unwrap();
    for _ in 0..5 {
        on_helper(&runtime, || ());
        eventually("they have gone, all of them", || {
            let started = runtime.metrics().helpers_started() as usize;
            started > 0 && starts.load(SeqCst) == started && stops.load(SeqCst) == started
        });
    }
    let blocked = AllBlocked::all(&runtime);
    runtime.shutdown_timeout(Duration::ZERO);
    drop(blocked);
    eventually("all have ended", || {
        starts.load(SeqCst) == stops.load(SeqCst)
    });
    thread::sleep(REST);
    assert_eq!(starts.load(SeqCst), stops.load(SeqCst));
}

#[test]
fn what_a_helper_spawns_when_it_ends_is_not_lost() {
    let _alarm = alarm();
    let (sender, receiver) = mpsc::channel();
    let last: Arc<Mutex<Option<Event>>> = Arc::default();
    let taken = last.clone();
    let runtime = builder(1)
        .helpers(0..=1)
        .thread_keep_alive(MS)
        .on_thread_stop(move || {
            // What this brings may need helpers in its turn.
            let Some(event) = taken.lock().unwrap().take() else {
                return;
            };
            assert_eq!(worker_number(), None, "workers stay");
            event.set();
            let (spawned, fired) = (sender.clone(), sender.clone());
            tourbillon::spawn(async move { spawned.send("spawned").unwrap() });
            drop(tourbillon::after(MS, move || fired.send("fired").unwrap()));
        })
        .build()
        .unwrap();
    for _ in 0..10 {
        let (event, waits) = (Event::default(), Gate::new());
        let (wait, open) = (event.clone(), waits.clone());
        let task = runtime.spawn(async move {
            open.open();
            wait.wait().await;
        });
        waits.wait();
        let last = last.clone();
        // For this helper to do at its end.
        on_helper(&runtime, move || *last.lock().unwrap() = Some(event));
        let mut came = [0; 2].map(|_| receiver.recv_timeout(PATIENCE).expect("it comes"));
        came.sort_unstable();
        assert_eq!(came, ["fired", "spawned"]);
        runtime.block_on(task).unwrap();
    }
}

/// What the helpers are at when the runtime is shut down.
#[derive(Clone, Copy, Debug)]
enum At {
    Sitting,
    Running,
    Blocked,
}

/// A way to end a runtime, and its name.
type ShutDown = (&'static str, fn(Runtime));

/// However it ends, and whatever helpers are at.
#[test]
fn nothing_is_left_of_a_runtime_with_helpers() {
    const DUE: usize = 50;
    const LATER: usize = 50;
    let shut_downs: [ShutDown; 4] = [
        ("drop", drop),
        ("timeout", |it| _ = it.shutdown_timeout(PATIENCE)),
        ("background", Runtime::shutdown_background),
        ("graceful", |it| _ = it.shutdown_graceful(5 * MS)),
    ];
    isolated("nothing_is_left_of_a_runtime_with_helpers", || {
        for workers in [1, 2] {
            for (name, shut_down) in shut_downs {
                for at in [At::Sitting, At::Running, At::Blocked] {
                    let before = (threads(), fds());
                    let runtime = builder(workers)
                        .helpers(1..=3)
                        .thread_keep_alive(HOUR)
                        .build()
                        .unwrap();
                    let told = Told::new();
                    let arm = |delay| {
                        let timer = Timer::after(delay).on(runtime.handle());
                        drop(timer.start_with(told.once()));
                    };
                    for _ in 0..LATER {
                        arm(HOUR);
                    }
                    let blocked = match at {
                        At::Sitting => None,
                        At::Running | At::Blocked => Some(AllBlocked::all(&runtime)),
                    };
                    let gate = blocked.as_ref().map(AllBlocked::gate);
                    for _ in 0..3 {
                        let begun = Gate::new();
                        let begins = begun.clone();
                        match at {
                            At::Sitting => continue,
                            At::Running => drop(runtime.spawn(async move {
                                begins.open();
                                loop {
                                    yield_now().await;
                                }
                            })),
                            At::Blocked => {
                                let gate = gate.clone().unwrap();
                                drop(runtime.spawn(async move {
                                    begins.open();
                                    gate.wait();
                                }));
                            }
                        }
                        begun.wait();
                    }
                    for _ in 0..DUE {
                        arm(Duration::ZERO);
                    }
                    let releasing = thread::spawn(move || {
                        thread::sleep(REST);
                        drop(blocked);
                    });
                    shut_down(runtime);
                    releasing.join().unwrap();
                    eventually("nothing is left", || (threads(), fds()) == before);
                    let [fired, cancelled, ended] = told.all();
                    assert_eq!(cancelled, 0);
                    assert_eq!(fired + ended, DUE + LATER, "{name}, {at:?}");
                    assert!(ended >= LATER, "{name}, {at:?}");
                }
            }
        }
    });
}

/// As they come in the very first moment of a runtime, so they may in its last.
#[test]
fn a_runtime_that_ends_at_once_takes_its_helpers_along() {
    isolated(
        "a_runtime_that_ends_at_once_takes_its_helpers_along",
        || {
            let before = (threads(), fds());
            for n in 0..200 {
                let runtime = builder(1 + n % 2)
                    .helpers(0..=2)
                    .thread_keep_alive(Duration::MAX)
                    .build()
                    .unwrap();
                if n % 3 == 0 {
                    runtime.spawn(async {});
                }
                drop(runtime);
            }
            eventually("nothing is left", || (threads(), fds()) == before);
        },
    );
}

#[test]
fn a_runtime_may_be_dropped_on_its_own_helper() {
    isolated("a_runtime_may_be_dropped_on_its_own_helper", || {
        for workers in [1, 2] {
            let before = (threads(), fds());
            let runtime = builder(workers).helpers(0..=2).build().unwrap();
            let told = Told::new();
            let timer = Timer::after(HOUR).on(runtime.handle());
            drop(timer.start_with(told.once()));
            let blocked = AllBlocked::all(&runtime);
            let handle = runtime.handle().clone();
            let (sender, receiver) = mpsc::channel();
            handle.spawn(async move {
                assert_eq!(worker_number(), None, "they are blocked");
                drop(runtime);
                sender.send(()).unwrap();
            });
            receiver
                .recv_timeout(PATIENCE)
                .expect("it waits for nothing");
            drop(blocked);
            drop(handle);
            eventually("nothing is left", || (threads(), fds()) == before);
            assert_eq!(told.all(), [0, 0, 1]);
        }
    });
}

#[test]
fn a_paused_clock_is_as_exact_with_helpers() {
    const COUNT: u32 = 200;
    let _alarm = alarm();
    for (workers, least, most) in [(1, 0, 1), (1, 2, 2), (2, 0, 2), (2, 1, 3)] {
        let runtime = builder(workers)
            .helpers(least..=most)
            .thread_keep_alive(MS)
            .start_paused(true)
            .build()
            .unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let start = runtime.block_on(async { time::Instant::now() });
        for i in 0..COUNT {
            let (seen, delay) = (seen.clone(), (i * 71 % COUNT + 1) * 1_000 * MS);
            let note = move || seen.lock().unwrap().push((delay, time::Instant::now()));
            if i % 2 == 0 {
                drop(runtime.after(delay, note));
            } else {
                runtime.spawn(async move {
                    time::sleep_until(start + delay).await;
                    // Long enough for others to be called, on a clock that runs.
                    thread::sleep(Duration::from_micros(300));
                    note();
                });
            }
        }
        runtime.block_on(sleep(HOUR));
        let now = runtime.block_on(async { time::Instant::now() });
        assert_eq!(now, start + HOUR);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), COUNT as usize);
        for (i, (delay, at)) in (1..).zip(&*seen) {
            assert_eq!(*delay, i * 1_000 * MS, "in order");
            assert_eq!(*at, start + *delay, "at its time, exactly");
        }
    }
}

/// Time stands still as long as a helper is at something.
#[test]
fn a_clock_that_is_paused_while_helpers_run_waits_for_them() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = builder(workers)
            .helpers(0..=2)
            .thread_keep_alive(REST)
            .build()
            .unwrap();
        for _ in 0..3 {
            let blocked = AllBlocked::all(&runtime);
            let release = Gate::new();
            let (gate, (sender, receiver)) = (release.clone(), mpsc::channel());
            let begun = Gate::new();
            let open = begun.clone();
            runtime.spawn(async move {
                open.open();
                gate.wait();
                let start = time::Instant::now();
                sleep(HOUR).await;
                sender.send(start.elapsed()).unwrap();
            });
            begun.wait();
            runtime.pause();
            drop(blocked);
            let handle = runtime.handle().clone();
            let sleeper = thread::spawn(move || {
                handle.block_on(async {
                    let start = time::Instant::now();
                    sleep(2 * HOUR).await;
                    start.elapsed()
                })
            });
            thread::sleep(3 * REST);
            assert!(!sleeper.is_finished(), "a helper is at a task");
            release.open();
            assert_eq!(sleeper.join().unwrap(), 2 * HOUR);
            assert_eq!(receiver.recv_timeout(PATIENCE), Ok(HOUR));
            runtime.resume();
        }
        // On the clock that runs again they are called as before.
        assert_eq!(on_helper(&runtime, || 1), 1);
    }
}
