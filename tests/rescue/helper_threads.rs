//! Helpers start when they are needed, and end when they are idle. `helper_shutdown` tests how
//! they end with the runtime.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{AllBlocked, REST, Says, nothing_comes},
    event::Event,
    eventually, fds,
    net::connections,
    process::alone,
    rounds, threads,
    told::worker_number,
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    BuildError, Runtime, Timer,
    net::TcpStream,
    runtime::Builder,
    time::{interval, sleep},
};

const MS: Duration = Duration::from_millis(1);

pub fn builder(workers: usize) -> Builder {
    let mut builder = Builder::new();
    builder.worker_threads(workers);
    builder
}

fn helpers(runtime: &Runtime) -> usize {
    runtime.metrics().num_helpers()
}

/// Blocks all workers, runs `f` on a helper, and returns its answer.
#[track_caller]
pub fn on_helper<R: Send + 'static>(
    runtime: &Runtime,
    f: impl FnOnce() -> R + Send + 'static,
) -> R {
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
fn invalid_bounds_are_an_error() {
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
fn helpers_start_when_needed_and_end_when_idle() {
    alone(|| {
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
            // A helper starts when all workers are awake at the same time, which may happen at the
            // beginning.
            gone();
            let started = runtime.metrics().helpers_started();
            // The builder documents these numbers of threads and descriptors.
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
    });
}

#[test]
fn the_lower_bound_of_helpers_starts_with_the_runtime_and_stays() {
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

/// The lower bound may start threads that are never needed, and these cost nothing.
#[test]
fn idle_helpers_use_no_processor_time() {
    fn cpu() -> Duration {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is a valid place for the result, and an `rusage` of zeros is valid.
        let usage = unsafe {
            assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
            usage.assume_init()
        };
        let time = |it: libc::timeval| {
            Duration::from_secs(it.tv_sec as u64) + Duration::from_micros(it.tv_usec as u64)
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    }
    alone(|| {
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

/// A helper that would have to start again soon stays: it lives for the keep-alive at least,
/// however often it is called.
#[test]
fn helpers_do_not_start_and_end_repeatedly() {
    const KEEP_ALIVE: Duration = Duration::from_millis(200);
    const HELPERS: u64 = 2;
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = builder(workers)
            .helpers(0..=HELPERS as usize)
            .thread_keep_alive(KEEP_ALIVE)
            .build()
            .unwrap();
        let start = Instant::now();
        for _ in rounds(100) {
            on_helper(&runtime, || ());
        }
        let started = runtime.metrics().helpers_started();
        // On a busy machine a round may be as long as the keep-alive, and end the helpers.
        let lives = start.elapsed().as_millis() / KEEP_ALIVE.as_millis() + 1;
        let most = HELPERS * u64::try_from(lives).unwrap();
        assert!(started <= most, "{started} started, at most {most}");
    }
}

#[test]
fn hooks_run_on_helpers() {
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
fn tasks_spawned_by_an_ending_helper_are_not_lost() {
    let _alarm = alarm();
    let (sender, receiver) = mpsc::channel();
    let last: Arc<Mutex<Option<Event>>> = Arc::default();
    let taken = last.clone();
    let runtime = builder(1)
        .helpers(0..=1)
        .thread_keep_alive(MS)
        .on_thread_stop(move || {
            // The job that the event releases may itself need helpers, which run this hook, too.
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
        // The helper stores the event here, and its stop hook sets it.
        on_helper(&runtime, move || *last.lock().unwrap() = Some(event));
        let mut came = [0; 2].map(|_| receiver.recv_timeout(PATIENCE).expect("it comes"));
        came.sort_unstable();
        assert_eq!(came, ["fired", "spawned"]);
        runtime.block_on(task).unwrap();
    }
}

/// A helper owns nothing: whatever it leaves behind belongs to a worker.
#[test]
fn work_started_on_a_helper_continues_after_its_end() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = Builder::new()
            .worker_threads(workers)
            .helpers(0..=1)
            .thread_keep_alive(REST)
            .build()
            .unwrap();
        let (says, came) = Says::new();
        let blocked = AllBlocked::all(&runtime);
        let (ours, mut theirs) = connections(1);
        let go_on = Event::default();
        let (begun, since) = (Gate::new(), Instant::now());
        let (open, going, ours) = (begun.clone(), go_on.clone(), ours.into_iter().next());
        runtime.spawn(async move {
            assert_eq!(worker_number(), None, "they are blocked");
            let mut stream = TcpStream::from_std(ours.unwrap()).unwrap();
            let mut ticks = interval(Duration::from_millis(2));
            ticks.tick().await;
            drop(tourbillon::after(10 * REST, says.comes(0, since)));
            for worker in 0..workers {
                let timer = Timer::after(10 * REST).on_worker(worker);
                drop(timer.start(says.comes(1 + worker, since)));
            }
            let (mut left, runs) = (100, says.clone());
            let every = Arc::new(OnceLock::<Timer>::new());
            let own = every.clone();
            let _ = every.set(tourbillon::every(Duration::from_millis(4), move || {
                left -= 1;
                if left == 0 {
                    runs.came(1 + workers, since);
                    own.get().unwrap().cancel();
                }
            }));
            let sleeping = sleep(10 * REST);
            let sleeps = says.clone();
            let sleeper = tourbillon::spawn(async move {
                sleeping.await;
                sleeps.came(2 + workers, since);
            });
            open.open();
            going.wait().await;
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
            says.came(3 + workers, since);
            for _ in 0..10 {
                ticks.tick().await;
            }
            sleeper.await.unwrap();
            says.came(4 + workers, since);
        });
        begun.wait();
        drop(blocked);
        eventually("the helper has ended", || {
            runtime.metrics().num_helpers() == 0
        });
        // If the machine keeps a worker waiting, a helper may start once more in between.
        assert!(runtime.metrics().helpers_started() >= 1);
        go_on.set();
        theirs[0].write_all(&[1]).unwrap();
        let mut seen = vec![0; 5 + workers];
        for _ in 0..5 + workers {
            seen[came.recv_timeout(PATIENCE).expect("it comes").index] += 1;
        }
        assert_eq!(seen, vec![1; 5 + workers]);
        nothing_comes(&runtime, &came);
    }
}
