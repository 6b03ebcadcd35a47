//! The model of all timers, together with the shard.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tourbillon_model::{self as model, State};
use tourbillon_shards::{
    Cancel, Due, Kind, NEVER, Name, Names, Notice, Options, Outcome, Ran, Reset, Shard, Started,
    Timer, Tolerance,
};

use super::{
    Move, NAMES, Op, Plan, Script,
    model::{Model, callback},
};
use crate::common::{Calls, Scripted};

pub struct World {
    pub shard: Arc<Shard<Scripted>>,
    pub names: Arc<Names<Scripted>>,
    pub now: u64,
    /// Shared with the callbacks.
    pub clock: Arc<AtomicU64>,
    pub random: u64,
    pub closed: bool,
    pub timers: Vec<Model>,
    /// The timers of each name, in the order of the table.
    pub lists: [Vec<usize>; NAMES],
    pub notices: Vec<Notice<Scripted>>,
    pub over: HashMap<(Kind, Outcome), usize>,
}

impl World {
    pub fn new() -> Self {
        let shard = Scripted::shard(true);
        shard.owner().keep_notices();
        World {
            shard,
            names: Arc::new(Names::new(2)),
            now: 0,
            clock: Arc::default(),
            random: 0,
            closed: false,
            timers: Vec::new(),
            lists: Default::default(),
            notices: Vec::new(),
            over: HashMap::new(),
        }
    }

    /// Removes a timer from the list of its name, because it can no longer be cancelled.
    fn leave(&mut self, id: usize) {
        if let Some(name) = self.timers[id].plan.name {
            let list = &mut self.lists[name];
            if let Some(at) = list.iter().position(|&other| other == id) {
                list.remove(at);
            }
        }
    }

    /// Records that a timer is over.
    pub fn end(&mut self, id: usize, how: Outcome) {
        self.leave(id);
        let timer = &mut self.timers[id];
        timer.model.state = State::Over(how);
        *self.over.entry((timer.kind(), how)).or_default() += 1;
    }

    /// Ends a timer, and records its outcome at once.
    pub fn tell(&mut self, id: usize, how: Outcome) {
        if self.timers[id].plan.outcome {
            self.timers[id].told.push(how);
        }
        self.end(id, how);
    }

    /// Ends a timer whose shard is closed. Keeps an outcome delivery if its callback takes
    /// outcomes.
    fn arrive(&mut self, id: usize) {
        if self.closed {
            self.timers[id].model.end(Outcome::Shutdown);
            self.has_ended(id);
        }
    }

    /// Records what else it means that a timer has ended, or has begun to end.
    fn has_ended(&mut self, id: usize) {
        match self.timers[id].model.state {
            State::Over(how) => self.end(id, how),
            _ => self.leave(id),
        }
    }

    fn cancel(&mut self, id: usize) -> Cancel {
        let cancel = self.timers[id].model.cancel();
        if cancel == Cancel::Cancelled {
            self.has_ended(id);
        }
        cancel
    }

    fn start(&mut self, id: usize) -> Started {
        let timer = &mut self.timers[id];
        let mut jitter = timer.jitter(self.random);
        let started = timer.model.start(self.now, &mut jitter);
        if started == Started::Pending {
            self.arrive(id);
            if self.closed {
                return Started::Shutdown;
            }
        }
        started
    }

    fn build(&mut self, plan: Plan) {
        let id = self.timers.len();
        // Fewer than the number of cancels after which other threads sweep for the owner.
        if id == 60 {
            return;
        }
        let deadline = plan.deadline.map(|span| self.now.saturating_add(span));
        let (calls, alive) = (Calls::default(), Arc::new(AtomicBool::new(true)));
        let cell = Arc::new(Mutex::new(Weak::new()));
        let mine = alive.clone();
        let options = Options {
            deadline,
            recurring: plan.recurring,
            outcome: plan.outcome,
            tolerance: Tolerance::new(plan.tolerance),
            jitter: plan.jitter,
            tag: id as u32,
            name: plan
                .name
                .map(|name| Name::new(&self.names, &name.to_string())),
            condition: Some(Box::new(move || mine.load(Ordering::Relaxed))),
            ..Options::default()
        };
        let f = callback(&plan, &calls, &self.clock, &cell);
        let timer = Arc::new(Timer::build(&self.shard, plan.wait, options, f));
        *cell.lock().unwrap() = Arc::downgrade(&timer);
        self.lists.iter_mut().enumerate().for_each(|(name, list)| {
            if plan.name == Some(name) {
                list.push(id);
            }
        });
        let start = plan.start;
        self.timers.push(Model {
            model: model::Timer::idle(plan.recurring, plan.outcome, plan.wait, deadline),
            plan,
            held: false,
            alive,
            told: Vec::new(),
            calls,
            timer: Some(timer.clone()),
        });
        if start {
            assert_eq!(timer.start(self.now), self.start(id));
        }
    }

    /// Drops the handle of a timer. A timer that was never started is then over.
    pub fn drop_handle(&mut self, id: usize) {
        self.timers[id].timer = None;
        let was_over = self.timers[id].model.is_over();
        self.timers[id].model.drop_handle();
        if !was_over && self.timers[id].model.is_over() {
            self.end(id, Outcome::Cancelled);
        }
    }

    fn choose(&self, which: usize) -> Option<(usize, Arc<Timer<Scripted>>)> {
        let timers = self.timers.iter().enumerate();
        let found: Vec<_> = timers
            .filter_map(|(id, model)| Some((id, model.timer.clone()?)))
            .collect();
        found.get(which.checked_rem(found.len())?).cloned()
    }

    fn expire(&mut self, limit: usize, meanwhile: Vec<Op>) {
        let now = self.now.min(NEVER - 1);
        let mut due = Vec::new();
        let expired = self.shard.expire(self.now, limit, &mut due);
        assert_eq!(expired.count, due.len());
        assert!(due.len() <= limit);
        let mut last = 0;
        for due in &due {
            let timer = &mut self.timers[due.tag() as usize];
            let was_moved = timer.model.moved;
            timer.model.take();
            let at = timer.model.deadline().expect("it is due");
            assert_eq!(due.kind(), timer.kind());
            assert!(at <= now || timer.is_dead(), "it is early");
            if !was_moved {
                let key = timer.key(at);
                assert!(last <= key, "{key} came after {last}");
                last = key;
            }
            timer.held = true;
        }
        if due.len() < limit {
            for timer in &self.timers {
                let state = timer.model.state;
                let late = matches!(state, State::Pending(at) if timer.key(at) <= now);
                assert!(!late, "{state:?} is late at {now}");
            }
        }
        for op in meanwhile {
            self.apply(op);
            self.check();
        }
        due.into_iter().for_each(|due| self.run(due));
    }

    fn run(&mut self, due: Due<Scripted>) {
        let id = due.tag() as usize;
        self.timers[id].held = false;
        let now = self.now;
        let ran = due.run(|| now);
        let timer = &mut self.timers[id];
        match timer.model.state {
            State::Due(_) if timer.is_dead() => {
                assert!(matches!(ran, Ran::Over));
                return self.tell(id, Outcome::Cancelled);
            }
            State::Due(_) => {}
            State::Pending(_) => {
                assert!(matches!(ran, Ran::PutBack));
                return self.arrive(id);
            }
            _ => return assert!(matches!(ran, Ran::Over)),
        }
        timer.told.push(Outcome::Fired);
        let panics = matches!(timer.plan.script, Script::Panic);
        assert!(matches!(
            (ran, panics),
            (Ran::Fired, false) | (Ran::Panicked(_), true)
        ));
        timer.model.run();
        // The callback has checked the answers that it got.
        match timer.plan.script {
            Script::End(how) => return self.end(id, how),
            Script::Cancel if timer.timer.is_some() => drop(timer.model.cancel()),
            Script::MoveTo(span) if timer.timer.is_some() => {
                timer.model.reset_at(now.saturating_add(span));
            }
            _ => {}
        }
        let mut jitter = timer.jitter(self.random);
        timer.model.has_run(now, &mut jitter);
        match timer.model.state {
            State::Over(Outcome::Cancelled) => self.tell(id, Outcome::Cancelled),
            State::Over(how) => self.end(id, how),
            _ => self.arrive(id),
        }
    }

    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Build(plan) => self.build(plan),
            Op::Advance(span) => {
                self.now = self.now.saturating_add(span);
                self.clock.store(self.now, Ordering::Relaxed);
            }
            Op::Local(local) => self.shard.owner().set_local(local),
            Op::Random(random) => {
                self.random = random;
                self.shard.owner().set_random(random, 0);
            }
            Op::Expire(limit, meanwhile) => self.expire(limit, meanwhile),
            Op::Tell(count) => {
                self.notices.extend(self.shard.owner().notices());
                let left = self.notices.len().saturating_sub(count);
                for notice in self.notices.split_off(left) {
                    self.hear(notice);
                }
            }
            Op::Close => self.close(),
            Op::CancelName(name, max) => {
                // The oldest first.
                let list = &mut self.lists[name];
                let found: Vec<_> = list.drain(..max.min(list.len())).collect();
                let cancelled = self.names.cancel(&name.to_string(), max);
                assert_eq!(cancelled, found.len());
                for id in found {
                    assert_eq!(self.cancel(id), Cancel::Cancelled);
                }
            }
            Op::RefreshName(name) => {
                let refreshed = self.names.refresh(&name.to_string(), || self.now);
                let waiting = self.lists[name]
                    .iter()
                    .filter(|&&id| self.timers[id].model.refresh(self.now) == Reset::Pending);
                assert_eq!(refreshed, waiting.count());
            }
            Op::Start(which)
            | Op::Cancel(which)
            | Op::Move(which, _)
            | Op::Drop(which)
            | Op::Kill(which) => {
                if let Some((id, timer)) = self.choose(which) {
                    self.touch(id, &timer, op);
                }
            }
        }
    }

    /// Applies the operation to one timer.
    fn touch(&mut self, id: usize, timer: &Arc<Timer<Scripted>>, op: Op) {
        let now = self.now;
        let model = &mut self.timers[id].model;
        match op {
            Op::Start(_) => assert_eq!(timer.start(now), self.start(id)),
            Op::Cancel(_) => assert_eq!(timer.cancel(), self.cancel(id)),
            Op::Kill(_) => self.timers[id].alive.store(false, Ordering::Relaxed),
            Op::Drop(_) => {
                self.drop_handle(id);
            }
            Op::Move(_, Move::At(span)) => {
                let at = now.saturating_add(span);
                assert_eq!(timer.reset_at(at), model.reset_at(at));
            }
            Op::Move(_, Move::FromNow(wait)) => {
                assert_eq!(timer.reset_after(now, wait), model.reset_after(now, wait));
            }
            Op::Move(_, Move::FromStart(wait)) => {
                assert_eq!(timer.reset_from_start(wait), model.reset_from_start(wait));
            }
            Op::Move(_, Move::Refresh) => assert_eq!(timer.refresh(now), model.refresh(now)),
            op => unreachable!("{op:?} is not for one timer"),
        }
    }
}
