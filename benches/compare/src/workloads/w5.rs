//! W5: how late a sleep ends on a runtime that has nothing else to do, and what it costs.
//!
//! A task of an idle runtime sleeps 2,000 times, one after another, for 0.1 to 5 ms, and notes `now - deadline` when it
//! is resumed. *CPU* is that of the process meanwhile.
//!
//! *p50 over floor*: before that, in the same process, a thread that does nothing but `epoll_pwait2` with a timer slack
//! of 1 ns sleeps for the same lengths: what the kernel gives. *floor: CPU µs each* is what that costs.
//!
//! *spin*: ours only, the same with `Builder::spin_before` of 200 µs.
//!
//! *early*: how many ended before their deadline. None may.

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
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
        System::Compio,
        System::Monoio,
        System::Glommio,
    ],
    run,
};

const SLEEPS: usize = 2_000;
const QUICK: usize = 50;
const SPIN: Duration = Duration::from_micros(200);
/// How long a runtime gets to start its workers, and to let them go to sleep.
const SETTLE: Duration = Duration::from_millis(20);

/// How long the sleeps are: 0.1 to 5 ms, by a multiplicative generator (MINSTD), alike for all systems.
fn lengths() -> impl Iterator<Item = Duration> + Send {
    let mut state = 20_261_121_u64;
    std::iter::repeat_with(move || {
        state = state * 48_271 % 0x7fff_ffff;
        Duration::from_nanos(100_000 + state % 4_900_000)
    })
}

struct Sleeps(usize);

/// How late they were, and what they cost altogether.
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

/// Returns the lateness of a thread that only waits.
fn floor(sleeps: usize) -> Slept {
    let slots = slots(sleeps);
    let before = cpu::of_this_process();
    let thread = thread::spawn(move || {
        // SAFETY: no pointers.
        let epoll = unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0);
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        };
        assert!(epoll >= 0, "no descriptor");
        for (slot, length) in slots.iter().zip(lengths()) {
            let deadline = Instant::now() + length;
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: room for one event; the timeout lives through the call.
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
            if events != 0 {
                refuse("this kernel has no epoll_pwait2 (Linux 5.11)");
            }
        }
        // SAFETY: the descriptor is ours.
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
