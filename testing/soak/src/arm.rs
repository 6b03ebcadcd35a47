//! Timers of the ledger. Callbacks, tasks and threads arm, move and cancel them.

use std::{
    panic::panic_any,
    sync::Arc,
    thread,
    time::{Duration, Instant as StdInstant},
};

use tourbillon::{
    Handle, Timer,
    task::yield_now,
    time::sleep,
    timer::{Cancel, Monotonic, Once, Outcome, Reset, Started, TimerBuilder},
};
use tourbillon_cli::ledger::{End, Granted, Move, Noted};

use super::{
    shared::{Deliberate, Held, Shared},
    tally::Count,
};

/// Number of operations of a thread or task before it yields or checks its rate.
const BATCH: u64 = 64;
/// How long a task sleeps if no slot is free.
const NAP: Duration = Duration::from_micros(500);
/// One callback in this many panics.
const PANICS: u32 = 4_096;
/// Delay of the timers that last until the runtime ends.
const LONG: Duration = Duration::from_secs(1_000 * 86_400);

/// The place from which a timer is armed.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Callback,
    Task,
    Thread(&'a Handle),
}

impl Place<'_> {
    fn count(self) -> Count {
        match self {
            Place::Callback => Count::ByCallback,
            Place::Task => Count::ByTask,
            Place::Thread(_) => Count::ByThread,
        }
    }

    fn on(self, timer: TimerBuilder<Once<Monotonic>>) -> TimerBuilder<Once<Monotonic>> {
        match self {
            Place::Callback | Place::Task => timer,
            Place::Thread(handle) => timer.on(handle),
        }
    }
}

/// State that a callback owns. Dropping it records that the callback was dropped.
struct Ticket {
    shared: Shared,
    slot: u32,
    generation: u32,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let slot = &self.shared.slots[self.slot as usize];
        slot.entry.dropped(self.generation);
        self.shared.tally.count(Count::Dropped);
    }
}

impl Ticket {
    /// The callback of a timer, at its deadline.
    fn fire(self) {
        // Record the end first, then take the lock: a concurrent move has its answer by then.
        let Self { shared, slot, .. } = self;
        let now = shared.clock.now();
        shared.tally.count(Count::Runs);
        let of = &shared.slots[slot as usize];
        let noted = of.entry.note(self.generation, End::Run);
        let (due, late_from) = {
            let held = of.held();
            (held.granted.due, held.late_from)
        };
        if noted == Noted::Over {
            shared.check(
                now >= due,
                "a timer ran early",
                format_args!("slot {slot}, by {} ns", due.saturating_sub(now)),
            );
            shared.tally.late(now.saturating_sub(late_from));
        }
        // Callbacks meddle with other timers, too.
        if fastrand::u8(..4) == 0 {
            meddle(shared, Place::Callback);
        }
        over(shared, slot, noted, End::Run, Place::Callback);
        if fastrand::u32(..PANICS) == 0 {
            shared.tally.count(Count::Panics);
            panic_any(Deliberate);
        }
    }

    /// The callback of a timer that takes an outcome.
    fn take_outcome(self, how: Outcome) {
        let end = match how {
            Outcome::Fired => return self.fire(),
            Outcome::Cancelled => End::Told,
            Outcome::Shutdown => End::Shutdown,
            _ => {
                let detail = format_args!("slot {}, {how:?}", self.slot);
                let what = "a timer got an outcome that it may not get";
                return self.shared.faults.add(what, detail);
            }
        };
        let Self { shared, slot, .. } = self;
        shared.tally.count(Count::Runs);
        let noted = shared.slots[slot as usize].entry.note(self.generation, end);
        over(shared, slot, noted, end, Place::Callback);
    }
}

/// Handles the result of recording an end. A wrong end is a fault. A complete end frees the slot:
/// this arms its next timer, or queues the slot for a task or an outside thread.
fn over(shared: Shared, slot: u32, noted: Noted, end: End, place: Place<'_>) {
    match noted {
        Noted::Partly => return,
        Noted::Over => {}
        Noted::Twice => {
            let detail = format_args!("slot {slot}, last end {end:?}");
            return shared.faults.add("a timer ended twice", detail);
        }
        Noted::Stray => {
            let detail = format_args!("slot {slot}, {end:?}");
            let what = "a timer ended after its slot had the next one";
            return shared.faults.add(what, detail);
        }
    }
    shared.tally.count(match end {
        End::Run => Count::Fired,
        End::Cancelled | End::Told => Count::Cancelled,
        End::Shutdown => Count::ShutDown,
    });
    if shared.is_stopping() {
        return;
    }
    // Spread the slots over all places to arm from.
    match fastrand::u8(..4) {
        0 => shared.for_tasks.push(slot),
        1 if shared.leave_to_threads(slot) => {}
        _ => arm(shared, slot, place),
    }
}

/// Arms a timer in a free slot.
pub(super) fn arm(shared: Shared, index: u32, place: Place<'_>) {
    let slot = &shared.slots[index as usize];
    // Open the slot before the timer can fire. The lock keeps its callback from reading `held`
    // before the deadline is stored.
    let mut held = slot.held();
    let takes_outcome = fastrand::u8(..4) == 0;
    let generation = slot.entry.open(takes_outcome);
    let ticket = Ticket {
        shared,
        slot: index,
        generation,
    };
    let wait = shared.wait();
    shared.tally.count(Count::Made);
    shared.tally.count(Count::Armed);
    shared.tally.count(place.count());
    let granted = Granted::after(shared.clock, wait);
    let by_delay = fastrand::bool();
    let (options, granted) = if by_delay {
        (Timer::after(Duration::from_nanos(wait)), granted)
    } else {
        let at = shared.clock.instant(granted.due);
        (Timer::at(at), Granted::at(granted.due))
    };
    let mut options = place.on(options);
    // Some timers are built first and started later.
    let is_manual = fastrand::u8(..8) == 0;
    if is_manual {
        options = options.manual();
    }
    let timer = if takes_outcome {
        options.start_with(move |how| ticket.take_outcome(how))
    } else {
        options.start(move || ticket.fire())
    };
    if is_manual {
        started(shared, &timer);
    }
    *held = Held {
        timer: Some(Arc::new(timer)),
        generation,
        granted,
        late_from: granted.due,
    };
}

fn started(shared: Shared, timer: &Timer) {
    let answer = timer.start();
    let what = "a built timer did not start";
    shared.check(answer == Started::Pending, what, format_args!("{answer:?}"));
}

/// Refreshes, resets, inspects or cancels a random timer.
fn meddle(shared: Shared, place: Place<'_>) {
    let Some(index) = shared.any_slot() else {
        return;
    };
    let slot = &shared.slots[index as usize];
    let mut held = slot.held();
    let Some(timer) = held.timer.clone() else {
        return;
    };
    match fastrand::u8(..100) {
        ..50 => refresh(shared, &mut held, &timer),
        50..70 => reset(shared, &mut held, &timer),
        70..85 => check_deadline(shared, &held, &timer),
        _ => {
            let generation = held.generation;
            // Cancel without the lock, so that it races with moves.
            drop(held);
            cancel(shared, index, generation, &timer, place);
        }
    }
}

fn refresh(shared: Shared, held: &mut Held, timer: &Timer) {
    match held.granted.wait {
        Some(_) => make(shared, held, timer, Move::Refresh),
        None => check_deadline(shared, held, timer),
    }
}

/// Moves a timer to an earlier or later deadline: by a delay from now, by a delay from the start of
/// its wait, or to an instant.
fn reset(shared: Shared, held: &mut Held, timer: &Timer) {
    let delay = shared.wait();
    let by = match (fastrand::u8(..3), held.granted.wait) {
        (0, Some(wait)) => Move::FromStart(wait / 2 + delay),
        (1, _) => Move::At(shared.clock.now() + delay),
        _ => Move::After(delay),
    };
    make(shared, held, timer, by);
}

/// Moves a timer, and records the new deadline if the runtime has granted it.
fn make(shared: Shared, held: &mut Held, timer: &Timer, by: Move) {
    match held.granted.moved(timer, by, shared.clock) {
        (Reset::Pending, granted) => {
            held.granted = granted;
            // A timer that was moved to a past deadline is late from now on.
            held.late_from = granted.due.max(shared.clock.now());
            shared.tally.count(Count::Moved);
        }
        (Reset::TooLate, _) => shared.tally.count(Count::TooLate),
        (answer, _) => shared.faults.add(
            "an impossible answer to a reset or refresh",
            format_args!("{answer:?}"),
        ),
    }
}

/// Checks that the timer's deadline is not before the granted one.
fn check_deadline(shared: Shared, held: &Held, timer: &Timer) {
    if let Some(deadline) = timer.deadline() {
        let due = shared.clock.instant(held.granted.due);
        let what = "a deadline is before the granted one";
        let by = due.saturating_duration_since(deadline);
        shared.check(deadline >= due, what, format_args!("by {by:?}"));
    }
}

fn cancel(shared: Shared, index: u32, generation: u32, timer: &Timer, place: Place<'_>) {
    let slot = &shared.slots[index as usize];
    let takes_outcome = slot.entry.ends().takes_outcome();
    match timer.cancel() {
        Cancel::Cancelled => {
            // Only this thread can have ended the timer, so the slot still belongs to it.
            let what = "the callback of a cancelled timer was not dropped";
            let dropped = takes_outcome || slot.entry.is_dropped(generation);
            shared.check(dropped, what, format_args!("slot {index}"));
            let noted = slot.entry.note(generation, End::Cancelled);
            over(shared, index, noted, End::Cancelled, place);
        }
        Cancel::Running | Cancel::Over => shared.tally.count(Count::TooLate),
        answer => {
            let what = "an impossible answer to a cancel";
            shared.faults.add(what, format_args!("{answer:?}"));
        }
    }
}

/// Queues all slots for their first timers, and arms the timers that last until the runtime ends.
pub(super) fn fill_slots(shared: Shared, handle: &Handle, lasting: u64) {
    for slot in 0..shared.slots.len() as u32 {
        if slot % 2 == 1 || !shared.leave_to_threads(slot) {
            shared.for_tasks.push(slot);
        }
    }
    for _ in 0..lasting {
        shared.tally.count(Count::Armed);
        Timer::after(LONG).on(handle).start_with(move |how| {
            let what = "a long timer was not ended by the shutdown";
            shared.check(how == Outcome::Shutdown, what, format_args!("{how:?}"));
            shared.tally.count(Count::ShutDown);
        });
    }
}

/// A task that arms timers and meddles, until the soak ends.
pub(super) async fn task(shared: Shared) {
    while !shared.is_stopping() {
        let mut armed = 0;
        while armed < BATCH
            && let Some(slot) = shared.for_tasks.pop()
        {
            arm(shared, slot, Place::Task);
            armed += 1;
        }
        for _ in 0..BATCH / 8 {
            meddle(shared, Place::Task);
        }
        if armed == BATCH {
            yield_now().await;
        } else {
            sleep(NAP).await;
        }
    }
}

/// An outside thread that arms timers and meddles, until the soak ends. `rate` limits its
/// operations per second; 0 means no limit.
pub(super) fn thread(shared: Shared, handle: &Handle, rate: u64) {
    shared.enlist();
    let start = StdInstant::now();
    let mut done = 0;
    while !shared.is_stopping() {
        for _ in 0..BATCH {
            match shared.for_threads.pop() {
                Some(slot) => arm(shared, slot, Place::Thread(handle)),
                None => meddle(shared, Place::Thread(handle)),
            }
        }
        done += BATCH;
        if rate > 0 {
            let due = Duration::from_secs_f64(done as f64 / rate as f64);
            // Sleep in short pieces, so that the thread notices the stop.
            while !shared.is_stopping()
                && let Some(ahead) = due.checked_sub(start.elapsed())
            {
                thread::sleep(ahead.min(Duration::from_millis(100)));
            }
        }
    }
}

/// Cancels half of the pending timers, and all with a distant deadline. Leaves timers that are
/// already due: they must fire, or they count as lost.
pub(super) fn cancel_some(shared: Shared, handle: &Handle) {
    let now = shared.clock.now();
    let soon = now + 1_000_000_000;
    for (index, slot) in (0..).zip(&*shared.slots) {
        let (timer, generation, due) = {
            let held = slot.held();
            (held.timer.clone(), held.generation, held.granted.due)
        };
        let is_to_cancel = due > soon || (due > now && index % 2 == 0);
        if let Some(timer) = timer.filter(|_| is_to_cancel) {
            cancel(shared, index, generation, &timer, Place::Thread(handle));
        }
    }
}
