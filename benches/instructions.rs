//! The cost of the hot paths, and the extra cost of the watchdog: instructions by callgrind, system
//! calls by perf. (strace would slow down the program so much that the watchdog finds stalls.)
//!
//! There are two workers; to fire, there is one, since a peer would steal some of the jobs. *on* is
//! the default without the flight recorder; *off* is also without a rescue
//! (`rescue_latency(Duration::MAX)`). *light* and *full* are *off* with the flight recorder; under
//! valgrind, timers that fire are so late that *light* records them. *timed* is *off* while polls
//! are timed, as for a client of the live page that asks for tasks. *single* is a current-thread
//! runtime, whose counts vary least; it has no program that needs another thread. *span* is *off* in a span of a
//! subscriber that takes no span of a callback; it is measured with feature `tracing`. Each program
//! does `n` operations, and `3 n` in another process. The result is the difference divided by
//! `2 n`, so start and end do not count. All threads are counted.
//!
//! | | program |
//! |---|---|
//! | *arm, local* | a task arms callbacks for the next hours |
//! | *arm many, local* | a task does so by `after_many`, for 1,000 at a time |
//! | *cancel + arm* | a task cancels the oldest of 1,000 callbacks, then arms one |
//! | *cancel + at* | the same, by an instant of the standard library |
//! | *sleep, drop + arm* | a task drops the oldest of 1,000 boxed sleeps, then polls a new one once |
//! | *sleep_until, drop + arm* | the same, by an instant: the clock is read, and the delay added |
//! | *refresh*, *reset_at* | a task moves one of 1,000 timers later; the clock is read, or the instant is given |
//! | *move, callback*, *move, sleep* | a task moves a random callback or boxed sleep of 1,000 to a random time |
//! | *interval, reset* | a task resets an interval whose next tick it waits for |
//! | *arm, from outside* | the main thread arms; includes the worker's handling of its inbox |
//! | *arm many, outside* | the main thread arms by `after_many`, 1,000 at a time |
//! | *job* | a task yields |
//! | *spawn* | a task spawns one, and waits for its end |
//! | *fire* | a task arms callbacks that are due at once, 100 at a time, and yields until they ran |
//! | *fire sleeps* | a task polls 100 due sleeps at a time until they are over |
//! | *sleep* | a task sleeps again and again: arm, park, wake, run |
//! | *callback* | a recurring callback, each ms |
//!
//! Run `cargo bench --bench instructions`, where valgrind is installed and perf may count system
//! calls. `-- WHAT` selects programs by a part of their names.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    time::Duration,
};

use tourbillon::{
    Runtime,
    flight::Recording,
    runtime::{Builder, RuntimeFlavor},
    task::yield_now,
    time::{Instant, interval_at, sleep, sleep_until},
};
use tourbillon_support::bench::{instructions, under};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);
/// The shortest sleep that is armed at its first poll. It may be due by then.
const SOON: Duration = Duration::from_micros(100);
/// Number of pending timers in the programs that cancel or move one.
const STANDING: u64 = 1_000;

/// Name, number of operations, and what to count.
const PROGRAMS: [(&str, u64, Count); 21] = [
    ("arm, local", 20_000, Count::Instructions),
    ("arm many, local", 20_000, Count::Instructions),
    ("cancel + arm", 20_000, Count::Instructions),
    ("cancel + at", 20_000, Count::Instructions),
    ("sleep, drop + arm", 20_000, Count::Instructions),
    ("sleep_until, drop + arm", 20_000, Count::Instructions),
    ("refresh", 20_000, Count::Instructions),
    ("reset_at", 20_000, Count::Instructions),
    ("move, callback", 20_000, Count::Instructions),
    ("move, sleep", 20_000, Count::Instructions),
    ("interval, reset", 20_000, Count::Instructions),
    ("arm, from outside", 20_000, Count::Instructions),
    ("arm many, outside", 20_000, Count::Instructions),
    ("job", 20_000, Count::Instructions),
    ("spawn", 20_000, Count::Instructions),
    ("fire", 20_000, Count::Instructions),
    ("fire sleeps", 20_000, Count::Instructions),
    ("sleep, 200 µs", 1_000, Count::Calls),
    ("sleep, 1 ms", 1_000, Count::Calls),
    ("sleep, 5 ms", 200, Count::Calls),
    ("callback", 1_000, Count::Calls),
];

/// The runtimes that are measured.
const WATCHES: &[&str] = &[
    "on",
    "off",
    "light",
    "full",
    "timed",
    "single",
    #[cfg(feature = "tracing")]
    "span",
];

/// The system calls of a runtime.
const CALLS: [&str; 5] = ["epoll_wait", "futex", "read", "timerfd_settime", "write"];

#[derive(Clone, Copy)]
enum Count {
    Instructions,
    Calls,
}

fn program(what: &'static str, n: u64, watch: &str) {
    let workers = match what.starts_with("fire") || watch == "single" {
        true => 1,
        false => 2,
    };
    let mut builder = match watch {
        "single" => Builder::new_current_thread(),
        _ => Builder::new(),
    };
    builder
        .worker_threads(workers)
        .flight_recorder(match watch {
            "light" => Recording::Light,
            "full" => Recording::Full,
            _ => Recording::Off,
        });
    if watch != "on" {
        builder.rescue_latency(Duration::MAX);
    }
    #[cfg(feature = "tracing")]
    if watch == "span" {
        let log = tracing_subscriber::fmt().with_writer(std::io::sink);
        log.with_max_level(tracing::Level::INFO).init();
    }
    let runtime = builder.build().expect("a runtime");
    // Ends with the program.
    let _times = (watch == "timed").then(|| runtime.time_polls());
    match what {
        "arm, local" => on_worker(&runtime, async move {
            for i in 0..n {
                drop(tourbillon::after(HOUR + MS * i as u32, || ()));
            }
        }),
        "arm many, local" => on_worker(&runtime, async move {
            arm_many(n, |pairs| drop(tourbillon::after_many(pairs)));
        }),
        "cancel + arm" | "cancel + at" => on_worker(&runtime, async move {
            let start = std::time::Instant::now();
            let arm = |i| match HOUR + MS * i as u32 {
                delay if what == "cancel + arm" => tourbillon::after(delay, || ()),
                delay => tourbillon::at(start + delay, || ()),
            };
            let mut timers: VecDeque<_> = (0..STANDING).map(arm).collect();
            for i in 0..n {
                timers.pop_front().expect("one stands").cancel();
                timers.push_back(arm(STANDING + i));
            }
            std::mem::forget(timers);
        }),
        "sleep, drop + arm" | "sleep_until, drop + arm" => on_worker(&runtime, async move {
            let mut sleeps = VecDeque::new();
            for i in 0..STANDING + n {
                if i >= STANDING {
                    drop(sleeps.pop_front());
                }
                let delay = HOUR + MS * i as u32;
                let mut next = Box::pin(match what {
                    "sleep, drop + arm" => sleep(delay),
                    _ => sleep_until(Instant::now() + delay),
                });
                poll_fn(|cx| {
                    assert!(next.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                sleeps.push_back(next);
            }
            std::mem::forget(sleeps);
        }),
        "refresh" | "reset_at" => on_worker(&runtime, async move {
            let arm = |_| tourbillon::after(HOUR, || ());
            let timers: Vec<_> = (0..STANDING).map(arm).collect();
            let mut at = Instant::now() + HOUR;
            for i in 0..n {
                let timer = &timers[(i % STANDING) as usize];
                if what == "refresh" {
                    timer.refresh();
                } else {
                    at += MS;
                    timer.reset_at(at);
                }
            }
            std::mem::forget(timers);
        }),
        "move, callback" => on_worker(&runtime, async move {
            let arm = |_| tourbillon::after(2 * HOUR, || ());
            let timers: Vec<_> = (0..STANDING).map(arm).collect();
            for (which, at) in moves(n) {
                timers[which].reset_at(at);
            }
            std::mem::forget(timers);
        }),
        "move, sleep" => on_worker(&runtime, async move {
            let mut sleeps: Vec<_> = (0..STANDING).map(|_| Box::pin(sleep(2 * HOUR))).collect();
            poll_fn(|cx| {
                for sleep in &mut sleeps {
                    assert!(sleep.as_mut().poll(cx).is_pending());
                }
                Poll::Ready(())
            })
            .await;
            for (which, at) in moves(n) {
                sleeps[which].as_mut().reset(at);
            }
            std::mem::forget(sleeps);
        }),
        "interval, reset" => on_worker(&runtime, async move {
            let mut interval = interval_at(Instant::now() + HOUR, HOUR);
            poll_fn(|cx| {
                assert!(interval.poll_tick(cx).is_pending());
                (0..n).for_each(|_| interval.reset());
                Poll::Ready(())
            })
            .await;
        }),
        "arm, from outside" => {
            for i in 0..n {
                drop(runtime.handle().after(HOUR + MS * i as u32, || ()));
            }
        }
        "arm many, outside" => arm_many(n, |pairs| drop(runtime.handle().after_many(pairs))),
        "spawn" => on_worker(&runtime, async move {
            for _ in 0..n {
                tourbillon::spawn(async {}).await.expect("no panic");
            }
        }),
        "job" => on_worker(&runtime, async move {
            for _ in 0..n {
                yield_now().await;
            }
        }),
        "fire" => on_worker(&runtime, async move {
            let ran = Arc::new(AtomicU64::new(0));
            for done in (0..n).step_by(100) {
                for _ in 0..100 {
                    let ran = ran.clone();
                    let count = move || {
                        ran.fetch_add(1, SeqCst);
                    };
                    drop(tourbillon::after(Duration::ZERO, count));
                }
                while ran.load(SeqCst) < done + 100 {
                    yield_now().await;
                }
            }
        }),
        "fire sleeps" => on_worker(&runtime, async move {
            for _ in (0..n).step_by(100) {
                let sleeps = (0..100).map(|_| Box::pin(sleep(SOON)));
                let mut sleeps: Vec<_> = sleeps.collect();
                // Make the sleeps due before they are armed. This takes no instructions.
                std::thread::sleep(SOON);
                poll_fn(|cx| {
                    sleeps.retain_mut(|it| it.as_mut().poll(cx).is_pending());
                    match sleeps.is_empty() {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                })
                .await;
            }
        }),
        "sleep, 200 µs" => on_worker(&runtime, sleeps(n, MS / 5)),
        "sleep, 1 ms" => on_worker(&runtime, sleeps(n, MS)),
        "sleep, 5 ms" => on_worker(&runtime, sleeps(n, 5 * MS)),
        "callback" => {
            let (sender, ran) = mpsc::channel();
            let timer = runtime.handle().every(MS, move || {
                let _ = sender.send(());
            });
            (0..n).for_each(|_| ran.recv().expect("it runs on"));
            timer.cancel();
        }
        what => panic!("no such program: {what}"),
    }
    // Leak the runtime, so that dropping its timers is not counted.
    std::mem::forget(runtime);
}

/// Calls `arm` with a delay and a callback for each of `n` timers, a thousand at a time.
fn arm_many(n: u64, arm: impl Fn(Vec<(Duration, fn())>)) {
    for first in (0..n).step_by(STANDING as usize) {
        let pairs = (first..first + STANDING).map(|i| (HOUR + MS * i as u32, (|| ()) as fn()));
        arm(pairs.collect());
    }
}

/// Returns which timer to move, and to when: a random one, to a time one to two hours ahead, from
/// the generator MINSTD.
fn moves(n: u64) -> impl Iterator<Item = (usize, Instant)> {
    let start = Instant::now() + HOUR;
    let mut random = 1;
    (0..n).map(move |_| {
        random = random * 48_271 % 0x7fff_ffff;
        let far = Duration::from_nanos(random * 1_676);
        ((random % STANDING) as usize, start + far)
    })
}

async fn sleeps(n: u64, delay: Duration) {
    for _ in 0..n {
        sleep(delay).await;
    }
}

/// Waits for a task through a channel, without the runtime's help. The one of a current-thread
/// runtime runs on this thread.
fn on_worker(runtime: &Runtime, task: impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    #[cfg(feature = "tracing")]
    let task = tracing::Instrument::instrument(task, tracing::info_span!("program"));
    let task = runtime.spawn(async move {
        task.await;
        sender.send(()).expect("the receiver exists");
    });
    if runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
        runtime.block_on(task).expect("it does not panic");
    }
    receiver.recv().expect("it does not panic");
}

/// Returns the arguments with which this program runs another one.
fn program_args(what: &str, n: u64, watch: &str) -> [String; 4] {
    ["run", what, &n.to_string(), watch].map(str::to_owned)
}

/// Returns the system calls per operation, by name.
fn calls(what: &str, n: u64, watch: &str) -> Option<BTreeMap<String, f64>> {
    let count = |n| {
        let events = CALLS.map(|call| format!("syscalls:sys_enter_{call}"));
        let perf = ["perf", "stat", "-x,", "-e", &events.join(",")];
        let said = under(
            &perf,
            &program_args(what, n, watch).each_ref().map(String::as_str),
        )?;
        // count,,event,...
        let rows = said.lines().filter_map(|line| {
            let (count, rest) = line.split_once(",,syscalls:sys_enter_")?;
            let name = rest.split_once(',')?.0;
            Some((name.to_owned(), count.parse::<f64>().ok()?))
        });
        let rows: BTreeMap<_, _> = rows.collect();
        (!rows.is_empty()).then_some(rows)
    };
    let few = count(n)?;
    let mut many = count(3 * n)?;
    for (name, count) in &mut many {
        *count = (*count - few.get(name).unwrap_or(&0.0)) / (2 * n) as f64;
    }
    // Smaller values are noise.
    many.retain(|_, count| *count >= 0.02);
    Some(many)
}

fn main() {
    let args: Vec<_> = env::args().collect();
    if let [_, run, what, n, watch] = &args[..] {
        if run == "run" {
            let (what, ..) = PROGRAMS.iter().find(|it| it.0 == what).expect("a program");
            return program(what, n.parse().expect("a number"), watch);
        }
    }
    let only = args.iter().skip(1).find(|arg| !arg.starts_with('-'));
    let asked = |what: &str| only.is_none_or(|only| what.contains(only.as_str()));
    for (what, n, by) in PROGRAMS.into_iter().filter(|it| asked(it.0)) {
        let has_outside = what.contains("outside") || matches!(by, Count::Calls);
        for watch in WATCHES {
            if *watch == "single" && has_outside {
                continue;
            }
            match by {
                Count::Instructions => match instructions(n, |n| program_args(what, n, watch)) {
                    Some(count) => println!("{what:<23} {watch:<6} {count:>8.0} instructions"),
                    None => println!("{what:<23} {watch:<6} needs valgrind"),
                },
                Count::Calls => match calls(what, n, watch) {
                    Some(calls) => {
                        let each = calls.iter().map(|(name, n)| format!("{name} {n:.2}"));
                        let each: Vec<_> = each.collect();
                        println!("{what:<23} {watch:<6} {}", each.join(", "));
                    }
                    None => println!("{what:<23} {watch:<6} needs perf"),
                },
            }
        }
    }
}
