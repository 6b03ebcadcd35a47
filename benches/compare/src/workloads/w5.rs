//! W5: lateness and cost of sleeps on an idle runtime.
//!
//! A task sleeps 2,000 times, one sleep after another, for 0.1 to 5 ms. The runtime has nothing
//! else to do. When the task resumes, it records the lateness, `now - deadline`.
//!
//! - *CPU*: processor time of the process during the sleeps, divided by their number.
//! - *p50 over floor*: median lateness, divided by that of a bare thread. The thread runs before
//!   the runtime, in the same process. It only calls `epoll_pwait2`, for the same lengths and with
//!   a timer slack of 1 ns. Its lateness is what the kernel provides.
//! - *floor: CPU µs each*: processor time of the process while that thread sleeps, divided by the
//!   number of sleeps.
//! - *spin*: the same sleeps with `Builder::spin_before` of 200 µs. Only Tourbillon has these
//!   figures.
//! - The system *exact* is Tourbillon with `Builder::exact`.
//! - *early*: number of sleeps on a runtime that ended before their deadline. It must be zero.

use std::{
    ptr, thread,
    time::{Duration, Instant},
};

use crate::{
    measure::{
        cpu,
        lateness::{Lateness, Slot, slots},
    },
    runtimes::{self, Program, Runtime, Tourbillon},
    system::System,
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w5",
    systems: &System::RUNTIMES_AND_EXACT,
    run,
};

/// Number of sleeps.
const SLEEPS: usize = 2_000;
/// Number of sleeps in a quick run.
const QUICK: usize = 50;
/// `Builder::spin_before` of the *spin* figures.
const SPIN: Duration = Duration::from_micros(200);
/// Time for a new runtime to start its workers, and for the workers to go to sleep.
const SETTLE: Duration = Duration::from_millis(20);

/// Returns the lengths of the sleeps, from 0.1 to 5 ms.
///
/// The generator is MINSTD (multiplicative) with a fixed seed, so all systems get the same
/// lengths.
fn lengths() -> impl Iterator<Item = Duration> + Send {
    let mut state = 20_261_121_u64;
    std::iter::repeat_with(move || {
        state = state * 48_271 % 0x7fff_ffff;
        Duration::from_nanos(100_000 + state % 4_900_000)
    })
}

/// Program whose task makes this number of sleeps.
struct Sleeps(usize);

/// Lateness of the sleeps, and their processor time in total.
struct Slept {
    slots: &'static [Slot],
    cpu: Duration,
}

impl Program for Sleeps {
    type Output = Slept;

    fn on<R: Runtime>(self, runtime: &R) -> Slept {
        let slots = slots(self.0);
        thread::sleep(SETTLE);
        runtime.run(async move {
            let before = cpu::of_this_process();
            for (slot, length) in slots.iter().zip(lengths()) {
                let deadline = Instant::now() + length;
                R::sleep_until(deadline).await;
                slot.came(deadline);
            }
            Slept {
                slots,
                cpu: cpu::of_this_process() - before,
            }
        })
    }
}

/// Makes the sleeps on a thread that only calls `epoll_pwait2`, and returns their lateness and
/// cost.
///
/// The timer slack of 1 ns applies to this thread alone. Refuses the system if `epoll_pwait2`
/// fails. Panics if there is no descriptor.
fn floor(sleeps: usize) -> Slept {
    let slots = slots(sleeps);
    let before = cpu::of_this_process();
    let thread = thread::spawn(move || {
        // SAFETY: the calls take no pointers.
        let epoll = unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0);
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        };
        assert!(epoll >= 0, "no descriptor");
        for (slot, length) in slots.iter().zip(lengths()) {
            let deadline = Instant::now() + length;
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // The timeout is relative, so compute it right before the call.
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: `event` has room for one event. `event` and `timeout` live through the call.
            // The null signal mask is allowed.
            let events = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll,
                    &raw mut event,
                    1,
                    &raw const timeout,
                    ptr::null::<libc::sigset_t>(),
                    0_usize,
                )
            };
            slot.came(deadline);
            // The descriptor watches nothing, so a call that succeeds returns zero events.
            if events != 0 {
                refuse("this kernel has no epoll_pwait2 (Linux 5.11)");
            }
        }
        // SAFETY: this thread has opened the descriptor, and does not use it any more.
        unsafe { libc::close(epoll) };
    });
    thread.join().expect("the thread does not panic");
    Slept {
        slots,
        cpu: cpu::of_this_process() - before,
    }
}

fn run(system: System, quick: bool) -> Vec<Figure> {
    let sleeps = if quick { QUICK } else { SLEEPS };
    let figure = |name, value| Figure { name, value };
    let each = |slept: &Slept| slept.cpu.as_secs_f64() * 1e6 / sleeps as f64;
    let floor = floor(sleeps);
    let slept = runtimes::on(system, Sleeps(sleeps));
    let lateness = Lateness::of(slept.slots);
    let mut early = lateness.early;
    let mut figures = vec![
        figure("p50 µs", lateness.percentile(50.0)),
        figure("p99 µs", lateness.percentile(99.0)),
        figure("CPU µs each", each(&slept)),
        figure(
            "p50 over floor",
            lateness.percentile(50.0) / Lateness::of(floor.slots).percentile(50.0),
        ),
        figure("floor: CPU µs each", each(&floor)),
    ];
    if system == System::Tourbillon {
        let spinning = Tourbillon::new(|builder| builder.spin_before(SPIN));
        let slept = Sleeps(sleeps).on(&spinning);
        let lateness = Lateness::of(slept.slots);
        early += lateness.early;
        figures.push(figure("spin: p50 µs", lateness.percentile(50.0)));
        figures.push(figure("spin: CPU µs each", each(&slept)));
    }
    figures.push(figure("early", early as f64));
    figures
}
