//! The model of a shard.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Wake,
};

use tourbillon_model::{self as model, State};
use tourbillon_shards::{
    Cancel, Kind, NEVER, Outcome, Reset, Shard, Sleep, Status, Timer, store::StoreKind,
};

use super::{
    Move, UNIT,
    desk::{Asked, Desk},
};
use crate::common::{Drops, Scripted};

/// The model of one timer or sleep, with the means to observe the real one.
pub struct Model {
    pub kind: Kind,
    pub model: model::Timer,
    /// In a deque: taken by `expire`, and not run. It may be pending if it was moved there.
    pub held: bool,
    /// Whether the timer is in the inbox.
    pub queued: bool,
    pub timer: Option<Arc<Timer<Scripted>>>,
    pub sleep: Option<Sleep<Scripted>>,
    /// For callbacks.
    pub desk: Option<Arc<Desk>>,
    pub runs: usize,
    pub drops: Drops,
    /// For sleeps: which of two wakers is registered, and how often each was woken.
    pub waker: Option<bool>,
    pub woken: [usize; 2],
    pub wakers: [Arc<Count>; 2],
}

#[derive(Default)]
pub struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The model of the shard, and the real shard.
pub struct World {
    pub shard: Arc<Shard<Scripted>>,
    pub now: u64,
    pub local: bool,
    pub closed: bool,
    pub timers: Vec<Model>,
    pub over: HashMap<(Kind, Outcome), usize>,
}

impl World {
    pub fn new(store: StoreKind) -> World {
        World {
            shard: Scripted::shard_with(true, store),
            now: 0,
            local: true,
            closed: false,
            timers: Vec::new(),
            over: HashMap::new(),
        }
    }

    /// Returns the present time, with a timer's number in it.
    pub fn now_for(&self, id: usize) -> u64 {
        self.now + id as u64
    }

    /// Returns the present time, after all deadlines of the same unit.
    pub fn late(&self) -> u64 {
        self.now | (UNIT - 1)
    }

    /// Returns a deadline `units` from now.
    pub fn after(&self, id: usize, units: u64) -> u64 {
        units.saturating_mul(UNIT).saturating_add(self.now_for(id))
    }

    pub fn end(&mut self, id: usize, how: Outcome) {
        let timer = &mut self.timers[id];
        timer.model.state = State::Over(how);
        *self.over.entry((timer.kind, how)).or_default() += 1;
        // The task of a sleep is woken, unless the task itself ended the sleep.
        if let Some(waker) = timer.waker.take().filter(|_| how != Outcome::Cancelled) {
            timer.woken[usize::from(waker)] += 1;
        }
    }

    /// Records that a remote thread sends an update of a timer to the shard.
    pub fn tell(&mut self, id: usize) {
        self.timers[id].queued |= !self.local && !self.closed;
    }

    /// Inserts the timer into its shard, or ends it if the shard is closed.
    pub fn arrive(&mut self, id: usize) {
        self.tell(id);
        if self.closed {
            self.end(id, Outcome::Shutdown);
        }
    }

    /// Applies a cancel to the model, and returns the expected answer.
    pub fn cancel(&mut self, id: usize) -> Cancel {
        let cancel = self.timers[id].model.cancel();
        if cancel == Cancel::Cancelled {
            self.end(id, Outcome::Cancelled);
        }
        cancel
    }

    /// Applies a move to the model, and returns the expected answer.
    pub fn shift(&mut self, id: usize, apply: impl FnOnce(&mut model::Timer) -> Reset) -> Reset {
        let timer = &mut self.timers[id].model;
        let before = timer.state;
        let reset = apply(timer);
        if let (State::Pending(from), State::Pending(to)) = (before, timer.state) {
            if to < from && !self.local {
                // A closed shard ends a timer in a deque when it reads an update of it.
                self.arrive(id);
            }
        }
        reset
    }

    /// Applies a move to the model. Returns the expected answer and the move for the real timer, or
    /// `None` if the deadline would not contain the timer's number.
    pub fn plan(&mut self, id: usize, how: Move) -> Option<(Reset, Asked)> {
        let now = self.now_for(id);
        // A period of zero becomes one nanosecond, which is not a multiple of the unit.
        let least = u64::from(self.timers[id].kind == Kind::Recurring);
        let wait = |units: u64| units.max(least).saturating_mul(UNIT);
        Some(match how {
            Move::At(units) => {
                let at = self.after(id, units);
                (self.shift(id, |timer| timer.reset_at(at)), Asked::At(at))
            }
            Move::FromNow(units) => {
                // Not beyond the end of time, which `timer/edge_cases.rs` tests.
                let wait = wait(units).min(NEVER.saturating_sub(now)) & !(UNIT - 1);
                if wait < least * UNIT {
                    return None;
                }
                let reset = self.shift(id, |timer| timer.reset_after(now, wait));
                (reset, Asked::FromNow(now, wait))
            }
            Move::FromStart(units) => {
                let wait = wait(units);
                let begun = self.timers[id].model.begun;
                let is_past = begun.saturating_add_unsigned(wait) < 0;
                if is_past || begun & (UNIT as i64 - 1) != id as i64 {
                    return None;
                }
                let reset = self.shift(id, |timer| timer.reset_from_start(wait));
                (reset, Asked::FromStart(wait))
            }
            Move::Refresh => {
                let reset = self.shift(id, |timer| timer.refresh(now));
                (reset, Asked::Refresh(now))
            }
        })
    }

    /// Returns the timers that wait in the store or inbox, by deadline.
    pub fn waiting(&self) -> Vec<(u64, usize)> {
        let mut waiting: Vec<_> = (0..self.timers.len())
            .filter(|&id| !self.timers[id].held)
            .filter_map(|id| match self.timers[id].model.state {
                State::Pending(at) => Some((at, id)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// Returns one of the timers for which `f` returns a value.
    pub fn choose<R>(&self, which: usize, f: impl Fn(&Model) -> Option<R>) -> Option<(usize, R)> {
        let found: Vec<_> = (0..self.timers.len())
            .filter_map(|id| f(&self.timers[id]).map(|found| (id, found)))
            .collect();
        let nth = which.checked_rem(found.len())?;
        found.into_iter().nth(nth)
    }

    pub fn choose_timer(&self, which: usize) -> Option<(usize, Arc<Timer<Scripted>>)> {
        self.choose(which, |model| model.timer.clone())
    }

    pub fn choose_sleep(&self, which: usize) -> Option<usize> {
        let sleep = self.choose(which, |model| model.sleep.as_ref().map(|_| ()));
        sleep.map(|(id, ())| id)
    }

    /// Checks what is visible from outside, after each step.
    pub fn check(&self) {
        for (id, model) in self.timers.iter().enumerate() {
            let how = match model.model.state {
                State::Over(how) => Some(how),
                State::Pending(_) | State::Due(_) => None,
                state => panic!("timer {id} is {state:?} between steps"),
            };
            if let Some(timer) = &model.timer {
                assert_eq!(timer.status(), how.map_or(Status::Pending, Status::Over));
                assert_eq!(timer.deadline(), model.model.deadline(), "timer {id}");
                assert_eq!(timer.wait(), model.model.wait, "timer {id}");
            }
            if let Some(sleep) = &model.sleep {
                assert_eq!(sleep.outcome(), how, "sleep {id}");
                assert_eq!(sleep.deadline(), model.model.deadline(), "sleep {id}");
            }
            if let Some(desk) = &model.desk {
                assert_eq!(desk.runs.load(Ordering::Relaxed), model.runs, "timer {id}");
                assert_eq!(model.drops.get(), u32::from(how.is_some()), "payload {id}");
            }
            for (waker, woken) in model.wakers.iter().zip(model.woken) {
                assert_eq!(waker.0.load(Ordering::Relaxed), woken, "sleep {id}");
            }
        }
        let owner = self.shard.owner();
        assert_eq!(owner.over.all(), self.over);
        assert_eq!(owner.wakes.load(Ordering::Relaxed), 0, "nobody sleeps");
        let earliest = self.waiting().first().map_or(NEVER, |&(at, _)| at);
        let published = self.shard.next_deadline();
        assert!(published <= earliest, "{published}, but due at {earliest}");
        if self.closed {
            assert_eq!(published, NEVER, "nothing waits in a closed shard");
        }
    }
}
