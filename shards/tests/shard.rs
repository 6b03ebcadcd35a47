//! One shard against a plain model, on one thread: random programs of everything that can be done
//! to timers, by an owner that is now at home (the store is used) and now not (the inbox is).
//!
//! So that a [`Due`] can be told from another, the number of a timer stands in the low bits of its
//! deadlines: these are multiples of [`UNIT`] plus the number, and all waits multiples of it.
//! (Equal deadlines are in `horizon.rs` and `store.rs`.)
#![cfg(not(loom))]

mod common;

use std::{
    collections::HashMap,
    panic::resume_unwind,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Wake, Waker},
};

use common::{Drops, Scripted};
use proptest::prelude::*;
use tourbillon_shards::{
    Cancel, Due, Kind, NEVER, Outcome, Ran, Reset, Shard, Sleep, Status, Timer,
};

const UNIT: u64 = 256;
/// As many timers as may be cancelled before others sweep up for the owner (64), or fewer; and fewer
/// than there are numbers in a unit.
const MOST: usize = 60;
const YEAR: u64 = 365 * 24 * 3_600 * 1_000_000_000;

/// Delays and waits are in units; numbers of timers choose among those that were made.
#[derive(Clone, Debug)]
enum Op {
    Local(bool),
    Advance(u64),
    Once {
        delay: u64,
        wait: u64,
    },
    Recurring {
        delay: u64,
        period: u64,
    },
    Cancel(usize),
    Move(usize, Move),
    DropHandle(usize),
    /// What the callback does to its own timer when it runs next.
    Script(usize, Script),
    Sleep {
        delay: u64,
    },
    Poll(usize, bool),
    ResetSleep(usize, u64),
    DropSleep(usize),
    Expire {
        limit: usize,
    },
    Run(usize),
    Shutdown(usize),
    Close,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    At(u64),
    FromNow(u64),
    FromStart(u64),
    Refresh,
}

#[derive(Clone, Copy, Debug)]
enum Script {
    Cancel,
    Move(Move),
    /// Moves, and thinks better of it.
    MoveAndCancel(Move),
    Panic,
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..20_u64,
        2 => 0..1_000_000_u64,
        1 => 0..50 * YEAR / UNIT,
        1 => prop::sample::select(vec![NEVER / UNIT - 1, NEVER / UNIT, NEVER / UNIT + 1, u64::MAX / UNIT]),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        units().prop_map(Move::At),
        units().prop_map(Move::FromNow),
        units().prop_map(Move::FromStart),
        Just(Move::Refresh),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    let script = prop_oneof![
        Just(Script::Cancel),
        moves().prop_map(Script::Move),
        moves().prop_map(Script::MoveAndCancel),
        Just(Script::Panic),
    ];
    prop_oneof![
        8 => any::<bool>().prop_map(Op::Local),
        8 => prop_oneof![4 => 0..10_u64, 1 => units()].prop_map(Op::Advance),
        12 => (units(), units()).prop_map(|(delay, wait)| Op::Once { delay, wait }),
        6 => (units(), 1..30_u64).prop_map(|(delay, period)| Op::Recurring { delay, period }),
        6 => which().prop_map(Op::Cancel),
        16 => (which(), moves()).prop_map(|(which, to)| Op::Move(which, to)),
        2 => which().prop_map(Op::DropHandle),
        6 => (which(), script).prop_map(|(which, script)| Op::Script(which, script)),
        8 => units().prop_map(|delay| Op::Sleep { delay }),
        8 => (which(), any::<bool>()).prop_map(|(which, waker)| Op::Poll(which, waker)),
        8 => (which(), units()).prop_map(|(which, delay)| Op::ResetSleep(which, delay)),
        3 => which().prop_map(Op::DropSleep),
        14 => prop_oneof![2 => Just(usize::MAX), 1 => 0..4_usize].prop_map(|limit| Op::Expire { limit }),
        20 => which().prop_map(Op::Run),
        2 => which().prop_map(Op::Shutdown),
        1 => Just(Op::Close),
    ]
}

/// What a timer should be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending(u64),
    /// In a deque, and not moved since.
    Due(u64),
    /// Runs for the first deadline; recurring ones may have been given the second meanwhile.
    Running(u64, Option<u64>),
    /// Runs, and is over afterwards because of a cancel.
    Stopping,
    Over(Outcome),
}

/// The model of one timer, with the means to observe the real one.
struct Model {
    kind: Kind,
    state: State,
    /// In a deque: taken by `expire`, and not run. It may be pending, if it was moved there.
    held: bool,
    /// Stands in the inbox.
    queued: bool,
    /// Was moved since it was last taken from the store.
    moved: bool,
    wait: u64,
    timer: Option<Arc<Timer<Scripted>>>,
    sleep: Option<Sleep<Scripted>>,
    /// Of a callback.
    desk: Option<Arc<Desk>>,
    runs: usize,
    drops: Drops,
    /// Sleeps: which of two wakers is registered, and how often each was woken.
    waker: Option<bool>,
    woken: [usize; 2],
    wakers: [Arc<Count>; 2],
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The model of the shard, and the shard.
struct World {
    shard: Arc<Shard<Scripted>>,
    now: u64,
    local: bool,
    closed: bool,
    timers: Vec<Model>,
    over: HashMap<(Kind, Outcome), usize>,
}

impl World {
    fn new() -> World {
        World {
            shard: Scripted::shard(true),
            now: 0,
            local: true,
            closed: false,
            timers: Vec::new(),
            over: HashMap::new(),
        }
    }

    /// The present, with a timer's number in it.
    fn now_for(&self, id: usize) -> u64 {
        self.now + id as u64
    }

    /// The present, behind all deadlines that have the same unit.
    fn late(&self) -> u64 {
        self.now | (UNIT - 1)
    }

    /// A deadline so many units from now.
    fn after(&self, id: usize, units: u64) -> u64 {
        units.saturating_mul(UNIT).saturating_add(self.now_for(id))
    }

    fn end(&mut self, id: usize, how: Outcome) {
        let timer = &mut self.timers[id];
        timer.state = State::Over(how);
        *self.over.entry((timer.kind, how)).or_default() += 1;
        // The task of a sleep is told, unless it is the one that ended it.
        if let Some(waker) = timer.waker.take().filter(|_| how != Outcome::Cancelled) {
            timer.woken[usize::from(waker)] += 1;
        }
    }

    /// The shard is told of a timer by a thread that is not its owner.
    fn tell(&mut self, id: usize) {
        self.timers[id].queued |= !self.local && !self.closed;
    }

    /// The timer comes home, or finds its home closed.
    fn arrive(&mut self, id: usize) {
        self.tell(id);
        if self.closed {
            self.end(id, Outcome::Shutdown);
        }
    }

    /// What a cancel should answer; makes it so.
    fn cancel(&mut self, id: usize) -> Cancel {
        let timer = &mut self.timers[id];
        match timer.state {
            State::Pending(_) | State::Due(_) => {
                self.end(id, Outcome::Cancelled);
                Cancel::Cancelled
            }
            State::Running(..) if timer.kind == Kind::Recurring => {
                timer.state = State::Stopping;
                Cancel::AfterRun
            }
            State::Running(..) => Cancel::Running,
            State::Stopping | State::Over(_) => Cancel::Over,
        }
    }

    /// What moving a timer should answer; makes it so.
    fn shift(&mut self, id: usize, to: u64) -> Reset {
        let to = to.min(NEVER);
        let timer = &mut self.timers[id];
        match timer.state {
            State::Pending(at) => {
                timer.state = State::Pending(to);
                timer.moved = true;
                if to < at && !self.local {
                    // Told of one that a deque carries, a closed shard ends it.
                    self.arrive(id);
                }
                Reset::Waiting
            }
            State::Due(_) => {
                timer.state = State::Pending(to);
                Reset::Waiting
            }
            State::Running(at, _) if timer.kind == Kind::Recurring => {
                timer.state = State::Running(at, Some(to));
                Reset::AfterRun
            }
            State::Running(..) | State::Stopping | State::Over(_) => Reset::TooLate,
        }
    }

    /// What a move should answer, and how the real timer is asked for it; `None` if it would make a
    /// deadline without the timer's number.
    fn plan(&mut self, id: usize, how: Move) -> Option<(Reset, Asked)> {
        let now = self.now_for(id);
        let old = self.timers[id].wait;
        // A period of zero is one nanosecond, which is not a multiple of the unit.
        let least = u64::from(self.timers[id].kind == Kind::Recurring);
        let wait = |units: u64| units.max(least).saturating_mul(UNIT);
        let (to, asked, wait) = match how {
            Move::At(units) => {
                let at = self.after(id, units);
                (at, Asked::At(at), None)
            }
            Move::FromNow(units) => {
                // Not beyond the end of time: `horizon.rs` does that.
                let wait = wait(units).min(NEVER.saturating_sub(now)) & !(UNIT - 1);
                if wait < least * UNIT {
                    return None;
                }
                let to = now.saturating_add(wait);
                (to, Asked::FromNow(now, wait), Some(wait))
            }
            Move::FromStart(units) => {
                let wait = wait(units);
                let to = match self.deadline(id) {
                    None => 0,
                    Some(at) if at == NEVER || at < old => return None,
                    Some(at) => (at - old).saturating_add(wait),
                };
                (to, Asked::FromStart(wait), Some(wait))
            }
            Move::Refresh => (now.saturating_add(old), Asked::Refresh(now), None),
        };
        let reset = self.shift(id, to);
        if let Some(wait) = wait.filter(|_| reset != Reset::TooLate) {
            self.timers[id].wait = wait;
        }
        Some((reset, asked))
    }

    fn deadline(&self, id: usize) -> Option<u64> {
        match self.timers[id].state {
            State::Pending(at) | State::Due(at) => Some(at),
            State::Running(at, next) => Some(next.unwrap_or(at)),
            State::Stopping | State::Over(_) => None,
        }
    }

    /// Those that wait at home, by deadline.
    fn waiting(&self) -> Vec<(u64, usize)> {
        let mut waiting: Vec<_> = (0..self.timers.len())
            .filter(|&id| !self.timers[id].held)
            .filter_map(|id| match self.timers[id].state {
                State::Pending(at) => Some((at, id)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// One of the timers for which `f` answers something.
    fn choose<R>(&self, which: usize, f: impl Fn(&Model) -> Option<R>) -> Option<(usize, R)> {
        let found: Vec<_> = (0..self.timers.len())
            .filter_map(|id| f(&self.timers[id]).map(|found| (id, found)))
            .collect();
        let nth = which.checked_rem(found.len())?;
        found.into_iter().nth(nth)
    }

    fn choose_timer(&self, which: usize) -> Option<(usize, Arc<Timer<Scripted>>)> {
        self.choose(which, |model| model.timer.clone())
    }

    fn choose_sleep(&self, which: usize) -> Option<usize> {
        let sleep = self.choose(which, |model| model.sleep.as_ref().map(|_| ()));
        sleep.map(|(id, ())| id)
    }

    /// What can be seen from outside, after each step.
    fn check(&self) {
        for (id, model) in self.timers.iter().enumerate() {
            let how = match model.state {
                State::Over(how) => Some(how),
                State::Pending(_) | State::Due(_) => None,
                State::Running(..) | State::Stopping => panic!("timer {id} runs between steps"),
            };
            if let Some(timer) = &model.timer {
                assert_eq!(timer.status(), how.map_or(Status::Pending, Status::Over));
                assert_eq!(timer.deadline(), self.deadline(id), "timer {id}");
                assert_eq!(timer.wait(), model.wait, "timer {id}");
            }
            if let Some(sleep) = &model.sleep {
                assert_eq!(sleep.outcome(), how, "sleep {id}");
                assert_eq!(sleep.deadline(), self.deadline(id), "sleep {id}");
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

/// A move as it is asked of a real timer.
enum Asked {
    At(u64),
    FromNow(u64, u64),
    FromStart(u64),
    Refresh(u64),
}

impl Asked {
    fn of(self, timer: &Timer<Scripted>) -> Reset {
        match self {
            Asked::At(at) => timer.reset_at(at),
            Asked::FromNow(now, wait) => timer.reset(now, wait),
            Asked::FromStart(wait) => timer.reset_from_start(wait),
            Asked::Refresh(now) => timer.refresh(now),
        }
    }
}

/// What a running callback finds: its handle, and what it is to do.
struct Desk {
    id: usize,
    script: Mutex<Option<Script>>,
    timer: Mutex<Weak<Timer<Scripted>>>,
    world: Weak<Mutex<World>>,
    runs: AtomicUsize,
}

impl Desk {
    fn run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let script = self.script.lock().unwrap().take();
        if let Some(Script::Panic) = script {
            resume_unwind(Box::new(self.id));
        }
        let timer = self.timer.lock().unwrap().upgrade();
        let (Some(script), Some(timer)) = (script, timer) else {
            return;
        };
        self.expect_running(&timer);
        if let Script::Move(to) | Script::MoveAndCancel(to) = script {
            self.shift(&timer, to);
            self.expect_running(&timer);
        }
        if let Script::Cancel | Script::MoveAndCancel(_) = script {
            self.cancel(&timer);
            self.expect_running(&timer);
            // Too late now, both of them.
            self.shift(&timer, Move::Refresh);
            self.cancel(&timer);
        }
    }

    fn with_world<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        let world = self.world.upgrade().expect("the world outlives its timers");
        f(&mut world.lock().unwrap())
    }

    fn cancel(&self, timer: &Timer<Scripted>) {
        let expected = self.with_world(|world| world.cancel(self.id));
        assert_eq!(timer.cancel(), expected);
    }

    fn shift(&self, timer: &Timer<Scripted>, to: Move) {
        if let Some((expected, asked)) = self.with_world(|world| world.plan(self.id, to)) {
            assert_eq!(asked.of(timer), expected);
        }
    }

    fn expect_running(&self, timer: &Timer<Scripted>) {
        let (last, deadline) = self.with_world(|world| {
            let model = &world.timers[self.id];
            let last = model.kind == Kind::Once || model.state == State::Stopping;
            (last, world.deadline(self.id))
        });
        assert_eq!(timer.status(), Status::Running { last });
        assert_eq!(timer.deadline(), deadline);
    }
}

/// The world, and what was taken from its store and not run.
struct Bench {
    /// Locked but while a callback may run, which looks at it.
    world: Arc<Mutex<World>>,
    held: Vec<(usize, Due<Scripted>)>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            world: Arc::new(Mutex::new(World::new())),
            held: Vec::new(),
        }
    }

    fn arm(&mut self, kind: Kind, delay: u64, wait: u64) {
        let world = &mut *self.world.lock().unwrap();
        let id = world.timers.len();
        if id == MOST {
            return;
        }
        let deadline = world.after(id, delay);
        let wait = wait.saturating_mul(UNIT);
        let mut model = Model {
            kind,
            state: State::Pending(deadline.min(NEVER)),
            held: false,
            queued: false,
            moved: false,
            wait,
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

    fn expire(&mut self, limit: usize) {
        let world = &mut *self.world.lock().unwrap();
        let mut expected = world.waiting();
        expected.retain(|&(at, _)| at <= world.late().min(NEVER - 1));
        let more = expected.len() > limit;
        let mut due = Vec::new();
        let expired = world.shard.expire(world.late(), limit, &mut due);
        assert_eq!(expired.count, due.len());
        assert_eq!(expired.count, expected.len().min(limit));
        // At the limit it may not know: a timer was made later, and its old deadline has come.
        assert!(expired.more || !more);
        assert!(!expired.more || expired.count == limit);
        let mut unmoved = None;
        for due in due {
            let at = due.deadline().expect("nobody ended it since");
            let found = expected.iter().position(|&(deadline, _)| deadline == at);
            let (_, id) = expected.swap_remove(found.expect("it is due"));
            assert_eq!(due.kind(), world.timers[id].kind);
            assert!(std::ptr::eq(due.home(), &*world.shard));
            // One that was made later comes up in the place of its old deadline.
            if !world.timers[id].moved {
                assert!(
                    unmoved < Some(at),
                    "deadline {at} came up after {unmoved:?}"
                );
                unmoved = Some(at);
            }
            world.timers[id].state = State::Due(at);
            world.timers[id].held = true;
            world.timers[id].moved = false;
            self.held.push((id, due));
        }
        for timer in &mut world.timers {
            timer.queued = false;
        }
        // All news is read: it holds what waits, and nothing that is over.
        assert_eq!(world.shard.stored(), world.waiting().len());
        if !world.closed {
            assert_eq!(world.shard.garbage(), 0);
        }
        assert!(!world.shard.has_news());
    }

    fn take_held(&mut self, which: usize) -> Option<(usize, Due<Scripted>)> {
        let nth = which.checked_rem(self.held.len())?;
        let (id, due) = self.held.swap_remove(nth);
        let world = &mut *self.world.lock().unwrap();
        world.timers[id].held = false;
        assert_eq!(due.deadline(), world.deadline(id));
        Some((id, due))
    }

    fn run(&mut self, which: usize) {
        let Some((id, due)) = self.take_held(which) else {
            return;
        };
        let mut world = self.world.lock().unwrap();
        let now = world.late();
        match world.timers[id].state {
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
                    world.timers[id].state = State::Running(at, None);
                    world.timers[id].runs += 1;
                    drop(world);
                    self.run_callback(id, due, now);
                }
            }
            state => panic!("a held timer was {state:?}"),
        }
    }

    fn run_callback(&mut self, id: usize, due: Due<Scripted>, now: u64) {
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
        let timer = &mut world.timers[id];
        match timer.state {
            State::Stopping => world.end(id, Outcome::Cancelled),
            State::Running(..) if timer.kind == Kind::Once => world.end(id, Outcome::Fired),
            State::Running(at, next) => {
                // The first point of its grid that is after the present, unless it was moved.
                let last = now - (now - at) % timer.wait;
                let next = next.unwrap_or(last.saturating_add(timer.wait).min(NEVER));
                timer.state = State::Pending(next);
                world.arrive(id);
            }
            state => panic!("a running timer was {state:?}"),
        }
    }

    fn shut_down(&mut self, which: usize) {
        if let Some((id, due)) = self.take_held(which) {
            due.shutdown();
            let world = &mut *self.world.lock().unwrap();
            if !matches!(world.timers[id].state, State::Over(_)) {
                world.end(id, Outcome::Shutdown);
            }
        }
    }

    fn close(&mut self) {
        let world = &mut *self.world.lock().unwrap();
        let orphans = world.shard.close();
        assert!(orphans.is_empty() || !world.closed);
        for id in 0..world.timers.len() {
            let timer = &mut world.timers[id];
            // What waits ends here; and what a deque carries, if there is news of it in the inbox.
            let here = !timer.held || timer.queued;
            timer.queued = false;
            if here && !matches!(timer.state, State::Over(_)) {
                world.end(id, Outcome::Shutdown);
            }
        }
        world.closed = true;
        drop(orphans);
        assert_eq!(world.shard.stored(), 0);
        assert!(!world.shard.has_news());
    }

    fn apply(&mut self, op: Op) {
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

    fn apply_to_world(&mut self, op: Op) {
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
                    if matches!(world.timers[id].state, State::Pending(_) | State::Due(_)) {
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
                    let expected = match timer.state {
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
                    if world.shift(id, at) == Reset::TooLate {
                        world.timers[id].state = State::Pending(at.min(NEVER));
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

    /// Ends what is left, in whatever order, and looks for what is left behind.
    fn finish(mut self, close_first: bool) {
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
            assert!(matches!(timer.state, State::Over(_)), "{:?}", timer.state);
            timer.timer = None;
            timer.sleep = None;
            for waker in &timer.wakers {
                assert_eq!(Arc::strong_count(waker), 1, "a waker was left behind");
            }
        }
        assert_eq!(Arc::strong_count(&world.shard), 1, "a node was left behind");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) })]

    #[test]
    fn agrees_with_a_plain_model(
        program in prop::collection::vec(op(), 1..150),
        close_first in any::<bool>(),
    ) {
        let mut bench = Bench::new();
        for op in program {
            bench.apply(op);
            bench.world.lock().unwrap().check();
        }
        bench.finish(close_first);
    }
}
