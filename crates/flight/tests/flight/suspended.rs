//! Tests that need a machine of their own: it is suspended, and its clock is set. `.ci/suspend`
//! runs these tests in a virtual machine, as root.

use std::{fs, sync::mpsc, time::Duration};

use tourbillon::{
    Timer,
    time::{self, BootInstant, Instant},
};
use tourbillon_flight::{Cause, LateTimer};

use super::{
    common::{PATIENCE, runtime},
    late_by,
};

const SECOND: Duration = Duration::from_secs(1);

/// Suspends the machine. Its real-time clock wakes it.
fn suspend(seconds: u32) {
    let alarm = "/sys/class/rtc/rtc0/wakealarm";
    fs::write(alarm, format!("+{seconds}")).unwrap();
    fs::write("/sys/power/state", "mem").unwrap();
}

/// Returns how long a timer was late for this reason.
fn span(timer: &LateTimer, cause: &Cause) -> Duration {
    let spans = timer.spans.iter().filter(|span| span.cause == *cause);
    spans.map(|span| span.length).sum()
}

#[test]
#[ignore = "it suspends the machine: see .ci/suspend"]
fn a_suspension_is_named() {
    let runtime = runtime(1);
    let entered = runtime.handle().enter();
    let (sender, ran) = mpsc::channel();
    let tell = |name: &'static str| {
        let sender = sender.clone();
        move || sender.send(name).unwrap()
    };
    let begun = (BootInstant::now(), Instant::now());
    let boot = Timer::after_boot(2 * SECOND).start(tell("boot"));
    // The clock of this timer stands still while the machine is suspended.
    let monotonic = Timer::after(2 * SECOND).start(tell("monotonic"));
    suspend(5);
    let suspended = BootInstant::now().duration_since(begun.0) - begun.1.elapsed();
    assert!(suspended > 3 * SECOND, "{suspended:?}");
    assert_eq!(ran.recv_timeout(PATIENCE).unwrap(), "boot");
    assert_eq!(ran.recv_timeout(PATIENCE).unwrap(), "monotonic");
    drop((boot, monotonic, entered));

    let late = late_by(&runtime, |cause| *cause == Cause::Suspended);
    let [timer] = &late[..] else {
        panic!("{late:?}");
    };
    println!("{timer}");
    // It came due within two seconds of the suspension.
    let length = span(timer, &Cause::Suspended);
    assert!(length <= suspended && length > suspended - 2 * SECOND);
    assert!(timer.late - length < SECOND, "{timer}");
}

#[test]
#[ignore = "it sets the machine's clock: see .ci/suspend"]
fn a_step_of_the_machines_clock_is_named() {
    let runtime = runtime(1);
    let entered = runtime.handle().enter();
    let (sender, ran) = mpsc::channel();
    let hour = 3_600 * SECOND;
    let timer = Timer::at_wall(time::wall_clock() + hour);
    let timer = timer.start(move || sender.send(()).unwrap());
    let to = time::wall_clock() + 3 * hour;
    let since = to.duration_since(std::time::UNIX_EPOCH).unwrap();
    let to = libc::timespec {
        tv_sec: since.as_secs().cast_signed(),
        tv_nsec: since.subsec_nanos().into(),
    };
    // SAFETY: the pointer is valid during the call.
    let set = unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const to) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    ran.recv_timeout(PATIENCE).unwrap();
    drop((timer, entered));
    let late = late_by(&runtime, |cause| *cause == Cause::ClockStep);
    let [timer] = &late[..] else {
        panic!("{late:?}");
    };
    println!("{timer}");
    assert!(span(timer, &Cause::ClockStep) > 2 * hour - 60 * SECOND);
}
