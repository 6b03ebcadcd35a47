//! The shard and its model, and each operation on both.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use tourbillon_model::{self as model, State};
use tourbillon_shards::{
    Due, Kind, NEVER, Options, Outcome, Ran, Reset, Shard, Started, Timer, Tolerance,
    store::StoreKind,
};

use super::{
    model::{Model, Nap},
    owner::{Log, Script, TestOwner, index},
};

/// The shard under test and the models of its timers and sleeps.
pub struct World {
    pub shard: Arc<Shard<TestOwner>>,
    pub now: u64,
    pub timers: Vec<Model>,
    pub naps: Vec<Nap>,
    /// Timers that were taken but not run.
    held: Vec<(usize, Due<TestOwner>)>,
    /// Number of sleeps made so far.
    pub naps_made: usize,
    is_local: bool,
    pub is_closed: bool,
}

impl World {
    pub fn new(kind: StoreKind) -> Self {
        let owner = TestOwner::default();
        owner.is_local.store(true, Relaxed);
        Self {
            shard: Arc::new(Shard::new(owner).with_store(kind)),
            now: 0,
            timers: Vec::new(),
            naps: Vec::new(),
            held: Vec::new(),
            naps_made: 0,
            is_local: true,
            is_closed: false,
        }
    }

    pub fn set_local(&mut self, is_local: bool) {
        self.is_local = is_local;
        self.shard.owner().is_local.store(is_local, Relaxed);
    }

    /// Returns the earliest deadline of all pending timers and sleeps.
    pub fn earliest(&self) -> Option<u64> {
        self.windows().map(|(at, _)| at).min()
    }

    /// Returns the earliest and the latest firing time of each pending timer and sleep.
    fn windows(&self) -> impl Iterator<Item = (u64, u64)> {
        let naps = self.naps.iter().filter_map(|nap| nap.model.deadline());
        let timers = self.timers.iter().filter_map(Model::window);
        timers.chain(naps.map(|at| (at, at)))
    }

    /// Records that a remote thread queued a timer in the inbox.
    fn tell(&mut self, id: usize) {
        self.timers[id].is_queued |= !self.is_local && !self.is_closed;
    }

    /// Records that a timer was inserted, or refused by a closed shard.
    fn arrive(&mut self, id: usize) {
        self.tell(id);
        if self.is_closed {
            self.timers[id].end(Outcome::Shutdown);
        }
    }

    fn model(&self, model: model::Timer) -> Model {
        Model {
            model,
            tolerance: 0,
            is_held: false,
            is_queued: false,
            has_tag: false,
            calls: [0; 3],
            log: Arc::new(Log::default()),
            payload: Arc::new(()),
            timer: None,
        }
    }

    fn keep(&mut self, mut model: Model, timer: Timer<TestOwner>) -> usize {
        let timer = Arc::new(timer);
        *model
            .log
            .timer
            .lock()
            .expect("no thread panics while it holds the lock") = Arc::downgrade(&timer);
        model.timer = Some(timer);
        self.timers.push(model);
        self.timers.len() - 1
    }

    pub fn once(&mut self, at: u64, wait: u64) {
        let model = self.model(model::Timer::pending(false, at, wait));
        let has = (model.log.clone(), model.payload.clone());
        let timer = Timer::once(&self.shard, at, wait, move || {
            let (log, _payload) = has;
            let _ = log.call(Outcome::Fired);
        });
        let id = self.keep(model, timer);
        self.arrive(id);
    }

    pub fn recurring(&mut self, at: u64, period: u64) {
        let model = self.model(model::Timer::pending(true, at, period));
        let has = (model.log.clone(), model.payload.clone());
        let timer = Timer::recurring(&self.shard, at, period, move || {
            let (log, _payload) = &has;
            let _ = log.call(Outcome::Fired);
        });
        let id = self.keep(model, timer);
        self.arrive(id);
    }

    pub fn build(
        &mut self,
        wait: u64,
        deadline: Option<u64>,
        tolerance: u64,
        recurring: bool,
        outcome: bool,
    ) -> usize {
        let plain = model::Timer::idle(recurring, outcome, wait, deadline);
        let mut model = self.model(plain);
        model.tolerance = tolerance;
        model.has_tag = true;
        let options = Options {
            deadline,
            recurring,
            outcome,
            tolerance: Tolerance::new(tolerance),
            tag: self.timers.len() as u32 + 1,
            ..Options::default()
        };
        let has = (model.log.clone(), model.payload.clone());
        let timer = Timer::build(&self.shard, wait, options, move |how| {
            let (log, _payload) = &has;
            log.call(how)
        });
        self.keep(model, timer)
    }

    fn timer(&self, id: usize) -> Option<Arc<Timer<TestOwner>>> {
        self.timers[id].timer.clone()
    }

    pub fn start(&mut self, id: usize) {
        let Some(timer) = self.timer(id) else { return };
        let mut expected = self.timers[id].model.start(self.now, &mut model::exact);
        if expected == Started::Pending {
            self.arrive(id);
            if self.is_closed {
                expected = Started::Shutdown;
            }
        }
        self.timers[id].tell();
        assert_eq!(timer.start(self.now), expected);
    }

    pub fn cancel(&mut self, id: usize) {
        let Some(timer) = self.timer(id) else { return };
        let was_armed = self.timers[id].model.deadline().is_some();
        let expected = self.timers[id].model.cancel();
        self.timers[id].tell();
        if was_armed {
            self.tell(id);
        }
        assert_eq!(timer.cancel(), expected);
    }

    /// Moves the timer in the model. Returns the expected answer.
    fn shift(&mut self, id: usize, apply: impl FnOnce(&mut model::Timer) -> Reset) -> Reset {
        let timer = &mut self.timers[id].model;
        let before = timer.state;
        let expected = apply(timer);
        if let (State::Pending(from), State::Pending(to)) = (before, timer.state)
            && to < from
            && !self.is_local
        {
            // A closed shard ends a held timer when it is inserted again.
            self.arrive(id);
        }
        expected
    }

    pub fn reset_at(&mut self, id: usize, to: u64) {
        let Some(timer) = self.timer(id) else { return };
        let expected = self.shift(id, |timer| timer.reset_at(to));
        assert_eq!(timer.reset_at(to), expected);
    }

    pub fn reset(&mut self, id: usize, wait: u64) {
        let Some(timer) = self.timer(id) else { return };
        let now = self.now;
        let expected = self.shift(id, |timer| timer.reset_after(now, wait));
        assert_eq!(timer.reset_after(now, wait), expected);
    }

    pub fn reset_from_start(&mut self, id: usize, wait: u64) {
        let Some(timer) = self.timer(id) else { return };
        let expected = self.shift(id, |timer| timer.reset_from_start(wait));
        assert_eq!(timer.reset_from_start(wait), expected);
    }

    pub fn refresh(&mut self, id: usize) {
        let Some(timer) = self.timer(id) else { return };
        let now = self.now;
        let expected = self.shift(id, |timer| timer.refresh(now));
        assert_eq!(timer.refresh(now), expected);
    }

    pub fn drop_handle(&mut self, id: usize) {
        let model = &mut self.timers[id];
        if model.timer.take().is_some() {
            model.model.drop_handle();
        }
    }

    pub fn script(&mut self, id: usize, script: Script) {
        let log = &self.timers[id].log;
        *log.script
            .lock()
            .expect("no thread panics while it holds the lock") = Some(script);
    }

    pub fn expire(&mut self, limit: usize) {
        let until = self.now.min(NEVER - 1);
        // Timers with a tolerance may be taken or not, so a range of counts is right.
        let must = self.windows().filter(|&(_, last)| last <= until).count();
        let may = self.windows().filter(|&(at, _)| at <= until).count();
        let mut due = Vec::new();
        let expired = self.shard.expire(self.now, limit, &mut due);
        assert_eq!(expired.count, due.len());
        assert!((must.min(limit)..=may.min(limit)).contains(&expired.count));
        // At the limit, `more` may be wrong: the store may hold a moved timer under its old
        // deadline, which has come.
        assert!(expired.more || must <= limit);
        assert!(!expired.more || expired.count == limit);
        for timer in &mut self.timers {
            timer.is_queued = false;
        }
        assert!(!self.shard.has_updates(), "all of it is read");
        // Timers without a move or tolerance must come in the order of their deadlines.
        let mut last = 0;
        let mut in_order = |at: u64, is_free: bool| {
            if !is_free {
                assert!(last <= at, "{at} after {last}");
                last = at;
            }
        };
        for due in due {
            let at = due.deadline().expect("it was not ended since");
            assert!(at <= self.now, "early: {at} at {}", self.now);
            match (due.kind(), due.tag()) {
                (Kind::Sleep, _) => {
                    let nap = self.fire_nap(due, at);
                    in_order(at, nap);
                }
                (_, 0) => {
                    let was_moved = self.run_untagged(due, at);
                    in_order(at, was_moved);
                }
                (_, tag) => {
                    let id = tag as usize - 1;
                    let model = &mut self.timers[id];
                    assert_eq!(model.model.state, State::Pending(at));
                    assert!(!model.is_held, "taken twice");
                    in_order(at, model.model.moved || model.tolerance > 0);
                    model.model.take();
                    model.is_held = true;
                    self.held.push((id, due));
                }
            }
        }
        if limit == usize::MAX {
            // The store must hold what is pending and nothing else. A recurring timer that ran may
            // be in the inbox again.
            let queued = self.timers.iter().filter(|timer| timer.is_queued).count();
            let stored = self.shard.stored() + queued;
            assert_eq!(stored, self.windows().count());
        }
    }

    /// Runs a timer without a tag and finds it by its log. Returns whether it had been moved.
    fn run_untagged(&mut self, due: Due<TestOwner>, at: u64) -> bool {
        let now = self.now;
        let ran = due.run(|| now);
        let waits = |model: &Model| !model.has_tag && model.model.state == State::Pending(at);
        let mut called = (0..self.timers.len())
            .filter(|&id| waits(&self.timers[id]))
            .filter(|&id| self.timers[id].log.calls() != self.timers[id].calls);
        let id = called.next().expect("one of them was called");
        assert_eq!(called.next(), None, "and one alone");
        let was_moved = self.timers[id].model.moved;
        self.timers[id].model.take();
        self.has_run(id, &ran);
        was_moved
    }

    /// Updates the model of a timer that was due, after its callback ran and followed its script.
    fn has_run(&mut self, id: usize, ran: &Ran) {
        let log = self.timers[id].log.clone();
        let answers = std::mem::take(
            &mut *log
                .answers
                .lock()
                .expect("no thread panics while it holds the lock"),
        );
        let timer = &mut self.timers[id];
        timer.calls[0] += 1;
        assert!(matches!(ran, Ran::Fired | Ran::Panicked(_)), "{ran:?}");
        let panics = matches!(answers.script, Some(Script::Panic));
        assert_eq!(matches!(ran, Ran::Panicked(_)), panics);
        let (has_tag, model) = (timer.has_tag, &mut timer.model);
        model.run();
        // The answers that the callback got about its own timer.
        if let Some(Script::Move(to) | Script::MoveAndCancel(to)) = answers.script {
            let said = answers.reset;
            assert!(said.is_none_or(|said| said == model.reset_at(to)));
        }
        assert!(answers.cancel.is_none_or(|said| said == model.cancel()));
        // A callback that was armed without options returns no flow.
        if matches!(answers.script, Some(Script::End)) && has_tag {
            model.state = State::Over(Outcome::Fired);
            return;
        }
        model.has_run(self.now, &mut model::exact);
        match model.state {
            State::Over(Outcome::Cancelled) if model.told => {
                timer.calls[index(Outcome::Cancelled)] += 1;
            }
            State::Over(_) => {}
            _ => self.arrive(id),
        }
    }

    fn take_held(&mut self, which: usize) -> Option<(usize, Due<TestOwner>)> {
        let nth = which.checked_rem(self.held.len())?;
        let (id, due) = self.held.swap_remove(nth);
        self.timers[id].is_held = false;
        assert_eq!(due.deadline(), self.timers[id].model.deadline());
        Some((id, due))
    }

    pub fn run_held(&mut self, which: usize) {
        let Some((id, due)) = self.take_held(which) else {
            return;
        };
        let now = self.now;
        let ran = due.run(|| now);
        match self.timers[id].model.state {
            State::Over(_) => assert!(matches!(ran, Ran::Over)),
            State::Pending(_) => {
                assert!(matches!(ran, Ran::PutBack));
                self.arrive(id);
            }
            State::Due(_) => self.has_run(id, &ran),
            state => panic!("one that is held was {state:?}"),
        }
    }

    /// Ends a held timer, by shutdown or by cancellation.
    pub fn end_held(&mut self, which: usize, shuts_down: bool) {
        let Some((id, due)) = self.take_held(which) else {
            return;
        };
        if shuts_down {
            due.shutdown();
        } else {
            due.cancel();
        }
        match self.timers[id].model.state {
            State::Over(_) => {}
            State::Pending(_) if !shuts_down => self.arrive(id),
            _ if shuts_down => self.timers[id].end(Outcome::Shutdown),
            _ => self.timers[id].end(Outcome::Cancelled),
        }
    }

    pub fn settle(&mut self) {
        let first = self.windows().map(|(at, _)| at).min().unwrap_or(NEVER);
        let last = self.windows().map(|(_, last)| last).min().unwrap_or(NEVER);
        let settled = self.shard.settle();
        assert!(
            (first..=last).contains(&settled),
            "{settled} is not from {first} to {last}"
        );
        assert!(!self.shard.has_updates());
        for timer in &mut self.timers {
            timer.is_queued = false;
        }
    }

    pub fn close(&mut self) {
        let drained = self.shard.close();
        assert!(drained.is_empty() || !self.is_closed);
        for timer in &mut self.timers {
            // Closing ends pending timers, and held timers with an entry in the inbox.
            let is_here = !timer.is_held || std::mem::take(&mut timer.is_queued);
            timer.is_queued = false;
            if is_here && timer.model.deadline().is_some() {
                timer.end(Outcome::Shutdown);
            }
        }
        for nap in &mut self.naps {
            if !nap.model.is_over() {
                nap.end(Outcome::Shutdown);
            }
        }
        self.is_closed = true;
        drop(drained);
        assert_eq!(self.shard.stored(), 0);
        assert_eq!(self.shard.next_deadline(), NEVER);
    }

    /// Checks the visible state after each step.
    pub fn check(&self) {
        self.timers.iter().for_each(Model::check);
        self.naps.iter().for_each(Nap::check);
        let last = self.windows().map(|(_, last)| last).min().unwrap_or(NEVER);
        let next = self.shard.next_deadline();
        assert!(next <= last, "would wake at {next} for {last}");
    }

    /// Ends everything, and checks that nothing is left.
    pub fn finish(&mut self) {
        while !self.held.is_empty() {
            self.run_held(0);
            self.check();
        }
        self.close();
        self.check();
        for id in 0..self.timers.len() {
            self.drop_handle(id);
        }
        self.check();
        assert!(self.timers.iter().all(|timer| timer.model.is_over()));
        while !self.naps.is_empty() {
            self.drop_nap(0);
        }
        let owner = self.shard.owner();
        assert_eq!(
            owner.armed.load(Relaxed),
            owner.over.load(Relaxed),
            "armed and over"
        );
        assert_eq!(
            owner.owed.load(Relaxed),
            owner.told.load(Relaxed),
            "owed and told"
        );
        assert_eq!(Arc::strong_count(&self.shard), 1, "a node was left behind");
    }
}
