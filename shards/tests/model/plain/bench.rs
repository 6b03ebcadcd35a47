//! Applies a program to a shard and to its model.

use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex, Weak, atomic::AtomicUsize},
    task::{Poll, Waker},
};

use tourbillon_model::{self as model, State};
use tourbillon_shards::{Due, Kind, NEVER, Outcome, Ran, Reset, Sleep, Timer, store::StoreKind};

use super::{
    MOST, Op, Script, UNIT,
    desk::Desk,
    world::{Model, World},
};
use crate::common::{Drops, Scripted};

/// The world, and the timers that were taken from its store and have not run.
pub struct Bench {
    /// Locked except while a callback may run, because the callback uses it.
    pub world: Arc<Mutex<World>>,
    pub held: Vec<(usize, Due<Scripted>)>,
}

impl Bench {
    pub fn new(store: StoreKind) -> Bench {
        Bench {
            world: Arc::new(Mutex::new(World::new(store))),
            held: Vec::new(),
        }
    }

    pub fn arm(&mut self, kind: Kind, delay: u64, wait: u64) {
        let world = &mut *self.world.lock().unwrap();
        let id = world.timers.len();
        if id == MOST {
            return;
        }
        let deadline = world.after(id, delay);
        let wait = wait.saturating_mul(UNIT).min(NEVER);
        let mut model = Model {
            kind,
            model: model::Timer::pending(kind == Kind::Recurring, deadline, wait),
            held: false,
            queued: false,
            timer: None,
            sleep: None,
            desk: None,
            runs: 0,
            drops: Drops::default(),
            waker: None,
            woken: [0; 2],
            wakers: Default::default(),
        };
        if kind == Kind::Sleep {
            model.sleep = Some(Sleep::new(&world.shard, deadline));
        } else {
            let desk = Arc::new(Desk {
                id,
                script: Mutex::new(None),
                timer: Mutex::new(Weak::new()),
                world: Arc::downgrade(&self.world),
                runs: AtomicUsize::new(0),
            });
            let payload = (model.drops.probe(), desk.clone());
            let f = move || {
                let (_probe, desk) = &payload;
                desk.run();
            };
            let timer = Arc::new(match kind {
                Kind::Once => Timer::once(&world.shard, deadline, wait, f),
                _ => Timer::recurring(&world.shard, deadline, wait, f),
            });
            *desk.timer.lock().unwrap() = Arc::downgrade(&timer);
            model.timer = Some(timer);
            model.desk = Some(desk);
        }
        world.timers.push(model);
        world.arrive(id);
    }

    pub fn expire(&mut self, limit: usize) {
        let world = &mut *self.world.lock().unwrap();
        let mut expected = world.waiting();
        expected.retain(|&(at, _)| at <= world.late().min(NEVER - 1));
        let more = expected.len() > limit;
        let mut due = Vec::new();
        let expired = world.shard.expire(world.late(), limit, &mut due);
        assert_eq!(expired.count, due.len());
        assert_eq!(expired.count, expected.len().min(limit));
        // At the limit, the shard may report more than there is: the old deadline of a timer that
        // was moved later has come.
        assert!(expired.more || !more);
        assert!(!expired.more || expired.count == limit);
        let mut unmoved = None;
        for due in due {
            let at = due.deadline().expect("no thread has ended it since");
            let found = expected.iter().position(|&(deadline, _)| deadline == at);
            let (_, id) = expected.swap_remove(found.expect("it is due"));
            assert_eq!(due.kind(), world.timers[id].kind);
            assert!(std::ptr::eq(due.home(), &*world.shard));
            // A timer that was moved later is found at its old deadline.
            if !world.timers[id].model.moved {
                assert!(
                    unmoved < Some(at),
                    "deadline {at} came up after {unmoved:?}"
                );
                unmoved = Some(at);
            }
            world.timers[id].model.take();
            world.timers[id].held = true;
            self.held.push((id, due));
        }
        for timer in &mut world.timers {
            timer.queued = false;
        }
        // All updates are read. So the store holds the timers that wait, and none that is over.
        assert_eq!(world.shard.stored(), world.waiting().len());
        if !world.closed {
            assert_eq!(world.shard.garbage(), 0);
        }
        assert!(!world.shard.has_updates());
    }

    pub fn take_held(&mut self, which: usize) -> Option<(usize, Due<Scripted>)> {
        let nth = which.checked_rem(self.held.len())?;
        let (id, due) = self.held.swap_remove(nth);
        let world = &mut *self.world.lock().unwrap();
        world.timers[id].held = false;
        assert_eq!(due.deadline(), world.timers[id].model.deadline());
        Some((id, due))
    }

    pub fn run(&mut self, which: usize) {
        let Some((id, due)) = self.take_held(which) else {
            return;
        };
        let mut world = self.world.lock().unwrap();
        let now = world.late();
        match world.timers[id].model.state {
            State::Over(_) => assert!(matches!(due.run(|| now), Ran::Over)),
            State::Pending(_) => {
                assert!(matches!(due.run(|| now), Ran::PutBack));
                world.arrive(id);
            }
            State::Due(at) => {
                assert!(at <= now, "timer {id} runs early");
                if world.timers[id].kind == Kind::Sleep {
                    assert!(matches!(due.run(|| now), Ran::Fired));
                    world.end(id, Outcome::Fired);
                } else {
                    world.timers[id].model.run();
                    world.timers[id].runs += 1;
                    drop(world);
                    self.run_callback(id, due, now);
                }
            }
            state => panic!("a held timer was {state:?}"),
        }
    }

    pub fn run_callback(&mut self, id: usize, due: Due<Scripted>, now: u64) {
        let desk = self.world.lock().unwrap().timers[id].desk.clone();
        let desk = desk.expect("a callback has one");
        let panics = matches!(*desk.script.lock().unwrap(), Some(Script::Panic));
        match due.run(|| now) {
            Ran::Fired => assert!(!panics, "a panic was swallowed"),
            Ran::Panicked(with) if panics => {
                assert_eq!(with.downcast_ref::<usize>(), Some(&id));
            }
            Ran::Panicked(with) => resume_unwind(with),
            ran => panic!("a due timer did not run: {ran:?}"),
        }
        let world = &mut *self.world.lock().unwrap();
        let timer = &mut world.timers[id].model;
        timer.has_run(now, &mut model::exact);
        match timer.state {
            State::Over(how) => world.end(id, how),
            _ => world.arrive(id),
        }
    }

    pub fn shut_down(&mut self, which: usize) {
        if let Some((id, due)) = self.take_held(which) {
            due.shutdown();
            let world = &mut *self.world.lock().unwrap();
            match world.timers[id].model.state {
                State::Over(_) => {}
                // A sleep that was moved waits on.
                State::Pending(_) if world.timers[id].kind == Kind::Sleep => world.arrive(id),
                _ => world.end(id, Outcome::Shutdown),
            }
        }
    }

    pub fn close(&mut self) {
        let world = &mut *self.world.lock().unwrap();
        let orphans = world.shard.close();
        assert!(orphans.is_empty() || !world.closed);
        for id in 0..world.timers.len() {
            let timer = &mut world.timers[id];
            // Timers that wait end here. So do timers in a deque, if the inbox has an update of
            // them.
            let here = !timer.held || timer.queued;
            timer.queued = false;
            if here && !timer.model.is_over() {
                world.end(id, Outcome::Shutdown);
            }
        }
        world.closed = true;
        drop(orphans);
        assert_eq!(world.shard.stored(), 0);
        assert!(!world.shard.has_updates());
    }

    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Once { delay, wait } => self.arm(Kind::Once, delay, wait),
            Op::Recurring { delay, period } => self.arm(Kind::Recurring, delay, period),
            Op::Sleep { delay } => self.arm(Kind::Sleep, delay, 0),
            Op::Expire { limit } => self.expire(limit),
            Op::Run(which) => self.run(which),
            Op::Shutdown(which) => self.shut_down(which),
            Op::Close => self.close(),
            op => self.apply_to_world(op),
        }
    }

    pub fn apply_to_world(&mut self, op: Op) {
        let world = &mut *self.world.lock().unwrap();
        match op {
            Op::Local(local) => {
                world.local = local;
                world.shard.owner().set_local(local);
            }
            Op::Advance(units) => {
                let now = world.now.saturating_add(units.saturating_mul(UNIT));
                world.now = now & !(UNIT - 1);
            }
            Op::Cancel(which) => {
                if let Some((id, timer)) = world.choose_timer(which) {
                    if world.timers[id].model.deadline().is_some() {
                        world.tell(id);
                    }
                    assert_eq!(timer.cancel(), world.cancel(id));
                }
            }
            Op::Move(which, to) => {
                if let Some((id, timer)) = world.choose_timer(which) {
                    if let Some((expected, asked)) = world.plan(id, to) {
                        assert_eq!(asked.of(&timer), expected);
                    }
                }
            }
            Op::DropHandle(which) => {
                if let Some((id, _)) = world.choose_timer(which) {
                    world.timers[id].timer = None;
                }
            }
            Op::Script(which, script) => {
                if let Some((_, desk)) = world.choose(which, |timer| timer.desk.clone()) {
                    *desk.script.lock().unwrap() = Some(script);
                }
            }
            Op::Poll(which, waker) => {
                if let Some(id) = world.choose_sleep(which) {
                    let timer = &mut world.timers[id];
                    let sleep = timer.sleep.as_ref().expect("it was chosen for it");
                    let real = Waker::from(timer.wakers[usize::from(waker)].clone());
                    let expected = match timer.model.state {
                        State::Over(how) => Poll::Ready(how),
                        _ => Poll::Pending,
                    };
                    assert_eq!(sleep.poll(&real), expected);
                    if expected.is_pending() {
                        timer.waker = Some(waker);
                    }
                }
            }
            Op::ResetSleep(which, units) => {
                if let Some(id) = world.choose_sleep(which) {
                    let at = world.after(id, units);
                    let sleep = world.timers[id].sleep.as_mut();
                    sleep.expect("it was chosen for it").reset(at);
                    let reset = world.shift(id, |timer| timer.reset_at(at));
                    if reset == Reset::TooLate {
                        world.timers[id].model.state = State::Pending(at.min(NEVER));
                        world.arrive(id);
                    }
                }
            }
            Op::DropSleep(which) => {
                if let Some(id) = world.choose_sleep(which) {
                    world.timers[id].sleep = None;
                    world.cancel(id);
                    world.timers[id].waker = None;
                }
            }
            op => unreachable!("{op:?} is done by the bench"),
        }
    }

    /// Ends the timers that are left, and checks that nothing is left behind.
    pub fn finish(mut self, close_first: bool) {
        if close_first {
            self.close();
        }
        while !self.held.is_empty() {
            self.run(0);
        }
        self.close();
        let world = &mut *self.world.lock().unwrap();
        world.check();
        for timer in &mut world.timers {
            assert!(timer.model.is_over(), "{:?}", timer.model.state);
            timer.timer = None;
            timer.sleep = None;
            for waker in &timer.wakers {
                assert_eq!(Arc::strong_count(waker), 1, "a waker was left behind");
            }
        }
        assert_eq!(Arc::strong_count(&world.shard), 1, "a node was left behind");
    }
}
