//! Sandboxes that refuse system calls: without optional calls timers are still right and nothing is
//! lost. Without a required call, building a runtime is an error.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    BuildError, Runtime, Timer,
    net::{TcpListener, TcpStream},
    runtime::Builder,
    time::{BootInstant, sleep},
};

use crate::{
    common::{HOUR, PATIENCE, alarm, eventually, fds, on_worker, process::alone, threads},
    system_calls::{Faulty, call, dispensable, error_of, refuse},
};

/// The answers of sandboxes: the call does not exist (gVisor, old Docker), or it is not permitted
/// (the others).
const ANSWERS: [libc::c_int; 3] = [libc::ENOSYS, libc::EPERM, libc::EACCES];

/// Checks that timers of all clocks, sleeps and sockets work, and that none is early.
#[track_caller]
fn all_is_well(runtime: &Runtime) {
    let far = runtime.handle().after(HOUR, || ());
    let (sender, receiver) = mpsc::channel();
    let mut count = 0;
    // The worker waits for short and for long ones by different calls.
    for micros in [0, 1, 60, 999, 1_000, 2_345, 9_999, 10_001, 30_000] {
        for _ in 0..3 {
            let asked = Instant::now() + Duration::from_micros(micros);
            let report = sender.clone();
            runtime
                .handle()
                .at(asked, move || report.send((asked, Instant::now())).unwrap());
            count += 1;
        }
        let start = Instant::now();
        runtime.block_on(sleep(Duration::from_micros(micros)));
        assert!(start.elapsed() >= Duration::from_micros(micros));
    }
    let (asked, report) = (Instant::now(), sender.clone());
    let boot = BootInstant::now() + Duration::from_millis(3);
    Timer::at_boot(boot).on(runtime.handle()).start(move || {
        assert!(BootInstant::now() >= boot);
        report.send((asked, Instant::now())).unwrap();
    });
    let (asked, report) = (Instant::now(), sender.clone());
    Timer::at_wall(std::time::SystemTime::now())
        .on(runtime.handle())
        .start(move || {
            report.send((asked, Instant::now())).unwrap();
        });
    for _ in 0..count + 2 {
        let (asked, ran) = receiver.recv_timeout(PATIENCE).expect("none is lost");
        assert!(ran >= asked, "early by {:?}", asked - ran);
    }
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = tourbillon::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).await.unwrap() > 0 {
                sleep(Duration::from_micros(100)).await;
                stream.write_all(&byte).await.unwrap();
            }
        });
        let mut stream = TcpStream::connect(addr).await.unwrap();
        for i in 0..50 {
            stream.write_all(&[i]).await.unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [i]);
        }
        drop(stream);
        echo.await.unwrap();
    });
    let job = runtime.spawn_blocking(|| thread::sleep(Duration::from_millis(1)));
    runtime.block_on(job).unwrap();
    assert!(far.is_pending());
}

/// If the kernel refuses `timerfd_settime` after the runtime was built, timers become less
/// precise, but none is early or lost.
#[test]
fn a_refused_timerfd_costs_only_precision() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = Faulty::calls(&[call(libc::SYS_timerfd_settime)]) else {
            return;
        };
        let runtime = crate::common::runtime(1);
        eventually("it is waited by this call", || {
            runtime.block_on(sleep(Duration::from_millis(20)));
            faulty.passed() > 0
        });
        faulty.after(0, usize::MAX, libc::EPERM);
        let waits = runtime.metrics().total().epoll_waits();
        let (sender, receiver) = mpsc::channel();
        let mut timers = 0;
        eventually("it was refused", || {
            let (asked, report) = (Instant::now() + Duration::from_millis(25), sender.clone());
            runtime
                .handle()
                .at(asked, move || report.send((asked, Instant::now())).unwrap());
            let (asked, ran) = receiver.recv_timeout(PATIENCE).expect("none is lost");
            assert!(ran >= asked, "early by {:?}", asked - ran);
            timers += 1;
            timers >= 10 && faulty.failed() > 0
        });
        let waits = runtime.metrics().total().epoll_waits() - waits;
        assert!(
            waits < 100 * timers,
            "the worker does not sleep: {waits} waits"
        );
        // Let the worker go from no deadline at all to one.
        on_worker(&runtime, || ());
        thread::sleep(Duration::from_millis(5));
        for micros in [30_000, 100, 900, 5_000] {
            let asked = Duration::from_micros(micros);
            let start = Instant::now();
            runtime.block_on(sleep(asked));
            assert!(start.elapsed() >= asked, "early");
        }
    });
}

fn without_what_is_dispensable(answer: libc::c_int) {
    let _alarm = alarm();
    let mut calls: Vec<_> = dispensable().into_iter().map(|it| (it, answer)).collect();
    // After these errors, the standard library reads a file instead.
    if answer != libc::EACCES {
        calls.push((call(libc::SYS_getrandom), answer));
    }
    if !refuse(&calls) {
        return;
    }
    // SAFETY: the calls take no pointers, or pointers that are refused unread.
    unsafe {
        let none = std::ptr::null_mut::<u8>();
        for refused in [
            libc::syscall(libc::SYS_sched_setaffinity, 0, 8, none),
            libc::syscall(libc::SYS_setpriority, 0, 0, 1),
        ] {
            assert_eq!(error_of(refused), Some(answer), "the fault is there");
        }
    }
    for builder in [
        // As many workers as there are cores, each pinned to its own.
        &mut Builder::new(),
        Builder::new().worker_threads(2).pin(false),
        Builder::new().worker_threads(1).helpers(1..=2),
    ] {
        let runtime = builder.build().expect("none of it is needed");
        all_is_well(&runtime);
    }
    // The set of cores is unknown. So naming one is an error; the runtime does not guess.
    let named = Builder::new().cores([0]).build();
    assert!(matches!(
        named.unwrap_err(),
        BuildError::CoreNotAllowed { core: 0, allowed } if allowed.is_empty()
    ));
}

/// For very many timers, the runtime asks the system to provide memory in larger pieces. If the
/// system refuses, the runtime works without, and does not ask each time.
#[test]
fn refused_prefaulting_of_memory_is_tried_once() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = Faulty::calls(&[call(libc::SYS_madvise)]) else {
            return;
        };
        let runtime = crate::common::runtime(1);
        faulty.after(0, usize::MAX, libc::EPERM);
        let timers: Vec<_> = (0..200_000)
            .map(|_| runtime.handle().after(HOUR, || ()))
            .collect();
        // The runtime takes memory some 100 times. Other code makes this call, too, for its own
        // purposes.
        let failed = faulty.failed();
        assert!((1..10).contains(&failed), "asked {failed} times");
        assert!(timers.iter().all(|timer| timer.is_pending()));
        all_is_well(&runtime);
        drop(runtime);
        assert!(timers.iter().all(|timer| !timer.is_pending()));
    });
}

#[test]
fn a_runtime_works_where_optional_calls_are_missing() {
    alone(|| without_what_is_dispensable(ANSWERS[0]));
}

#[test]
fn a_runtime_works_where_optional_calls_are_forbidden() {
    alone(|| without_what_is_dispensable(ANSWERS[1]));
}

#[test]
fn a_runtime_works_where_optional_calls_are_denied() {
    alone(|| without_what_is_dispensable(ANSWERS[2]));
}

/// If one of the required calls fails, at any of the places where a build makes it, the build
/// returns that error and leaks nothing.
#[test]
fn a_refused_required_call_is_a_build_error_and_leaks_nothing() {
    alone(|| {
        let _alarm = alarm();
        let before = fds();
        for (number, answer) in [
            (libc::SYS_epoll_create1, libc::EPERM),
            (libc::SYS_eventfd2, libc::ENFILE),
            (libc::SYS_timerfd_create, libc::ENOMEM),
            // The bound of all watches of a user, `fs.epoll.max_user_watches`.
            (libc::SYS_epoll_ctl, libc::ENOSPC),
        ] {
            let name = format!("{number}");
            let test = move || {
                let Some(faulty) = Faulty::calls(&[call(number)]) else {
                    return;
                };
                let others = threads();
                drop(crate::common::runtime(1));
                let open = fds();
                let needed = {
                    let passed = faulty.passed();
                    drop(Builder::new().worker_threads(2).helpers(1..=1).build());
                    faulty.passed() - passed
                };
                assert!(needed > 0, "{name} is not what it is built with");
                for pass in 0..needed {
                    let failed = faulty.failed();
                    faulty.after(pass, 1, answer);
                    let built = Builder::new().worker_threads(2).helpers(1..=1).build();
                    assert_eq!(faulty.failed(), failed + 1, "it was refused once");
                    let error = built.expect_err("one of its calls has failed");
                    let BuildError::Os { source, .. } = &error else {
                        panic!("{error:?}");
                    };
                    assert_eq!(source.raw_os_error(), Some(answer), "{error}");
                    faulty.heal();
                    let is_left = || threads() > others || fds() > open;
                    eventually("nothing is left", || !is_left());
                }
            };
            // A filter cannot be removed, so each test has a thread of its own.
            thread::spawn(test).join().unwrap();
            // Wait until the listener is closed. Otherwise the next test could count its
            // descriptor.
            eventually("its listener is closed", || fds() == before);
        }
    });
}
