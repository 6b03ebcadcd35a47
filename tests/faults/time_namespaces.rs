//! The kernel's own clocks, years and decades ahead, and apart: in a time namespace a process sees
//! a machine that has been up for that long, or was suspended.
//!
//! Where the kernel has no such namespaces (before Linux 5.6), or forbids them, the tests are
//! skipped.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    process::Stdio,
    sync::mpsc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Timer,
    runtime::Builder,
    time::{self, BootInstant, DelayQueue, interval, sleep, timeout},
    timer::{Cancel, Outcome, Status},
};

use crate::common::{
    HOUR, PATIENCE, alarm,
    process::{child, is_child},
    skip,
    timers::none_early,
    timers::reporter,
};

const CLONE_NEWTIME: libc::c_int = 0x80;
const SEC: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SEC;

/// Returns the time of a kernel clock, in ns.
fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the write.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    time.tv_sec as u64 * SEC + time.tv_nsec as u64
}

/// Shifts the clocks of the program that the calling process executes next. Call this between
/// fork and exec, in a process of one thread: it allocates nothing.
fn enter_namespace(offsets: &[u8]) -> io::Result<()> {
    let check = |result: libc::c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    };
    // SAFETY: numbers, paths that end with a zero, and bytes that live through the call that writes
    // them. The descriptor is our own; the process has no other thread.
    unsafe {
        // Without root this works in a user namespace of its own, in which the process is root.
        if libc::unshare(CLONE_NEWTIME) != 0 {
            check(libc::unshare(libc::CLONE_NEWUSER | CLONE_NEWTIME))?;
        }
        let path = c"/proc/self/timens_offsets".as_ptr();
        let fd = check(libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = libc::write(fd, offsets.as_ptr().cast(), offsets.len());
        check(if written < 0 { -1 } else { 0 })?;
        libc::close(fd);
        // Only children get the namespace, so fork once more.
        let inner = check(libc::fork())?;
        if inner > 0 {
            // One of the descriptors reports failures until exec. If this process kept it, its
            // reader would wait until this process ends.
            if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) != 0 {
                for fd in 3..4096 {
                    libc::close(fd);
                }
            }
            let mut status = 0;
            while libc::waitpid(inner, &mut status, 0) < 0 {}
            let failed = !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0;
            libc::_exit(if failed { 101 } else { 0 });
        }
    }
    Ok(())
}

/// Runs `body` in a process of its own. Its clocks show these times when it begins, in ns.
#[track_caller]
fn at(name: &str, monotonic: u64, boot: u64, body: impl FnOnce()) {
    const SHOWS: &str = "TOURBILLON_CLOCKS";
    let shows = format!("{monotonic} {boot}");
    if is_child(name) {
        // A test may call this several times. The child runs only the body with its clocks.
        if std::env::var(SHOWS).is_ok_and(|asked| asked == shows) {
            let late = clock(libc::CLOCK_MONOTONIC) - monotonic;
            assert!(late < 60 * SEC, "the clock is another: {late}");
            assert!(clock(libc::CLOCK_BOOTTIME) - boot < 60 * SEC);
            body();
        }
        return;
    }
    let ahead = |shows: u64, id| {
        let ahead = i128::from(shows) - i128::from(clock(id));
        let (secs, nanos) = (ahead.div_euclid(SEC.into()), ahead.rem_euclid(SEC.into()));
        format!("{secs} {nanos}\n")
    };
    let offsets = format!(
        "monotonic {}boottime {}",
        ahead(monotonic, libc::CLOCK_MONOTONIC),
        ahead(boot, libc::CLOCK_BOOTTIME)
    );
    let mut command = child(name);
    command
        .env(SHOWS, &shows)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec, the closure makes only system calls.
    let spawned = unsafe { command.pre_exec(move || enter_namespace(offsets.as_bytes())) }.spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let name = std::ffi::OsStr::new("time_for_children");
            let has = std::fs::read_dir("/proc/self/ns").unwrap().flatten();
            let has = has.into_iter().any(|entry| entry.file_name() == name);
            let why = error.raw_os_error();
            let may_not = matches!(
                why,
                // `EROFS`: a container whose /proc is read-only.
                Some(libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENOSPC | libc::EROFS)
            );
            assert!(may_not || !has, "{error}");
            skip(&format!("no time namespace here: {error}"));
            return;
        }
    };
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    let status = child.wait().unwrap();
    let ran = out.contains("test result: ok. 1 passed");
    assert!(
        status.success() && ran,
        "at {shows}: {status}\n{out}\n{err}"
    );
}

/// Runs timers of each clock, sleeps, intervals, and sockets with timeouts, from before the
/// moment until after it.
fn all_is_well() {
    let _alarm = alarm();
    let began = clock(libc::CLOCK_MONOTONIC);
    let runtime = Builder::new()
        .worker_threads(2)
        .helpers(1..=1)
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let far = tourbillon::after(HOUR, || unreachable!("in an hour"));
    let decades = Duration::from_nanos(70 * YEAR);
    let decades = tourbillon::after(decades, || unreachable!("in decades"));
    assert!(decades.deadline().is_some());
    let (sender, receiver) = mpsc::channel();
    let mut count = 0;
    for i in 0..400_u64 {
        let after = Duration::from_micros(i * 1_000);
        let asked = Instant::now() + after;
        let timer = tourbillon::at(asked, reporter(&sender, asked));
        if let Some(deadline) = timer.deadline() {
            assert_eq!(deadline.into_std(), asked, "it is exact");
        }
        let (asked, report) = (Instant::now() + after, sender.clone());
        tourbillon::spawn(async move {
            sleep(after).await;
            report.send((asked, Instant::now())).unwrap();
        });
        count += 2;
    }
    for ms in [1, 30, 200, 390] {
        let after = Duration::from_millis(ms);
        let asked = Instant::now();
        let report = sender.clone();
        let due = SystemTime::now() + after;
        Timer::at_wall(due).on(runtime.handle()).start(move || {
            assert!(SystemTime::now() >= due, "early by the time of day");
            report.send((asked, Instant::now())).unwrap();
        });
        count += 1;
        let due = BootInstant::now() + after;
        let report = sender.clone();
        let timer = Timer::at_boot(due).start(move || {
            assert!(BootInstant::now() >= due, "early by the boot clock");
            report.send((asked, Instant::now())).unwrap();
        });
        // The library's boot clock ends after 73 years of the machine's uptime.
        let latest = clock(libc::CLOCK_BOOTTIME) + ms * 1_000_000;
        match timer.deadline() {
            None if timer.is_pending() && latest >= (1 << 61) - 1 => {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
            _ => count += 1,
        }
    }
    let ticking = runtime.spawn(async {
        let mut ticks = interval(Duration::from_millis(20));
        let first = ticks.tick().await;
        for _ in 0..15 {
            let due = ticks.tick().await;
            assert!(time::Instant::now() >= due, "early");
            assert_eq!((due - first).as_nanos() % 20_000_000, 0);
        }
        let mut queue = DelayQueue::new();
        queue.insert(1, Duration::from_millis(3));
        queue.insert(2, Duration::MAX);
        assert_eq!(queue.expired().await.unwrap().into_inner(), 1);
        assert!(
            timeout(Duration::from_millis(3), queue.expired())
                .await
                .is_err()
        );
    });
    runtime.block_on(async {
        let (mut client, mut server) = crate::common::net::pair().await;
        client
            .set_read_timeout(Some(Duration::from_millis(30)))
            .unwrap();
        let start = Instant::now();
        let error = client.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(30));
        server.write_all(b"x").await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 1);
    });
    none_early(&receiver, count);
    runtime.block_on(ticking).unwrap();
    assert!(far.is_pending() && decades.is_pending());
    // A peer takes over the timers of this stuck worker.
    let (stuck, is_stuck) = mpsc::channel();
    runtime.spawn(async move {
        tourbillon::after(Duration::from_millis(5), move || stuck.send(()).unwrap());
        thread::sleep(Duration::from_millis(60));
    });
    is_stuck.recv_timeout(PATIENCE).unwrap();
    runtime.pause_clock();
    let start = Instant::now();
    runtime.block_on(async {
        let start = time::Instant::now();
        sleep(HOUR / 2).await;
        assert_eq!(start.elapsed(), HOUR / 2);
    });
    assert!(start.elapsed() < HOUR / 2);
    runtime.resume_clock();
    runtime.block_on(sleep(Duration::from_millis(2)));
    assert_eq!(far.cancel(), Cancel::Cancelled);
    assert_eq!(runtime.metrics().total().panics(), 0);
    let took = clock(libc::CLOCK_MONOTONIC) - began;
    assert!(
        took > SEC / 4,
        "the moment was to come while this ran: {took}"
    );
}

/// Runs [`all_is_well`] at each moment: the clocks pass the moment a tenth of a second after the
/// process begins, while timers wait for it.
fn over(name: &str, moments: &[u64]) {
    for moment in moments {
        let start = moment - SEC / 10;
        at(name, start, start, all_is_well);
    }
}

#[test]
fn timers_are_right_after_days_and_years_of_machine_uptime() {
    over(
        "time_namespaces::timers_are_right_after_days_and_years_of_machine_uptime",
        &[
            12 * 86_400 * SEC,
            // 2^32 ms, and 2^36 ms, at which tokio's queue panicked.
            (1 << 32) * 1_000_000,
            (1 << 36) * 1_000_000,
        ],
    );
}

#[test]
fn timers_are_right_after_decades_of_machine_uptime() {
    over(
        "time_namespaces::timers_are_right_after_decades_of_machine_uptime",
        &[
            1 << 60,
            // 2^31 s; and 2^61 ns, which a shard's clock could not show if it began with the
            // machine's.
            (1 << 31) * SEC,
            1 << 61,
            (1 << 32) * SEC,
        ],
    );
}

/// Timers are right as far ahead as the kernel lets a clock go, which is half of what it can
/// count.
#[test]
fn timers_are_right_at_the_end_of_the_kernels_clock() {
    at(
        "time_namespaces::timers_are_right_at_the_end_of_the_kernels_clock",
        4_611_600_000 * SEC,
        4_611_600_000 * SEC,
        all_is_well,
    );
}

/// Each timer follows its own clock, as on a machine that was suspended for most of its life. It
/// also does so the other way round, which no machine has.
#[test]
fn each_timer_follows_its_own_clock_when_clocks_are_years_apart() {
    const NAME: &str =
        "time_namespaces::each_timer_follows_its_own_clock_when_clocks_are_years_apart";
    for (monotonic, boot) in [
        (3_600 * SEC, 30 * 86_400 * SEC),
        (3_600 * SEC, 60 * YEAR),
        (60 * YEAR, 3_600 * SEC),
    ] {
        at(NAME, monotonic, boot, || {
            let _alarm = alarm();
            let runtime = crate::common::runtime(1);
            // By the other clock, these deadlines would be long past or far away.
            let since = |of: u64| Duration::from_nanos(of);
            let passed = BootInstant::now() - (BootInstant::now() + Duration::ZERO);
            assert_eq!(passed, Duration::ZERO);
            let own = clock(libc::CLOCK_BOOTTIME);
            let far = since(monotonic.saturating_sub(own)) + Duration::from_secs(60);
            let far = Timer::after_boot(far).on(runtime.handle()).start(|| ());
            let near = Timer::after_boot(Duration::from_millis(5)).on(runtime.handle());
            let near = near.start(|| ());
            runtime.block_on(sleep(Duration::from_millis(5)));
            crate::common::eventually("it comes", || near.status() == Status::Over(Outcome::Fired));
            assert!(far.is_pending(), "it went by another clock");
            drop(runtime);
            all_is_well();
        });
    }
}
