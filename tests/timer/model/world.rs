//! The model of all timers, beside the runtime.

use std::{sync::Arc, time::Duration};

use tourbillon::{
    Handle,
    time::{self, BootInstant, Instant, advance, sleep},
};
use tourbillon_model::{self as model, State};
use tourbillon_shards::{Cancel, NEVER, Outcome, Reset, Started};

use super::{
    Moment, NAMES, Op, Span,
    clocks::{Kind, Offsets, WALL_START, Zeros},
    plain::{Model, Way},
    timer::AnyTimer,
};

/// The maximum number of timers in a program. More would only be slow.
const TIMERS: usize = 40;
/// How often a recurring timer may run in one glide.
const RUNS: u64 = 60;

/// The timers of one name and one group of clocks, the oldest first.
type List = Vec<usize>;

pub struct World {
    pub handle: Handle,
    unit: u64,
    pub zeros: Zeros,
    pub offsets: Offsets,
    pub now: u64,
    pub timers: Vec<Model>,
    /// For each name, the timers of the monotonic clock and those of the other clocks.
    pub lists: [[List; 2]; NAMES],
    closed: bool,
}

impl World {
    pub async fn new(handle: Handle, unit: u64) -> Self {
        let zeros = Zeros::find(&handle);
        time::set_wall_clock(zeros.time(WALL_START)).unwrap();
        let now = zeros.nanos(Instant::now());
        let offsets = Offsets {
            wall: i128::from(WALL_START) - i128::from(now),
            boot: i128::from(zeros.boot_nanos()) - i128::from(now),
        };
        let mut world = World {
            handle,
            unit,
            zeros,
            offsets,
            now,
            timers: Vec::new(),
            lists: Default::default(),
            closed: false,
        };
        world.settle().await;
        world
    }

    pub fn span(&self, span: Span) -> u64 {
        match span {
            Span::Halves(halves) => (self.unit / 2).saturating_mul(halves.into()),
            Span::Nanos(nanos) => nanos,
        }
    }

    pub fn shown(&self, kind: Kind) -> u64 {
        self.offsets.shown(kind, self.now)
    }

    /// Returns a moment of a clock, not too far beyond the clock's beginning and end.
    pub fn moment(&self, kind: Kind, moment: Moment) -> u64 {
        let at = match moment {
            Moment::Ahead(span) => self.shown(kind).saturating_add(self.span(span)),
            Moment::Back(span) => self.shown(kind).saturating_sub(self.span(span)),
        };
        let first = match kind {
            Kind::Boot => self.zeros.boot_nanos(),
            Kind::Mono | Kind::Wall => 1,
        };
        at.clamp(first, NEVER + NEVER / 2)
    }

    pub fn join_name(&mut self, id: usize) {
        if let Some(list) = self.list(id) {
            list.push(id);
        }
    }

    fn list(&mut self, id: usize) -> Option<&mut List> {
        let clock = usize::from(self.timers[id].kind != Kind::Mono);
        Some(&mut self.lists[self.timers[id].name?][clock])
    }

    /// Removes the timer from the list of its name, because it can no longer be cancelled.
    fn leave_name(&mut self, id: usize) {
        if let Some(list) = self.list(id) {
            list.retain(|&other| other != id);
        }
    }

    pub fn end(&mut self, id: usize, how: Outcome) {
        self.timers[id].model.end(how);
        self.tell(id);
        self.leave_name(id);
    }

    /// Records the outcome that a callback takes, if it has yet to.
    fn tell(&mut self, id: usize) {
        let now = if self.closed { 0 } else { self.now };
        self.timers[id].tell(now);
    }

    /// Begins the timer's first wait.
    pub fn begin(&mut self, id: usize) {
        if self.closed {
            return self.timers[id].end(Outcome::Shutdown, 0);
        }
        let shown = self.shown(self.timers[id].kind);
        let timer = &mut self.timers[id];
        timer.begin(shown);
        if timer.unsure && timer.deadline() > shown {
            timer.learn(&self.zeros, shown);
        }
    }

    pub fn start(&mut self, id: usize) -> Started {
        if self.timers[id].model.state == State::Idle {
            self.begin(id);
            if self.closed {
                self.leave_name(id);
                return Started::Shutdown;
            }
            return Started::Pending;
        }
        let started = self.timers[id].model.start(self.now, &mut model::exact);
        self.tell(id);
        started
    }

    pub fn cancel(&mut self, id: usize) -> Cancel {
        let cancel = self.timers[id].model.cancel();
        if cancel == Cancel::Cancelled {
            self.tell(id);
            self.leave_name(id);
        }
        cancel
    }

    fn refresh(&mut self, id: usize) -> Reset {
        let shown = self.shown(self.timers[id].kind);
        self.timers[id].model.refresh(shown)
    }

    /// Runs in the model what came due. The clock may have gone on or stood still.
    fn pass(&mut self, from: u64, way: Way) {
        for id in 0..self.timers.len() {
            self.pass_one(id, from, way);
        }
    }

    pub fn pass_one(&mut self, id: usize, from: u64, way: Way) {
        let timer = &mut self.timers[id];
        let waited = timer.is_pending();
        timer.pass(&self.zeros, &self.offsets, from, self.now, way);
        if waited && !timer.is_pending() {
            self.leave_name(id);
        }
    }

    /// Lets the runtime become quiet, and compares everything with the model.
    pub async fn settle(&mut self) {
        advance(Duration::ZERO).await;
        self.pass(self.now, Way::Jump);
        self.check();
    }

    async fn jump(&mut self, span: u64) {
        let from = self.now;
        advance(Duration::from_nanos(span)).await;
        self.now = self.now.saturating_add(span).min(NEVER - 1);
        self.pass(from, Way::Jump);
        self.check();
    }

    /// Lets the clock go by itself for `span`. The span is cut short if a recurring timer would
    /// run more than `RUNS` times.
    async fn glide(&mut self, span: u64) {
        let waits = self.timers.iter().filter(|timer| timer.model.recurs);
        let most = waits
            .filter(|timer| timer.left.is_none() && timer.is_pending())
            .map(|timer| timer.model.wait.max(1).saturating_mul(RUNS))
            .min();
        let from = self.now;
        let span = span.min(most.unwrap_or(NEVER)).min(NEVER - 1 - from);
        sleep(Duration::from_nanos(span)).await;
        self.now = from + span;
        advance(Duration::ZERO).await;
        self.pass(from, Way::Glide);
        self.check();
    }

    pub async fn apply(&mut self, op: Op) {
        match op {
            Op::Arm(plan) if self.timers.len() < TIMERS => {
                self.arm(&plan, None);
            }
            Op::Jump(span) => self.jump(self.span(span)).await,
            Op::Glide(span) => self.glide(self.span(span)).await,
            Op::SetWall(step) => self.set_wall(step).await,
            Op::CancelNamed(name, max) => self.cancel_named(name, max).await,
            Op::Settle => self.settle().await,
            op => self.touch(op),
        }
        // A due timer runs immediately, so the model cannot know how the next operation finds it.
        let is_due = |timer: &Model| timer.is_due(&self.offsets, self.now);
        if self.timers.iter().any(is_due) {
            self.settle().await;
        }
    }

    /// Applies an operation after the shutdown.
    pub fn apply_late(&mut self, op: Op) {
        match op {
            Op::Arm(plan) if plan.start && plan.name.is_none() => {
                let handle = self.handle.clone();
                let id = self.arm(&plan, Some(&handle));
                self.timers[id].model.state = State::Over(Outcome::Shutdown);
            }
            Op::Arm(_) | Op::CancelNamed(..) => {}
            op => self.touch(op),
        }
        self.check();
    }

    fn choose(&self, which: usize) -> Option<(usize, Arc<AnyTimer>)> {
        let timers = self.timers.iter().enumerate();
        let found: Vec<_> = timers
            .filter_map(|(id, model)| Some((id, model.timer.clone()?)))
            .collect();
        found.get(which.checked_rem(found.len())?).cloned()
    }

    fn touch(&mut self, op: Op) {
        match op {
            Op::RefreshNamed(name) => {
                let refreshed = self.handle.refresh_named(&name.to_string());
                let ids = self.lists[name][0].clone();
                let waiting = ids
                    .into_iter()
                    .filter(|&id| self.refresh(id) == Reset::Pending);
                assert_eq!(refreshed, waiting.count());
            }
            Op::Start(which)
            | Op::Cancel(which)
            | Op::Refresh(which)
            | Op::Reset(which, _)
            | Op::ResetAt(which, _)
            | Op::ResetFromStart(which, _)
            | Op::Drop(which)
            | Op::Kill(which) => {
                if let Some((id, timer)) = self.choose(which) {
                    self.touch_one(id, &timer, op);
                }
            }
            _ => {}
        }
    }

    fn touch_one(&mut self, id: usize, timer: &AnyTimer, op: Op) {
        let kind = self.timers[id].kind;
        let shown = self.shown(kind);
        match op {
            Op::Start(_) => {
                let answer = timer.start();
                assert_eq!(answer, self.start(id));
            }
            Op::Cancel(_) => assert_eq!(timer.cancel(), self.cancel(id)),
            Op::Refresh(_) => assert_eq!(timer.refresh(), self.refresh(id)),
            Op::Reset(_, span) => {
                let wait = self.span(span);
                let answer = timer.reset(wait);
                assert_eq!(answer, self.timers[id].model.reset_after(shown, wait));
            }
            Op::ResetAt(_, moment) => {
                let at = self.moment(kind, moment);
                let answer = timer.reset_at(&self.zeros, at);
                assert_eq!(answer, self.timers[id].model.reset_at(at));
            }
            Op::ResetFromStart(_, span) => {
                let wait = self.span(span);
                let answer = timer.reset_from_start(wait);
                assert_eq!(answer, self.timers[id].model.reset_from_start(wait));
            }
            // A timer with jitter keeps its handle, or the model could not learn the jitter.
            Op::Drop(_) if self.timers[id].jitter == 0 => self.drop_handle(id),
            Op::Kill(_) => {
                self.timers[id].dead |= self.timers[id].alive.take().is_some();
            }
            _ => {}
        }
    }

    fn drop_handle(&mut self, id: usize) {
        self.timers[id].timer = None;
        let was_over = self.timers[id].model.is_over();
        self.timers[id].model.drop_handle();
        if !was_over && self.timers[id].model.is_over() {
            self.leave_name(id);
        }
    }

    /// Ends the model's pending timers, after the runtime was shut down.
    pub fn shut_down(&mut self) {
        self.closed = true;
        for id in 0..self.timers.len() {
            if self.timers[id].is_pending() {
                self.timers[id].end(Outcome::Shutdown, 0);
                self.leave_name(id);
            }
        }
        self.check();
    }

    /// Drops all handles, and checks that all callbacks are dropped.
    pub fn finish(mut self) {
        for id in 0..self.timers.len() {
            self.drop_handle(id);
        }
        self.check();
        assert!(self.timers.iter().all(|timer| timer.log.is_dropped()));
    }

    /// Returns how many timers have a name.
    pub fn count(&self, name: usize) -> usize {
        self.lists[name].iter().map(List::len).sum()
    }
}

/// Returns the boot clock's time, only to check that this clock goes along with the others.
pub fn boot_now(zeros: &Zeros) -> u64 {
    zeros.boot_instant_nanos(BootInstant::now())
}
