//! Wall-clock timers when the system's clock is set forward and back.
//!
//! The test sets the clock of the machine ahead by ten or twenty minutes, twice, and back, within
//! ten seconds. It does so only if `TOURBILLON_STEP_CLOCK=1` is set and the process has
//! `CAP_SYS_TIME`.

use std::{
    io, mem, thread,
    time::{Duration, SystemTime},
};

use crate::common::{
    PATIENCE, alarm, eventually, runtime,
    told::{Told, read_inboxes},
};
use tourbillon::{
    Timer,
    time::BootInstant,
    timer::{Cancel, OnStep, Outcome, Status},
};

/// A step longer than the tests' patience: only a step of the clock makes a timer fire that waits
/// for it.
const STEP: Duration = PATIENCE.saturating_add(PATIENCE);

/// The clock of the machine. A drop sets it right again.
struct Clock {
    time: SystemTime,
    boot: BootInstant,
}

impl Clock {
    fn new() -> Self {
        let (time, boot) = (SystemTime::now(), BootInstant::now());
        Self { time, boot }
    }

    /// Returns the time that the clock would show if it had not been set.
    fn right(&self) -> SystemTime {
        self.time + (BootInstant::now() - self.boot)
    }

    /// Sets the clock to the right time plus `ahead`.
    fn set(&self, ahead: Duration) -> io::Result<()> {
        let time = self.right() + ahead;
        let since = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("not before 1970");
        // SAFETY: a `timespec` consists of integers, which may be zero.
        let mut spec: libc::timespec = unsafe { mem::zeroed() };
        spec.tv_sec = since.as_secs().try_into().expect("not so late");
        spec.tv_nsec = since.subsec_nanos().into();
        // SAFETY: `spec` is a valid timespec.
        match unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &spec) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let set = self.set(Duration::ZERO);
        if !thread::panicking() {
            set.expect("a process that may set it may set it back");
        }
    }
}

/// Returns whether the process's capabilities allow it to set the clock.
fn may_set_the_clock() -> bool {
    const CAP_SYS_TIME: u32 = 25;
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let caps = u64::from_str_radix(caps.expect("Linux tells").trim(), 16);
    caps.expect("a number") & (1 << CAP_SYS_TIME) != 0
}

#[test]
fn a_step_of_the_clock_is_noticed_at_once() {
    if std::env::var_os("TOURBILLON_STEP_CLOCK").is_none_or(|value| value != "1") {
        eprintln!("skipped: this sets the machine's clock, unless TOURBILLON_STEP_CLOCK=1");
        return;
    }
    if !may_set_the_clock() {
        eprintln!("skipped: this process may not set the clock (CAP_SYS_TIME)");
        return;
    }
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let (fires, skips, later) = (Told::new(), Told::new(), Told::new());
    let clock = Clock::new();
    let at = |time: SystemTime| Timer::at_wall(time).on(handle);
    // Waits until the kernel has the earliest of the deadlines and reports steps.
    let armed = |count: usize| {
        eventually("they are read", || {
            read_inboxes(handle);
            handle.timers().wall.pending == count
        });
        thread::sleep(Duration::from_millis(50));
    };

    // Forward, over some of the deadlines.
    let soon = clock.right() + STEP;
    let fire = at(soon).start_with(fires.once());
    let explicit = at(soon).on_step(OnStep::Fire).start_with(fires.once());
    let skip = at(soon).on_step(OnStep::Skip).start_with(skips.once());
    let kept = at(soon + 60 * STEP)
        .on_step(OnStep::Skip)
        .start_with(later.once());
    let boot = Timer::after_boot(STEP).on(handle).start(|| ());
    armed(4);
    if let Err(error) = clock.set(STEP * 3 / 2) {
        mem::forget(clock);
        eprintln!("skipped: the clock cannot be set: {error}");
        return;
    }
    eventually("what it jumped over fires", || fires.all() == [2, 0, 0]);
    eventually("or is told that it does not", || skips.all() == [0, 1, 0]);
    for timer in [&fire, &explicit] {
        eventually("it is over", || {
            timer.status() == Status::Over(Outcome::Fired)
        });
    }
    assert_eq!(skip.status(), Status::Over(Outcome::Cancelled));
    assert!(kept.is_pending() && boot.is_pending());

    // A timer whose time comes without a step runs, whatever its policy is.
    let normal = at(SystemTime::now() + Duration::from_millis(100));
    let normal = normal.on_step(OnStep::Skip).start_with(skips.once());
    eventually("it fires", || skips.all() == [1, 1, 0]);
    assert_eq!(normal.cancel(), Cancel::Over);

    // Back: the timers wait for longer.
    let ahead = SystemTime::now() + Duration::from_secs(5);
    let waits = at(ahead).start_with(fires.once());
    armed(2);
    clock.set(Duration::ZERO).unwrap();
    let right = SystemTime::now();
    assert!(right < ahead - STEP);
    thread::sleep(Duration::from_secs(6));
    assert!(waits.is_pending() && SystemTime::now() < ahead);
    assert_eq!(waits.deadline(), Some(ahead));

    // And forward over the deadline again.
    clock.set(2 * STEP).unwrap();
    eventually("it fires", || fires.all() == [3, 0, 0]);
    drop(clock);
    assert!(SystemTime::now() < soon + STEP / 2);
    assert_eq!(
        (kept.cancel(), boot.cancel()),
        (Cancel::Cancelled, Cancel::Cancelled)
    );
}
