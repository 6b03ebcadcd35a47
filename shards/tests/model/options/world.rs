//! The model of all timers, together with the shard.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tourbillon_shards::{
    Cancel, Due, Kind, NEVER, Name, Names, Notice, Options, Outcome, Ran, Reset, Shard, Started,
    Timer,
};

use super::{
    Move, NAMES, Op, Plan, Script,
    model::{Model, State, callback},
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

    pub fn end(&mut self, id: usize, how: Outcome) {
        self.leave(id);
        let timer = &mut self.timers[id];
        timer.state = State::Over(how);
        *self.over.entry((timer.kind(), how)).or_default() += 1;
    }

    /// Ends a timer, and records its outcome at once.
    pub fn tell(&mut self, id: usize, how: Outcome) {
        if self.timers[id].plan.outcome {
            self.timers[id].told.push(how);
        }
        self.end(id, how);
    }

    /// Ends a timer, and keeps an outcome delivery if its callback takes outcomes.
    fn give_notice(&mut self, id: usize, how: Outcome) {
        if self.timers[id].plan.outcome {
            self.leave(id);
            self.timers[id].state = State::Telling(how);
        } else {
            self.end(id, how);
        }
    }

    /// Lets a timer wait from now on, if its shard is open.
    fn arrive(&mut self, id: usize, at: u64) {
        self.timers[id].state = State::Pending(at);
        if self.closed {
            self.give_notice(id, Outcome::Shutdown);
        }
    }

    fn cancel(&mut self, id: usize) -> Cancel {
        match self.timers[id].state {
            State::Idle if self.timers[id].plan.outcome => {
                self.leave(id);
                self.timers[id].state = State::Barred;
                Cancel::Cancelled
            }
            State::Idle => {
                self.end(id, Outcome::Cancelled);
                Cancel::Cancelled
            }
            State::Pending(_) | State::Due(_) => {
                self.give_notice(id, Outcome::Cancelled);
                Cancel::Cancelled
            }
            State::Barred | State::Telling(_) | State::Over(_) => Cancel::Over,
        }
    }

    /// Moves a timer. `to` computes the deadline from the start of the wait.
    fn shift(&mut self, id: usize, wait: Option<u64>, to: impl Fn(u64) -> u64) -> Reset {
        let timer = &mut self.timers[id];
        match timer.state {
            State::Pending(_) | State::Due(_) => {
                timer.state = State::Pending(to(timer.begun).min(NEVER));
                timer.wait = wait.unwrap_or(timer.wait).min(NEVER);
                (timer.offset, timer.moved) = (0, true);
                Reset::Waiting
            }
            State::Idle => Reset::NotStarted,
            State::Barred | State::Telling(_) | State::Over(_) => Reset::TooLate,
        }
    }

    /// Starts the wait again, if the timer was moved.
    fn begin(&mut self, id: usize, reset: Reset) {
        if reset == Reset::Waiting {
            self.timers[id].begun = self.now;
        }
    }

    fn start(&mut self, id: usize) -> Started {
        let (now, random) = (self.now, self.random);
        let timer = &mut self.timers[id];
        match timer.state {
            State::Idle => {
                let exact = match timer.deadline {
                    0 => now.saturating_add(timer.wait).min(NEVER),
                    at => at,
                };
                let at = timer.jittered(exact, random);
                // The wait of a timer that runs once, and whose deadline had passed, starts at that
                // deadline.
                timer.begun = match timer.plan.recurring {
                    true => now,
                    false => at.min(now),
                };
                timer.wait = if timer.plan.recurring {
                    timer.wait.min(NEVER.saturating_sub(now))
                } else {
                    at.saturating_sub(now)
                };
                self.arrive(id, at);
                match self.closed {
                    true => Started::Shutdown,
                    false => Started::Waiting,
                }
            }
            State::Barred => {
                timer.state = State::Telling(Outcome::Cancelled);
                Started::Cancelled
            }
            State::Telling(Outcome::Cancelled) | State::Over(Outcome::Cancelled) => {
                Started::Cancelled
            }
            State::Telling(Outcome::Shutdown) | State::Over(Outcome::Shutdown) => Started::Shutdown,
            _ => Started::TooLate,
        }
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
            recurring: plan.recurring,
            outcome: plan.outcome,
            tolerance: plan.tolerance,
            jitter: plan.jitter,
            tag: id as u32,
            name: plan
                .name
                .map(|name| Name::new(&self.names, &name.to_string())),
            condition: Some(Box::new(move || mine.load(Ordering::Relaxed))),
            ..Options::default()
        };
        let f = callback(&plan, &calls, &self.clock, &cell);
        let timer = Arc::new(Timer::build(&self.shard, plan.wait, deadline, options, f));
        *cell.lock().unwrap() = Arc::downgrade(&timer);
        self.lists.iter_mut().enumerate().for_each(|(name, list)| {
            if plan.name == Some(name) {
                list.push(id);
            }
        });
        let start = plan.start;
        self.timers.push(Model {
            state: State::Idle,
            deadline: deadline.map_or(0, |at| at.clamp(1, NEVER)),
            wait: plan.wait.min(NEVER),
            begun: 0,
            plan,
            offset: 0,
            moved: false,
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
            let State::Pending(at) = timer.state else {
                panic!("{:?} came due", timer.state)
            };
            assert_eq!(due.kind(), timer.kind());
            assert!(at <= now || timer.is_dead(), "it is early");
            if !timer.moved {
                let key = timer.key(at);
                assert!(last <= key, "{key} came after {last}");
                last = key;
            }
            timer.state = State::Due(at);
            (timer.held, timer.moved) = (true, false);
        }
        if due.len() < limit {
            for timer in &self.timers {
                let late = matches!(timer.state, State::Pending(at) if timer.key(at) <= now);
                assert!(!late, "{:?} is late at {now}", timer.state);
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
        let random = self.random;
        let timer = &mut self.timers[id];
        let at = match timer.state {
            State::Due(_) if timer.is_dead() => {
                assert!(matches!(ran, Ran::Over));
                return self.tell(id, Outcome::Cancelled);
            }
            State::Due(at) => at,
            State::Pending(at) => {
                assert!(matches!(ran, Ran::PutBack));
                return self.arrive(id, at);
            }
            _ => return assert!(matches!(ran, Ran::Over)),
        };
        timer.told.push(Outcome::Fired);
        let panics = matches!(timer.plan.script, Script::Panic);
        assert!(matches!(
            (ran, panics),
            (Ran::Fired, false) | (Ran::Panicked(_), true)
        ));
        let own = timer.timer.is_some();
        match timer.plan.script {
            Script::End(how) => self.end(id, how),
            _ if !timer.plan.recurring => self.end(id, Outcome::Fired),
            Script::Cancel if own => self.tell(id, Outcome::Cancelled),
            Script::MoveTo(span) if own => {
                timer.begun = at.saturating_sub(timer.offset);
                (timer.offset, timer.moved) = (0, false);
                self.arrive(id, now.saturating_add(span).min(NEVER));
            }
            _ => {
                // The first point of its grid that has not passed.
                let grid = u128::from(at.saturating_sub(timer.offset));
                let period = u128::from(timer.wait.max(1));
                let periods = u128::from(now).saturating_sub(grid) / period + 1;
                let next = (grid + periods * period).min(u128::from(NEVER)) as u64;
                timer.begun = next.saturating_sub(timer.wait);
                let next = timer.jittered(next, random);
                timer.moved = false;
                self.arrive(id, next);
            }
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
                let waiting = self.lists[name].clone().into_iter().filter(|&id| {
                    let to = self.now.saturating_add(self.timers[id].wait);
                    let expected = self.shift(id, None, |_| to);
                    self.begin(id, expected);
                    expected == Reset::Waiting
                });
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
        match op {
            Op::Start(_) => assert_eq!(timer.start(now), self.start(id)),
            Op::Cancel(_) => assert_eq!(timer.cancel(), self.cancel(id)),
            Op::Kill(_) => self.timers[id].alive.store(false, Ordering::Relaxed),
            Op::Drop(_) => {
                self.timers[id].timer = None;
                if matches!(self.timers[id].state, State::Idle | State::Barred) {
                    self.end(id, Outcome::Cancelled);
                }
            }
            Op::Move(_, Move::At(span)) => {
                let at = now.saturating_add(span);
                assert_eq!(timer.reset_at(at), self.shift(id, None, |_| at));
            }
            Op::Move(_, Move::FromNow(wait)) => {
                let kept = wait.min(NEVER.saturating_sub(now));
                let expected = self.shift(id, Some(kept), |_| now.saturating_add(kept));
                self.begin(id, expected);
                assert_eq!(timer.reset(now, wait), expected);
            }
            Op::Move(_, Move::FromStart(wait)) => {
                let expected = self.shift(id, Some(wait), |begun| begun.saturating_add(wait));
                assert_eq!(timer.reset_from_start(wait), expected);
            }
            Op::Move(_, Move::Refresh) => {
                let to = now.saturating_add(self.timers[id].wait);
                let expected = self.shift(id, None, |_| to);
                self.begin(id, expected);
                assert_eq!(timer.refresh(now), expected);
            }
            op => unreachable!("{op:?} is not for one timer"),
        }
    }
}
