//! Invalid options, and builds for which the system lacks threads or descriptors. Each is a typed
//! error.

use std::{
    error::Error,
    io,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crate::common::{
    alarm, eventually, fds, limit_descriptors, process::alone, runtime, threads, use_up_descriptors,
};
use tourbillon::{ArmError, BuildError, NoRuntime, Runtime, runtime::Builder};

fn build(builder: &mut Builder) -> BuildError {
    builder.build().expect_err("it cannot be built")
}

#[test]
fn zero_workers_are_an_error() {
    let error = build(Builder::new().worker_threads(0));
    assert!(matches!(error, BuildError::ZeroWorkers));
    assert!(matches!(
        build(Builder::new().cores([])),
        BuildError::ZeroWorkers
    ));
    assert_eq!(
        error.to_string(),
        "a runtime of 0 worker threads: there must be at least 1"
    );
    assert!(error.source().is_none());
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("0 worker threads"));
}

#[test]
fn too_many_workers_are_an_error_before_any_thread_starts() {
    let before = threads();
    for asked in [4097, usize::MAX] {
        let error = build(Builder::new().worker_threads(asked));
        assert!(matches!(
            error,
            BuildError::TooManyWorkers { asked: a, max: 4096 } if a == asked
        ));
        let text = error.to_string();
        assert!(
            text.contains(&asked.to_string()) && text.contains("4096"),
            "{text}"
        );
    }
    // Other tests may start threads at the same time, but not a thousand of them.
    assert!(threads() < before + 1_000);
}

#[test]
fn a_rescue_latency_below_the_minimum_is_an_error() {
    const LEAST: Duration = Duration::from_micros(200);
    for asked in [Duration::ZERO, LEAST - Duration::from_nanos(1)] {
        let error = build(Builder::new().rescue_latency(asked));
        assert!(matches!(
            error,
            BuildError::RescueLatency { asked: a, least } if (a, least) == (asked, LEAST)
        ));
        let text = error.to_string();
        assert_eq!(
            text,
            format!(
                "`rescue_latency({asked:?})`: it is at least 200µs (`Duration::MAX` turns rescue \
                 off)"
            )
        );
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
    for latency in [LEAST, Duration::MAX] {
        drop(Builder::new().rescue_latency(latency).build().unwrap());
    }
}

#[test]
fn intervals_of_zero_are_an_error_that_names_the_option() {
    let zeros = [Builder::event_interval, Builder::global_queue_interval];
    for (set, name) in zeros
        .into_iter()
        .zip(["event_interval", "global_queue_interval"])
    {
        let error = build(set(&mut Builder::new(), 0));
        assert!(matches!(error, BuildError::ZeroInterval { option } if option == name));
        assert_eq!(
            error.to_string(),
            format!("`{name}(0)`: an interval is at least 1 job")
        );
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn intervals_of_any_other_length_work() {
    let _alarm = alarm();
    for interval in [1, 2, u32::MAX] {
        let runtime = Builder::new()
            .worker_threads(1)
            .event_interval(interval)
            .global_queue_interval(interval)
            .build()
            .unwrap();
        let sum = runtime.block_on(async {
            let tasks: Vec<_> = (0..200)
                .map(|i| tourbillon::spawn(async move { i }))
                .collect();
            tourbillon::time::sleep(std::time::Duration::from_millis(1)).await;
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 19_900);
    }
}

#[test]
fn a_core_that_is_not_allowed_is_an_error_that_says_which_are() {
    const NO_SUCH_CORE: usize = 1_000_000;
    let error = build(Builder::new().cores([NO_SUCH_CORE]));
    let text = error.to_string();
    assert!(text.contains("core 1000000"), "{text}");
    let BuildError::CoreNotAllowed { core, allowed } = error else {
        panic!("{error:?}");
    };
    assert_eq!(core, NO_SUCH_CORE);
    assert!(!allowed.is_empty());
    // Allowed cores may be named more than once; they are used in turn.
    let runtime = Builder::new()
        .cores([allowed[0], allowed[0]])
        .worker_threads(3)
        .build()
        .unwrap();
    assert_eq!(runtime.metrics().num_workers(), 3);
    let runtime = Builder::new()
        .cores(allowed.clone())
        .pin(false)
        .build()
        .unwrap();
    assert_eq!(runtime.metrics().num_workers(), allowed.len());
}

#[test]
fn workers_are_pinned_to_the_given_cores() {
    let _alarm = alarm();
    let BuildError::CoreNotAllowed { allowed, .. } = build(Builder::new().cores([1_000_000]))
    else {
        unreachable!("there are not so many cores");
    };
    let mask = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"));
        line.unwrap().split_whitespace().last().unwrap().to_owned()
    };
    let here = mask();
    let last = *allowed.last().unwrap();
    let runtime = Builder::new().cores([last]).build().unwrap();
    assert_eq!(crate::common::on_worker(&runtime, mask), last.to_string());
    assert_eq!(mask(), here, "the thread that builds is not pinned");
    let runtime = Builder::new().worker_threads(1).pin(false).build().unwrap();
    assert_eq!(crate::common::on_worker(&runtime, mask), here);
}

#[test]
fn no_descriptors_left_is_an_error_with_a_hint() {
    alone(|| {
        drop(runtime(1));
        let before = threads();
        let used_up = use_up_descriptors();
        let error = build(Builder::new().worker_threads(1));
        assert!(matches!(
            &error,
            BuildError::Os { what: "descriptor", source }
                if source.raw_os_error() == Some(libc::EMFILE)
        ));
        let text = error.to_string();
        assert!(text.contains("ulimit -n"), "{text}");
        assert!(error.source().is_some());
        assert!(io::Error::from(error).to_string().contains("ulimit -n"));
        drop(used_up);
        assert_eq!(threads(), before);
        let runtime = runtime(1);
        assert_eq!(runtime.block_on(async { 1 }), 1);
    });
}

#[test]
fn a_failed_build_closes_its_descriptors() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let mut used_up = use_up_descriptors();
        // A runtime needs four descriptors for each worker, and two for the other clocks.
        let enough = 4 * 4 + 2;
        let mut failed = 0;
        // Free one more descriptor at a time, until a runtime of four workers can be built.
        for _ in 0..=enough {
            let built = Builder::new().worker_threads(4).build();
            match built {
                Ok(_) => break,
                Err(error) => {
                    assert!(matches!(
                        error,
                        BuildError::Os {
                            what: "descriptor",
                            ..
                        }
                    ));
                    failed += 1;
                }
            }
            used_up.pop();
        }
        assert!(failed >= 8 && failed <= enough, "{failed}");
        drop(used_up);
        limit_descriptors(4096);
        eventually("nothing is left", || (threads(), fds()) == before);
    });
}

#[test]
fn a_thread_that_cannot_start_is_an_error() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        // A stack larger than the address space.
        let error = build(Builder::new().worker_threads(2).thread_stack_size(1 << 50));
        assert!(matches!(error, BuildError::Os { what: "thread", .. }));
        assert!(error.to_string().contains("the system gave no thread"));
        eventually("nothing is left", || (threads(), fds()) == before);
    });
}

#[test]
fn a_failed_build_ends_its_threads() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static STOPPED: AtomicUsize = AtomicUsize::new(0);
        // The limit leaves room for a few stacks of this size, but not for all.
        const STACK: u64 = 1 << 30;
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find(|line| line.starts_with("VmSize"));
        let kib: u64 = size
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let limits = libc::rlimit {
            rlim_cur: kib * 1024 + 2 * STACK + STACK / 2,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limits are valid, and live through the call.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limits) };
        assert_eq!(set, 0);
        let error = build(
            Builder::new()
                .worker_threads(6)
                .thread_stack_size(STACK as usize)
                .on_thread_start(|| {
                    STARTED.fetch_add(1, Ordering::SeqCst);
                })
                .on_thread_stop(|| {
                    STOPPED.fetch_add(1, Ordering::SeqCst);
                }),
        );
        assert!(matches!(error, BuildError::Os { what: "thread", .. }));
        eventually("nothing is left", || (threads(), fds()) == before);
        let started = STARTED.load(Ordering::SeqCst);
        assert!(started > 0, "none was started, which tests something else");
        assert_eq!(STOPPED.load(Ordering::SeqCst), started);
    });
}

#[test]
fn a_running_runtime_opens_no_more_descriptors() {
    let _alarm = alarm();
    alone(|| {
        let runtime = runtime(2);
        let _used_up = use_up_descriptors();
        runtime.block_on(async {
            let tasks: Vec<_> = (0..100)
                .map(|_| {
                    tourbillon::spawn(tourbillon::time::sleep(std::time::Duration::from_millis(2)))
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        crate::common::on_worker(&runtime, || ());
        drop(runtime);
    });
}

#[test]
fn errors_say_what_to_do() {
    for (error, part) in [
        (
            ArmError::Full { max_timers: 12 }.to_string(),
            "12 timers are pending",
        ),
        (
            ArmError::Full { max_timers: 12 }.to_string(),
            "`max_timers`",
        ),
        (ArmError::ZeroPeriod.to_string(), "at least 1 ns"),
        (ArmError::Shutdown.to_string(), "has been shut down"),
        (ArmError::NoRuntime.to_string(), "Handle::enter"),
        (NoRuntime.to_string(), "Handle::enter"),
    ] {
        assert!(error.contains(part), "{error}");
    }
    for (code, hint) in [
        (libc::EMFILE, "ulimit -n"),
        (libc::ENFILE, "fs.file-max"),
        (libc::EAGAIN, "ulimit -u"),
    ] {
        let error = BuildError::Os {
            what: "thing",
            source: io::Error::from_raw_os_error(code),
        };
        let text = error.to_string();
        assert!(text.contains("no thing") && text.contains(hint), "{text}");
        let kind = io::Error::from_raw_os_error(code).kind();
        assert_eq!(io::Error::from(error).kind(), kind);
    }
    let error: Box<dyn Error + Send + Sync> = Box::new(BuildError::ZeroWorkers);
    assert!(error.downcast_ref::<BuildError>().is_some());
}

#[test]
fn the_default_runtime_has_workers() {
    let _alarm = alarm();
    let runtime = Runtime::new().unwrap();
    assert!(runtime.metrics().num_workers() >= 1);
    assert_eq!(
        runtime.metrics().workers().len(),
        runtime.metrics().num_workers()
    );
    let name = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    let name = runtime.block_on(name).unwrap().unwrap();
    assert!(name.starts_with("tourbillon-"), "{name}");
    assert!(format!("{:?}", Builder::new()).contains("worker_threads"));
    assert!(format!("{:?}", runtime.handle()).contains("Handle"));
}

#[test]
fn a_thread_name_with_a_nul_byte_is_an_error() {
    let build = Builder::new().worker_threads(1).thread_name("a\0b").build();
    assert!(matches!(build, Err(BuildError::ThreadName { name }) if name == "a\0b"));
}
