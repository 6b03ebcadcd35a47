//! Timers of the ledger: armed by callbacks, tasks and threads, moved and cancelled by all of them.

use std::{
    panic::panic_any,
    sync::Arc,
    thread,
    time::{Duration, Instant as StdInstant},
};

use tourbillon::{
    Cancel, Handle, Outcome, Reset, Started, Timer,
    task::yield_now,
    time::sleep,
    timer::{Monotonic, Once, TimerBuilder},
};

use super::{
    books::{Books, Meant},
    ledger::{End, Held, Noted},
    tally::Count,
};

/// How many operations a thread or task does before it looks around.
const BATCH: u64 = 64;
/// How long a task waits for slots, if there are none.
const NAP: Duration = Duration::from_micros(500);
/// One of so many callbacks panics.
const PANICS: u32 = 4_096;
/// What lasts until the runtime ends, in all runs.
const LONG: Duration = Duration::from_secs(1_000 * 86_400);

/// Where a timer is armed from.
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

/// What a callback owns: it tells when it is dropped.
struct Ticket {
    books: Books,
    slot: u32,
    generation: u32,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.books.slots[self.slot as usize].dropped(self.generation);
        self.books.tally.count(Count::Dropped);
    }
}

impl Ticket {
    /// The callback of a timer that is due.
    fn fire(self) {
        let Self { books, slot, .. } = self;
        let now = books.now();
        books.tally.count(Count::Runs);
        let noted = books.slots[slot as usize].note(self.generation, End::Run);
        let (due, late_from) = {
            let held = books.slots[slot as usize].held();
            (held.due, held.late_from)
        };
        if noted == Noted::Over {
            books.faults.unless(
                now >= due,
                "a timer ran early",
                format_args!("slot {slot}, by {} ns", due.saturating_sub(now)),
            );
            books.tally.late(now.saturating_sub(late_from));
        }
        if fastrand::u8(..4) == 0 {
            meddle(books, Place::Callback);
        }
        over(books, slot, noted, End::Run, Place::Callback);
        if fastrand::u32(..PANICS) == 0 {
            books.tally.count(Count::Panics);
            panic_any(Meant);
        }
    }

    /// The callback of a timer that is told how it ended.
    fn told(self, how: Outcome) {
        let end = match how {
            Outcome::Fired => return self.fire(),
            Outcome::Cancelled => End::Told,
            _ => End::Shutdown,
        };
        let Self { books, slot, .. } = self;
        books.tally.count(Count::Runs);
        let noted = books.slots[slot as usize].note(self.generation, end);
        over(books, slot, noted, end, Place::Callback);
    }
}

/// An end of a timer was noted: it was the one that there should be, or a fault. The slot goes to who arms its next
/// timer.
fn over(books: Books, slot: u32, noted: Noted, end: End, place: Place<'_>) {
    match noted {
        Noted::Partly => return,
        Noted::Over => {}
        Noted::Twice => {
            let detail = format_args!("slot {slot}, at last {end:?}");
            return books.faults.add("a timer ended twice", detail);
        }
        Noted::Stray => {
            let detail = format_args!("slot {slot}, {end:?}");
            let what = "a timer ended after its slot had another";
            return books.faults.add(what, detail);
        }
    }
    books.tally.count(match end {
        End::Run => Count::Fired,
        End::Cancelled | End::Told => Count::Cancelled,
        End::Shutdown => Count::ShutDown,
    });
    if books.is_stopping() {
        return;
    }
    match fastrand::u8(..4) {
        0 => books.for_tasks.push(slot),
        1 if books.leave_to_threads(slot) => {}
        _ => arm(books, slot, place),
    }
}

/// Arms a timer in a slot that is free.
pub(super) fn arm(books: Books, index: u32, place: Place<'_>) {
    let slot = &books.slots[index as usize];
    let mut held = slot.held();
    let told = fastrand::u8(..4) == 0;
    let generation = slot.open(told);
    let ticket = Ticket {
        books,
        slot: index,
        generation,
    };
    let wait = books.wait();
    books.tally.count(Count::Made);
    books.tally.count(Count::Armed);
    books.tally.count(place.count());
    let due = books.now() + wait;
    let delay = Duration::from_nanos(wait);
    let by_delay = fastrand::bool();
    let options = place.on(if by_delay {
        Timer::after(delay)
    } else {
        Timer::at(books.instant(due))
    });
    let timer = match (told, fastrand::u8(..8)) {
        (true, 0) => {
            let timer = options.build_with(move |how| ticket.told(how));
            started(books, &timer);
            timer
        }
        (true, _) => options.start_with(move |how| ticket.told(how)),
        (false, 0) => {
            let timer = options.build(move || ticket.fire());
            started(books, &timer);
            timer
        }
        (false, _) => options.start(move || ticket.fire()),
    };
    *held = Held {
        timer: Some(Arc::new(timer)),
        generation,
        due,
        late_from: due,
        wait: by_delay.then_some(wait),
    };
}

fn started(books: Books, timer: &Timer) {
    let answer = timer.start();
    let what = "a timer that was built did not start";
    books
        .faults
        .unless(answer == Started::Waiting, what, format_args!("{answer:?}"));
}

/// Does something to a timer that somebody else armed.
fn meddle(books: Books, place: Place<'_>) {
    let Some(index) = books.any_slot() else {
        return;
    };
    let slot = &books.slots[index as usize];
    let mut held = slot.held();
    let Some(timer) = held.timer.clone() else {
        return;
    };
    match fastrand::u8(..100) {
        ..50 => refresh(books, &mut held, &timer),
        50..70 => reset(books, &mut held, &timer),
        70..85 => look(books, &held, &timer),
        _ => {
            let generation = held.generation;
            drop(held);
            cancel(books, index, generation, &timer, place);
        }
    }
}

fn refresh(books: Books, held: &mut Held, timer: &Timer) {
    let Some(wait) = held.wait else {
        return look(books, held, timer);
    };
    let due = books.now() + wait;
    granted(books, held, due, Some(wait), timer.refresh());
}

/// Moves a timer: to earlier or later, by a delay from now or from when its wait began, or to a moment.
fn reset(books: Books, held: &mut Held, timer: &Timer) {
    let (now, delay) = (books.now(), books.wait());
    match (fastrand::u8(..3), held.wait) {
        (0, Some(wait)) => {
            // A little later than by our clock did the wait begin: never may it end before this.
            let (began, wait) = (held.due - wait, wait / 2 + delay);
            let answer = timer.reset_from_start(Duration::from_nanos(wait));
            granted(books, held, began + wait, Some(wait), answer);
        }
        (1, _) => {
            let answer = timer.reset_at(books.instant(now + delay));
            // Its delay is what it was, and when its wait began is not for us to say.
            granted(books, held, now + delay, None, answer);
        }
        _ => {
            let answer = timer.reset(Duration::from_nanos(delay));
            granted(books, held, now + delay, Some(delay), answer);
        }
    }
}

/// Notes what a timer's deadline is now, if it was moved.
fn granted(books: Books, held: &mut Held, due: u64, wait: Option<u64>, answer: Reset) {
    match answer {
        Reset::Waiting => {
            (held.due, held.wait) = (due, wait);
            // Moved to a moment that has passed it is late from now on.
            held.late_from = due.max(books.now());
            books.tally.count(Count::Moved);
        }
        Reset::TooLate => books.tally.count(Count::TooLate),
        answer => books.faults.add(
            "an answer that cannot be, to who moves a timer",
            format_args!("{answer:?}"),
        ),
    }
}

fn look(books: Books, held: &Held, timer: &Timer) {
    if let Some(deadline) = timer.deadline() {
        let due = books.instant(held.due);
        let what = "a deadline before the one that was granted";
        let by = due.saturating_duration_since(deadline);
        books
            .faults
            .unless(deadline >= due, what, format_args!("by {by:?}"));
    }
}

fn cancel(books: Books, index: u32, generation: u32, timer: &Timer, place: Place<'_>) {
    let slot = &books.slots[index as usize];
    let told = slot.is_told();
    match timer.cancel() {
        Cancel::Cancelled => {
            // Nobody but us can have ended it: the slot is still this timer's.
            let what = "the callback of a cancelled timer was not dropped";
            let dropped = told || slot.is_dropped(generation);
            books
                .faults
                .unless(dropped, what, format_args!("slot {index}"));
            let noted = slot.note(generation, End::Cancelled);
            over(books, index, noted, End::Cancelled, place);
        }
        Cancel::Running | Cancel::Over => books.tally.count(Count::TooLate),
        answer => {
            let what = "an answer that cannot be, to who cancels a timer";
            books.faults.add(what, format_args!("{answer:?}"));
        }
    }
}

/// Lays out the timers: the slots, for who arms them first; and some that last until the runtime ends.
pub(super) fn lay_out(books: Books, handle: &Handle, lasting: u64) {
    for slot in 0..books.slots.len() as u32 {
        if slot % 2 == 1 || !books.leave_to_threads(slot) {
            books.for_tasks.push(slot);
        }
    }
    for _ in 0..lasting {
        books.tally.count(Count::Armed);
        Timer::after(LONG).on(handle).start_with(move |how| {
            let what = "a timer that lasts was not ended by the shutdown";
            books
                .faults
                .unless(how == Outcome::Shutdown, what, format_args!("{how:?}"));
            books.tally.count(Count::ShutDown);
        });
    }
}

/// A task that arms, and meddles, until the soak ends.
pub(super) async fn task(books: Books) {
    while !books.is_stopping() {
        let mut armed = 0;
        while armed < BATCH
            && let Some(slot) = books.for_tasks.pop()
        {
            arm(books, slot, Place::Task);
            armed += 1;
        }
        for _ in 0..BATCH / 8 {
            meddle(books, Place::Task);
        }
        if armed == BATCH {
            yield_now().await;
        } else {
            sleep(NAP).await;
        }
    }
}

/// A thread outside that does the same, with so many operations a second; 0: as many as it can.
pub(super) fn thread(books: Books, handle: &Handle, rate: u64) {
    books.enlist();
    let start = StdInstant::now();
    let mut done = 0;
    while !books.is_stopping() {
        for _ in 0..BATCH {
            match books.for_threads.pop() {
                Some(slot) => arm(books, slot, Place::Thread(handle)),
                None => meddle(books, Place::Thread(handle)),
            }
        }
        done += BATCH;
        if rate > 0 {
            let due = Duration::from_secs_f64(done as f64 / rate as f64);
            // In naps, so that it hears that all ends.
            while !books.is_stopping()
                && let Some(ahead) = due.checked_sub(start.elapsed())
            {
                thread::sleep(ahead.min(Duration::from_millis(100)));
            }
        }
    }
}

/// When all has come to a stop: cancels half of what waits, and all that would wait for long; but nothing that is due,
/// which has to run, or else was lost.
pub(super) fn wind_up(books: Books, handle: &Handle) {
    let now = books.now();
    let soon = now + 1_000_000_000;
    for (index, slot) in (0..).zip(&*books.slots) {
        let (timer, generation, due) = {
            let held = slot.held();
            (held.timer.clone(), held.generation, held.due)
        };
        let is_to_go = due > soon || (due > now && index % 2 == 0);
        if let Some(timer) = timer.filter(|_| is_to_go) {
            cancel(books, index, generation, &timer, Place::Thread(handle));
        }
    }
}
