//! A shard with an uptime of days, years and decades. It is tested around the times at which timers
//! of other projects hang, panic or fire at the wrong time, and at the end of its clock. All that
//! is armed, moved and cancelled must behave as in a plain list.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::common::{
    Random, Scripted, expire, turn,
    units::{DAY, MS, SECOND, YEAR},
};
use tourbillon_shards::{
    Cancel, Kind, NEVER, Outcome, Reset, Shard, Status, Timer, store::StoreKind,
};

/// The times at which something changes: a wheel's end, a bit of a number, a unit.
const HORIZONS: [u64; 16] = [
    // Wheels of six levels with 64 slots, in ms; seconds in 20 bits.
    12 * DAY,
    (1 << 20) * SECOND,
    // 32 bits of ms, signed and unsigned; of 10 ms; of seconds.
    (1 << 31) * MS,
    (1 << 32) * MS,
    497 * DAY,
    // The end of tokio's wheel.
    (1 << 36) * MS,
    (1 << 31) * SECOND,
    // The number from which on a float does not represent all integers; the two highest bits of a
    // deadline.
    1 << 53,
    1 << 59,
    1 << 60,
    10 * YEAR,
    50 * YEAR,
    73 * YEAR,
    NEVER - DAY,
    NEVER - 1_000,
    NEVER - 2,
];

/// Runs the test with each store, on the owner's path and through the inbox.
fn each(test: impl Fn(&Arc<Shard<Scripted>>, StoreKind)) {
    for store in StoreKind::ALL {
        for local in [true, false] {
            let shard = Scripted::shard_with(local, store);
            test(&shard, store);
            drop(shard.close());
            assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
        }
    }
}

/// A shard, and a list of the timers that are still to fire.
struct World<'a> {
    shard: &'a Arc<Shard<Scripted>>,
    clock: Arc<AtomicU64>,
    /// Where timers record that they ran: which one, and when.
    ran: Arc<Mutex<Vec<(u64, u64)>>>,
    timers: BTreeMap<u64, (Timer<Scripted>, u64)>,
    next: u64,
    fired: u64,
}

impl<'a> World<'a> {
    fn new(shard: &'a Arc<Shard<Scripted>>, now: u64) -> Self {
        Self {
            shard,
            clock: Arc::new(AtomicU64::new(now)),
            ran: Arc::default(),
            timers: BTreeMap::new(),
            next: 0,
            fired: 0,
        }
    }

    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    fn arm(&mut self, wait: u64) {
        let deadline = self.now().saturating_add(wait).min(NEVER);
        let (id, ran, clock) = (self.next, self.ran.clone(), self.clock.clone());
        let timer = Timer::once(self.shard, deadline, wait, move || {
            ran.lock().unwrap().push((id, clock.load(Relaxed)));
        });
        assert_eq!(timer.deadline(), Some(deadline));
        self.timers.insert(id, (timer, deadline));
        self.next += 1;
    }

    /// Returns one of the pending timers.
    fn any(&self, random: &mut Random) -> Option<u64> {
        let count = self.timers.len() as u64;
        let at = (count > 0).then(|| random.below(count) as usize)?;
        self.timers.keys().nth(at).copied()
    }

    fn cancel(&mut self, id: u64) {
        let (timer, _) = self.timers.remove(&id).unwrap();
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
    }

    /// Moves a timer to `wait` from now.
    fn reset(&mut self, id: u64, wait: u64) {
        let now = self.now();
        let (timer, deadline) = self.timers.get_mut(&id).unwrap();
        assert_eq!(timer.reset_after(now, wait), Reset::Pending);
        *deadline = now.saturating_add(wait).min(NEVER);
        assert_eq!(timer.deadline(), Some(*deadline));
    }

    fn first(&self) -> Option<u64> {
        let deadlines = self.timers.values().map(|(_, deadline)| *deadline);
        deadlines.min().filter(|deadline| *deadline < NEVER)
    }

    /// Sets the clock to `now` and checks that exactly the due timers fire, in order.
    fn turn(&mut self, now: u64) {
        self.clock.store(now, Relaxed);
        let expected: Vec<_> = {
            let due = self
                .timers
                .iter()
                .filter(|(_, (_, at))| *at <= now && *at < NEVER);
            due.map(|(id, _)| *id).collect()
        };
        // A store may return a part of what is due at a time, but never nothing.
        while !expected.is_empty() && self.ran.lock().unwrap().len() < expected.len() {
            assert!(turn(self.shard, now) > 0, "nothing comes at {now}");
        }
        assert_eq!(turn(self.shard, now), 0, "more than is due at {now}");
        let mut ran: Vec<_> = std::mem::take(&mut *self.ran.lock().unwrap());
        ran.sort_unstable();
        let expected: Vec<_> = expected.into_iter().map(|id| (id, now)).collect();
        assert_eq!(ran, expected, "at {now}");
        self.fired += ran.len() as u64;
        for (id, _) in ran {
            let (timer, _) = self.timers.remove(&id).unwrap();
            assert_eq!(timer.status(), Status::Over(Outcome::Fired));
        }
        // A store may wake its owner too early, and never too late.
        match self.first() {
            Some(first) => assert!(self.shard.next_deadline() <= first, "sleeps past {first}"),
            None => assert!(self.timers.values().all(|(_, at)| *at == NEVER)),
        }
    }

    /// Runs the owner's loop until all deadlines before `end` have passed. It sleeps each time
    /// until the deadline that the shard returns. At most `moved + 2` wake-ups may fire no timer.
    fn run_until(&mut self, end: u64, moved: u64) {
        let mut idle = 0;
        loop {
            let next = self.shard.next_deadline();
            if next >= end || next == NEVER {
                break;
            }
            let fired = self.fired;
            let now = next.max(self.now());
            self.turn(now);
            idle += u64::from(self.fired == fired);
            assert!(idle <= moved + 2, "it wakes for nothing, over and over");
        }
        if end < NEVER {
            self.turn(end.max(self.now()));
        }
    }
}

#[test]
fn around_each_horizon_a_shard_behaves_like_a_list() {
    each(|shard, store| {
        for (i, horizon) in HORIZONS.into_iter().enumerate() {
            let mut random = Random(0x9e37_79b9 + i as u64 * 7 + store as u64);
            // From just before the horizon to just after it, in steps of each order of magnitude.
            for bits in [4, 20, 33, 44] {
                let start = horizon.saturating_sub(1 << bits);
                let end = horizon.saturating_add(1 << bits).min(NEVER - 1);
                let mut world = World::new(shard, start);
                let mut moved = 0;
                for _ in 0..60 {
                    for _ in 0..random.below(4) {
                        world.arm(random.up_to(bits + 1));
                    }
                    if let Some(id) = world.any(&mut random) {
                        match random.below(4) {
                            0 => world.cancel(id),
                            1 | 2 => world.reset(id, random.up_to(bits + 1)),
                            _ => world.reset(id, u64::MAX - random.below(3)),
                        }
                        moved += 1;
                    }
                    let step = random.up_to(bits - 2);
                    let to = (world.now() + step).min(end);
                    world.turn(to);
                }
                world.run_until(NEVER, moved);
                // At the end of time, only the timers that never fire are left.
                for now in [NEVER, 1 << 63, u64::MAX] {
                    world.turn(now);
                }
                assert!(world.fired > 20, "the test tests little: {}", world.fired);
                let left: Vec<_> = world.timers.keys().copied().collect();
                left.into_iter().for_each(|id| world.cancel(id));
                // Read all updates, so that only the memory for reuse is left.
                turn(shard, end);
                assert_eq!(shard.next_deadline(), NEVER);
            }
        }
    });
}

/// The shard never restarts, and timers of all lengths are pending all the time.
#[test]
fn after_decades_a_shard_sleeps_until_the_next_deadline() {
    each(|shard, _| {
        let mut random = Random(77);
        let mut world = World::new(shard, 0);
        let mut steps = 0_u64;
        while world.now() < NEVER - YEAR {
            // Most are short, as in servers; some take days and months.
            while world.timers.len() < 20 {
                world.arm(random.up_to(55));
            }
            if let Some(id) = world.any(&mut random) {
                if random.below(3) == 0 {
                    world.reset(id, random.up_to(54));
                }
            }
            let end = world.now() + random.up_to(55);
            world.run_until(end, 60);
            steps += 1;
        }
        assert!(
            steps > 100 && world.fired > 1_000,
            "{steps} {}",
            world.fired
        );
        world.run_until(NEVER, 60);
        let left: Vec<_> = world.timers.keys().copied().collect();
        left.into_iter().for_each(|id| world.cancel(id));
    });
}

/// The loop runs for more than twelve days without a rest. At that time a wheel of another project
/// stood still.
#[test]
fn a_timer_of_seven_seconds_fires_for_thirteen_days() {
    for store in StoreKind::ALL {
        let shard = Scripted::shard_with(true, store);
        let ran = Arc::new(AtomicU64::new(0));
        let counter = ran.clone();
        const PERIOD: u64 = 7 * SECOND;
        let timer = Timer::recurring(&shard, PERIOD, PERIOD, move || {
            counter.fetch_add(1, Relaxed);
        });
        let month = Timer::once(&shard, 30 * DAY, 30 * DAY, || ());
        for n in 1..=13 * DAY / PERIOD {
            assert_eq!(shard.next_deadline(), n * PERIOD);
            assert_eq!(turn(&shard, n * PERIOD - 1), 0);
            assert_eq!(turn(&shard, n * PERIOD), 1);
        }
        assert_eq!(ran.load(Relaxed), 13 * DAY / PERIOD);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(turn(&shard, 30 * DAY - 1), 0);
        assert_eq!(turn(&shard, 30 * DAY), 1);
        assert_eq!(month.status(), Status::Over(Outcome::Fired));
        drop(shard.close());
    }
}

/// Thousands of far timers are cancelled by another thread. None of them wakes the owner later.
#[test]
fn far_timers_that_are_cancelled_are_swept() {
    for store in StoreKind::ALL {
        let shard = Scripted::shard_with(false, store);
        for horizon in HORIZONS {
            let now = horizon - horizon.min(MS);
            let timers: Vec<_> = (0..2_000_u64)
                .map(|i| {
                    let at = horizon.saturating_add(i * 7 % 1_000);
                    Timer::once(&shard, at, at - now, || unreachable!("cancelled"))
                })
                .collect();
            // The inbox is read in parts.
            while shard.has_updates() {
                assert_eq!(turn(&shard, now.min(horizon - 1)), 0);
            }
            assert_eq!(shard.stored(), 2_000);
            for timer in &timers {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
            while shard.has_updates() {
                assert_eq!(turn(&shard, u64::MAX), 0);
            }
            assert_eq!(shard.stored(), 0, "at {horizon}");
            assert_eq!(shard.next_deadline(), NEVER);
        }
        assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Fired), 0);
        drop(shard.close());
    }
}

/// The machine was suspended for decades. All timers are due at once and run once, and recurring
/// timers skip the rest.
#[test]
fn a_clock_that_jumps_by_decades_fires_each_timer_once() {
    each(|shard, _| {
        for jump in [YEAR, 30 * YEAR, NEVER - YEAR] {
            let ran = Arc::new(AtomicU64::new(0));
            let count = |ran: &Arc<AtomicU64>| {
                let ran = ran.clone();
                move || _ = ran.fetch_add(1, Relaxed)
            };
            let timers: Vec<_> = (0..500)
                .map(|i| Timer::once(shard, i * 13 * DAY % jump, DAY, count(&ran)))
                .collect();
            let every = Timer::recurring(shard, MS, MS, count(&ran));
            let mut all = 0;
            while all < 501 {
                let due = expire(shard, jump, usize::MAX);
                assert!(!due.is_empty(), "{all} of them came");
                all += due.len();
                due.into_iter().for_each(|due| _ = due.run(|| jump));
            }
            assert_eq!((all, ran.load(Relaxed)), (501, 501));
            assert!(
                timers
                    .iter()
                    .all(|timer| timer.status() == Status::Over(Outcome::Fired))
            );
            assert_eq!(every.deadline(), Some(jump / MS * MS + MS), "on its grid");
            assert_eq!(every.cancel(), Cancel::Cancelled);
            turn(shard, jump);
        }
    });
}
