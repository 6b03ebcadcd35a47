//! The operations that outside threads, callbacks and tasks do with timers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use tourbillon::{
    Timer,
    time::{BootInstant, Instant},
    timer::{BootTimer, Cancel, OnStep, Outcome, Reset, Started, Status, WallTimer},
};
use tourbillon_sim::raw::{self as sim, below};

use crate::{
    cast::{Cast, lock},
    ledger::{Alive, Begun, Call, Kind, NEVER, Record, What, add, records, tally},
    tasks,
};

const MS: u64 = 1_000_000;

/// A timer, by its number in the ledger.
pub struct Armed {
    pub id: usize,
    pub timer: Any,
    pub kind: Kind,
    /// If set, a move refreshes this timer. Otherwise it resets it.
    refreshes: bool,
    wait: u64,
    /// Set after the ledger has the start. Until then, two threads may start it at the same time.
    started: AtomicBool,
}

pub enum Any {
    Mono(Timer),
    Boot(BootTimer),
    Wall(WallTimer),
}

macro_rules! each {
    ($any:expr, $timer:ident => $do:expr) => {
        match $any {
            Any::Mono($timer) => $do,
            Any::Boot($timer) => $do,
            Any::Wall($timer) => $do,
        }
    };
}

/// Starts the timer of a builder. Its callback takes outcomes or not.
macro_rules! start {
    ($builder:expr, $tells:expr, $callback:expr) => {{
        let (builder, mut f) = ($builder, $callback);
        if $tells {
            builder.start_with(f)
        } else {
            builder.start(move || f(Outcome::Fired))
        }
    }};
}

fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Runs a timer's callback.
fn called(cast: &Arc<Cast>, alive: &Alive, how: Outcome) {
    let _call = Call::begin(alive.0, how);
    sim::step();
    if how == Outcome::Fired {
        cast.maybe_block();
        if !cast.over.load(Relaxed) && below(3) == 0 {
            act(cast, true);
        }
        if below(1_000) < u64::from(cast.plan.panics) {
            std::panic::panic_any(crate::Meant);
        }
    }
}

fn callback(cast: &Arc<Cast>, id: usize) -> impl FnMut(Outcome) + Send + 'static {
    let (cast, alive) = (cast.clone(), Alive(id));
    move |how| called(&cast, &alive, how)
}

fn record(kind: Kind, wait: u64, tells: bool) -> Record {
    Record {
        kind,
        tells,
        named: false,
        tolerance: 0,
        wait,
        refused: false,
        failed: false,
        dropped: 0,
        events: Vec::new(),
    }
}

impl Armed {
    fn keep(cast: &Cast, id: usize, timer: Any, started: bool) {
        let (kind, wait) = {
            let records = records();
            (records[id].kind, records[id].wait)
        };
        records()[id].refused = match started {
            // It answers so, and changes nothing.
            true => each!(&timer, timer => timer.start()) == Started::Refused,
            // A worker may be about to tell the callback.
            false => matches!(
                each!(&timer, timer => timer.status()),
                Status::Over(Outcome::Refused) | Status::Running { .. }
            ),
        };
        if below(5) == 0 && started {
            // Detached.
            return;
        }
        let armed = Self {
            id,
            timer,
            kind,
            // The wait of a timer that was armed for a given time is not known here, so do not
            // refresh it.
            refreshes: below(2) == 0 && !matches!(kind, Kind::Wall(_)) && wait != NEVER,
            wait,
            started: AtomicBool::new(started),
        };
        lock(&cast.timers).push(Arc::new(armed));
    }

    fn is_started(&self) -> bool {
        self.started.load(Relaxed)
    }

    pub fn cancel(&self) -> Cancel {
        let begun = Begun::now(self.kind);
        let answer = each!(&self.timer, timer => timer.cancel());
        begun.end(self.id, |_, _| What::Cancel(answer));
        answer
    }

    pub fn start(&self) {
        let begun = Begun::now(self.kind);
        let answer = each!(&self.timer, timer => timer.start());
        let (wait, kind) = (self.wait, self.kind);
        begun.end(self.id, |from, to| started(kind, answer, from, to, wait));
        self.started.store(true, Relaxed);
    }

    fn move_it(&self, cast: &Cast) {
        if !self.is_started() {
            // Skip it: the oracle does not know the wait of a timer that is moved before its start.
            return;
        }
        let delay = cast.delay();
        let begun = Begun::now(self.kind);
        if self.refreshes {
            let answer = each!(&self.timer, timer => timer.refresh());
            let wait = self.wait;
            begun.end(self.id, |from, to| moved(answer, from, to, wait));
            return;
        }
        match &self.timer {
            Any::Mono(timer) if matches!(self.kind, Kind::Once) && below(2) == 0 => {
                let answer = timer.reset_at(Instant::now() + ns(delay));
                begun.end(self.id, |from, to| moved(answer, from, to, delay));
            }
            Any::Wall(timer) => {
                let at = wall(sim::wall().saturating_add(delay));
                let answer = timer.reset_at(at);
                let at = nanos(at);
                begun.end(self.id, |_, _| What::Reset(answer, at, at));
            }
            any => {
                let answer = each!(any, timer => timer.reset_after(ns(delay)));
                begun.end(self.id, |from, to| moved(answer, from, to, delay));
            }
        }
    }
}

fn moved(answer: Reset, from: u64, to: u64, delay: u64) -> What {
    What::Reset(answer, from.saturating_add(delay), late(to, delay))
}

fn started(kind: Kind, answer: Started, from: u64, to: u64, wait: u64) -> What {
    match kind {
        Kind::Wall(_) => What::Started(answer, wait, wait),
        _ => What::Started(answer, from.saturating_add(wait), late(to, wait)),
    }
}

/// Returns the latest deadline. One that is too far off never comes.
fn late(to: u64, delay: u64) -> u64 {
    if delay > 70 * 365 * 86_400 * 1_000 * MS {
        NEVER
    } else {
        to.saturating_add(delay)
    }
}

fn wall(nanos: u64) -> SystemTime {
    // 2065 at the latest, 38 years after the world begins: it never comes, and no sum overflows.
    SystemTime::UNIX_EPOCH + ns(nanos.min(3_000_000_000_000_000_000))
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

/// Does one operation, in a callback or a task (`inside`) or on an outside thread.
pub fn act(cast: &Arc<Cast>, inside: bool) {
    if inside && cast.over.load(Relaxed) {
        // Otherwise operations that cause others would never end.
        return;
    }
    let kinds = cast.plan.kinds & 0xffff;
    if kinds == 0 {
        return;
    }
    let mut which = below(16) as u32;
    while kinds & (1 << which) == 0 {
        which = (which + 1) % 16;
    }
    match which {
        0 => once(cast),
        1 | 2 => told(cast),
        3 => every(cast),
        4 => unstarted(cast),
        5 | 6 => {
            if let Some(armed) = cast.any() {
                armed.cancel();
            }
        }
        7 | 8 => {
            if let Some(armed) = cast.any() {
                armed.move_it(cast);
            }
        }
        9 => named(cast),
        10 | 11 => tasks::spawn(cast),
        12 => match below(3) {
            0 => cast.notify.notify_one(),
            1 => cast.notify.notify_waiters(),
            _ => {
                if let Some(task) = cast.any_task() {
                    tally(|tally| tally.aborted.insert(task.id()));
                    task.abort();
                }
            }
        },
        13 => tasks::spawn_blocking(cast),
        14 if cast.plan.clocks && below(2) == 0 => clocks(cast),
        14 => start(cast),
        _ if inside => once(cast),
        _ => wait(cast),
    }
}

/// Arms a timer whose callback takes no outcome.
fn once(cast: &Arc<Cast>) {
    let delay = cast.delay();
    let id = add(record(Kind::Once, delay, false));
    let mut f = callback(cast, id);
    let f = move || f(Outcome::Fired);
    let begun = Begun::now(Kind::Once);
    let timer = match below(3) {
        0 => Ok(cast.handle.after(ns(delay), f)),
        1 => Timer::after(ns(delay)).on(&cast.handle).try_start(f),
        _ => {
            records()[id].wait = NEVER;
            Ok(cast.handle.at(Instant::now() + ns(delay), f))
        }
    };
    armed(begun, id, delay);
    finish(cast, id, timer.map(Any::Mono));
}

/// Records that a timer was armed by a delay.
fn armed(begun: Begun, id: usize, delay: u64) {
    begun.end(id, |from, to| {
        What::Armed(from.saturating_add(delay), late(to, delay))
    });
}

fn finish(cast: &Cast, id: usize, timer: Result<Any, tourbillon::ArmError>) {
    match timer {
        Ok(timer) => Armed::keep(cast, id, timer, true),
        Err(_) => {
            let record = &mut records()[id];
            (record.refused, record.failed) = (true, true);
        }
    }
}

/// Arms a timer with options, whose callback takes the outcome.
fn told(cast: &Arc<Cast>) {
    let delay = cast.delay();
    let tolerance = [0, 0, below(3 * MS)][below(3) as usize];
    let id = add(Record {
        tolerance,
        ..record(Kind::Once, delay, true)
    });
    let f = callback(cast, id);
    let mut builder = Timer::after(ns(delay))
        .on(&cast.handle)
        .tolerance(ns(tolerance));
    if below(3) == 0 {
        builder = builder.on_worker(below(cast.plan.workers as u64) as usize);
    }
    let begun = Begun::now(Kind::Once);
    let timer = match below(4) {
        0 => builder.try_start_with(f),
        _ => Ok(builder.start_with(f)),
    };
    armed(begun, id, delay);
    finish(cast, id, timer.map(Any::Mono));
}

fn every(cast: &Arc<Cast>) {
    let period = 200_000 + below(20 * MS);
    let times = 1 + below(30);
    let tells = below(2) == 0;
    let kind = Kind::Every(period, times);
    let id = add(record(kind, period, tells));
    let begun = Begun::now(kind);
    let builder = Timer::every(ns(period)).on(&cast.handle).times(times);
    let timer = start!(builder, tells, callback(cast, id));
    begun.end(id, |from, to| What::Armed(from + period, to + period));
    finish(cast, id, Ok(Any::Mono(timer)));
}

/// Builds a timer that is started later.
fn unstarted(cast: &Arc<Cast>) {
    let delay = cast.delay();
    let tells = below(2) == 0;
    let id = add(record(Kind::Once, delay, tells));
    let builder = Timer::after(ns(delay)).on(&cast.handle).manual();
    let timer = start!(builder, tells, callback(cast, id));
    Armed::keep(cast, id, Any::Mono(timer), false);
}

/// Starts a timer that was built and not started.
fn start(cast: &Arc<Cast>) {
    let armed = {
        let timers = lock(&cast.timers);
        let unstarted: Vec<_> = timers.iter().filter(|it| !it.is_started()).collect();
        let count = unstarted.len() as u64;
        (count > 0).then(|| unstarted[below(count) as usize].clone())
    };
    if let Some(armed) = armed {
        armed.start();
    }
}

fn named(cast: &Arc<Cast>) {
    let name = ["a", "b"][below(2) as usize];
    match below(6) {
        0 => {
            let max = below(4) as usize;
            let count = cast.handle.cancel_named(name, max);
            tally(|tally| tally.by_name += count as u64);
        }
        1 => {
            tally(|tally| tally.refreshed_by_name = true);
            cast.handle.refresh_named(name);
        }
        2 => _ = cast.handle.count_named(name),
        _ => {
            let delay = cast.delay();
            let tells = below(2) == 0;
            let id = add(Record {
                named: true,
                ..record(Kind::Once, delay, tells)
            });
            let begun = Begun::now(Kind::Once);
            let builder = Timer::after(ns(delay)).on(&cast.handle).name(name);
            let timer = start!(builder, tells, callback(cast, id));
            armed(begun, id, delay);
            finish(cast, id, Ok(Any::Mono(timer)));
        }
    }
}

/// Arms a timer on the boot clock or the wall clock.
fn clocks(cast: &Arc<Cast>) {
    let delay = cast.delay();
    let tells = below(2) == 0;
    if below(2) == 0 {
        let id = add(record(Kind::Boot, delay, tells));
        let begun = Begun::now(Kind::Boot);
        let builder = match below(2) {
            0 => Timer::after_boot(ns(delay)),
            _ => {
                records()[id].wait = NEVER;
                Timer::at_boot(BootInstant::now() + ns(delay))
            }
        };
        let builder = builder.on(&cast.handle);
        let timer = start!(builder, tells, callback(cast, id));
        armed(begun, id, delay);
        return finish(cast, id, Ok(Any::Boot(timer)));
    }
    let skips = below(2) == 0;
    let kind = Kind::Wall(skips);
    let at = wall(sim::wall().saturating_add(delay));
    let id = add(record(kind, nanos(at), tells));
    let begun = Begun::now(kind);
    let policy = if skips { OnStep::Skip } else { OnStep::Fire };
    let builder = Timer::at_wall(at).on(&cast.handle).on_step(policy);
    let timer = start!(builder, tells, callback(cast, id));
    let at = nanos(at);
    begun.end(id, |_, _| What::Armed(at, at));
    finish(cast, id, Ok(Any::Wall(timer)));
}

/// Does an operation that may wait. Only outside threads do this.
fn wait(cast: &Arc<Cast>) {
    match below(4) {
        0 => {
            let Some(armed) = cast.any().filter(|it| it.is_started()) else {
                return;
            };
            let begun = Begun::now(armed.kind);
            let answer = each!(&armed.timer, timer => timer.blocking_cancel_and_wait());
            let moment = sim::moment();
            let answer = answer.unwrap_or_else(|error| error.cancel());
            begun.end(armed.id, |_, _| What::Cancel(answer));
            let records = records();
            let runs =
                |it: &crate::ledger::Event| matches!(it.what, What::Called(_)) && (it.end > moment);
            if let Some(event) = records[armed.id].events.iter().find(|it| runs(it)) {
                sim::fail(&format!("{event:?}: it runs after `cancel_and_wait`"));
            }
        }
        // The counts need not balance while timers come and go, since they are read one after the
        // other.
        1 => _ = cast.handle.metrics(),
        2 => _ = cast.handle.timers(),
        _ => {
            if let Some(task) = cast.any_task() {
                sim::note(|| "waits for a task".into());
                let result = cast.handle.block_on(task);
                let meant = |error: &tourbillon::JoinError| {
                    error.is_cancelled() || error.is_panic() || error.is_refused()
                };
                if let Some(error) = result.err().filter(|error| !meant(error)) {
                    sim::fail(&format!("a task ended with {error:?}"));
                }
            }
        }
    }
}
