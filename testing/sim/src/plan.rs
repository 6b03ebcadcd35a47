//! The plan of a seed: how the runtime is built, what the program does, and which faults occur.

use std::time::Duration;

use tourbillon::runtime::{Builder, StoreKind};
use tourbillon_sim::raw as sim;

/// How the runtime ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After all operations are done and checked.
    Quiet,
    /// After this many ns, in the middle of all operations.
    Drop(u64),
    Timeout(u64),
    Graceful(u64),
    Background(u64),
}

/// The subject of a seed's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Timers of all kinds, held to a bound of lateness.
    Timers,
    /// Tasks that block, spawn, abort and talk, on all workers at once.
    Work,
    /// The paused clock.
    Paused,
}

impl Scene {
    /// Returns the scene of a seed. Half of the seeds are about timers.
    fn of(seed: u64) -> Self {
        match seed % 4 {
            1 => Scene::Work,
            3 => Scene::Paused,
            _ => Scene::Timers,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub scene: Scene,
    pub world: sim::Plan,
    pub workers: usize,
    /// Whether the one worker is the thread in `block_on`.
    pub is_current_thread: bool,
    pub helpers: (usize, usize),
    pub store: StoreKind,
    /// `None` if no peer rescues a stuck worker.
    pub latency: Option<Duration>,
    pub spin_before: Duration,
    pub event_interval: u32,
    pub global_queue_interval: u32,
    pub keep_alive: Duration,
    pub max_timers: Option<usize>,
    /// Whether some of the tasks are in groups.
    pub groups: bool,
    /// Whether the number of workers that take part is changed by hand.
    pub limits: bool,
    /// Whether it follows what the simulated system allows, which changes at random.
    pub follows: bool,
    /// How many outside threads there are, and how many operations each of them does.
    pub actors: u32,
    pub acts: u32,
    /// For how many ns they do operations.
    pub horizon: u64,
    /// Chances in 1,000.
    pub blocks: u32,
    pub panics: u32,
    /// For how many ns a blocking callback blocks.
    pub block_ns: (u64, u64),
    /// Whether there are timers on the wall clock and the boot clock.
    pub clocks: bool,
    /// The kinds of operations, one bit each.
    pub kinds: u32,
    pub end: End,
}

const MS: u64 = 1_000_000;

impl Plan {
    /// Returns the plan of a seed. If `workers` is given, it replaces the seed's number of
    /// workers.
    pub fn of(seed: u64, workers: Option<usize>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 77);
        let mut plan = Self::of_timers(&mut rng, workers);
        plan.scene = Scene::of(seed);
        plan.groups = (seed / 4).is_multiple_of(4);
        plan.limits = (seed / 16).is_multiple_of(3) && plan.workers > 1;
        plan.follows = (seed / 32).is_multiple_of(3);
        if plan.scene != Scene::Timers {
            plan.share(&mut rng);
        }
        plan
    }

    /// Changes the plan into one of many short programs whose jobs block often.
    fn share(&mut self, rng: &mut fastrand::Rng) {
        // Refuse no thread: a job in `block_in_place` may wait for a task that only a helper can
        // run.
        self.world.refuse = 0;
        (self.panics, self.max_timers) = (0, None);
        if self.scene == Scene::Paused {
            // On a paused clock no later wake-up makes up for one that was lost.
            self.world.drop = 0;
            self.is_current_thread = self.workers == 1 && rng.bool();
        }
        self.actors = rng.u32(1..=2);
        self.acts = rng.u32(2..=12);
        self.horizon = rng.u64(1..40) * MS;
        // Without rescues a wake-up that is missing is seen at once.
        self.latency = [
            None,
            None,
            Some(Duration::from_millis(1)),
            Some(Duration::from_millis(4)),
        ][rng.usize(..4)];
        // A worker that spins until a deadline steals without being counted as a searcher.
        self.spin_before = Duration::from_micros([0, 0, 5, 200][rng.usize(..4)]);
        self.blocks = [20, 100, 400][rng.usize(..3)];
        self.block_ns = (50_000, 8 * MS);
        let when = rng.u64(..self.horizon);
        self.end = match self.end {
            End::Quiet => End::Quiet,
            End::Drop(_) => End::Drop(when),
            End::Timeout(_) => End::Timeout(when),
            End::Graceful(_) => End::Graceful(when),
            End::Background(_) => End::Background(when),
        };
    }

    /// Returns a plan of timers.
    fn of_timers(rng: &mut fastrand::Rng, workers: Option<usize>) -> Self {
        let style = match rng.u32(..4) {
            0 => sim::Style::Uniform(rng.u16(50..20_000)),
            1 => sim::Style::Uniform(rng.u16(50..1_000)),
            2 => sim::Style::Bursts {
                often: rng.u16(4_000..30_000),
                length: rng.u32(100..5_000),
            },
            _ => sim::Style::Priorities(rng.u16(2..400)),
        };
        // Some seeds have no faults, most have few, some have all kinds.
        let level = rng.u32(..8);
        let few = |rng: &mut fastrand::Rng, most: u32| match level {
            0 => 0,
            7 => rng.u32(1..=most),
            _ if rng.u32(..5) == 0 => rng.u32(1..=most),
            _ => 0,
        };
        let clocks = rng.u32(..3) == 0;
        let mut world = sim::Plan {
            style,
            point_ns: rng.u64(5..=60),
            late_ns: [0, 0, 2_000, 60_000][rng.usize(..4)],
            ..sim::Plan::default()
        };
        world.drop = few(rng, 100_000);
        world.delay = few(rng, 100_000);
        world.double = few(rng, 100_000);
        world.spurious = few(rng, 2_000);
        world.interrupt = few(rng, 200_000);
        world.freeze = few(rng, 1_000);
        world.freeze_ns = [20_000, MS, 10 * MS, 100 * MS][rng.usize(..4)];
        world.pause = few(rng, 50);
        world.refuse = few(rng, 500_000);
        world.weak = few(rng, 200_000);
        if clocks {
            world.suspend = few(rng, 100);
            world.wall_step = few(rng, 200);
        }
        let blocks = if rng.u32(..2) == 0 { few(rng, 100) } else { 0 };
        let blocks = if level == 0 && rng.bool() { 40 } else { blocks };
        let horizon = rng.u64(20..400) * MS;
        let when = rng.u64(..horizon);
        Self {
            scene: Scene::Timers,
            world,
            workers: workers.unwrap_or_else(|| rng.usize(1..=4)),
            is_current_thread: false,
            helpers: [(0, 0), (0, 0), (0, 1), (0, 2), (1, 2)][rng.usize(..5)],
            store: StoreKind::ALL[rng.usize(..StoreKind::ALL.len())],
            latency: [
                None,
                Some(Duration::from_micros(200)),
                Some(Duration::from_millis(1)),
                Some(Duration::from_millis(1)),
            ][rng.usize(..4)],
            spin_before: Duration::from_micros([0, 0, 0, 5][rng.usize(..4)]),
            event_interval: [1, 2, 7, 61][rng.usize(..4)],
            global_queue_interval: [1, 3, 31][rng.usize(..3)],
            keep_alive: Duration::from_millis([0, 5, 50, 10_000][rng.usize(..4)]),
            max_timers: (rng.u32(..8) == 0).then(|| rng.usize(1..20)),
            actors: rng.u32(1..=3),
            acts: rng.u32(5..=40),
            horizon,
            blocks,
            panics: few(rng, 60),
            block_ns: if rng.bool() {
                (25 * MS, 60 * MS)
            } else {
                (MS, 50 * MS)
            },
            clocks,
            groups: false,
            limits: false,
            follows: false,
            kinds: rng.u32(..) | rng.u32(..),
            end: match rng.u32(..10) {
                0 | 1 => End::Drop(when),
                2 => End::Timeout(when),
                3 => End::Graceful(when),
                4 => End::Background(when),
                _ => End::Quiet,
            },
        }
    }

    pub fn builder(&self) -> Builder {
        let mut builder = match self.is_current_thread {
            true => Builder::new_current_thread(),
            false => Builder::new(),
        };
        builder
            .worker_threads(self.workers)
            .follow_limits(self.follows)
            .pin(false)
            .helpers(self.helpers.0..=self.helpers.1)
            .timer_store(self.store)
            .rescue_latency(self.latency.unwrap_or(Duration::MAX))
            .spin_before(self.spin_before)
            .event_interval(self.event_interval)
            .global_queue_interval(self.global_queue_interval)
            .thread_keep_alive(self.keep_alive)
            .max_blocking_threads(2)
            .stall_threshold(Duration::from_millis(20));
        if self.acts.is_multiple_of(2) {
            // Each wake-up costs as much as the runtime may defer.
            builder.timer_budget(1e-9);
        }
        if let Some(most) = self.max_timers {
            builder.max_timers(most);
        }
        builder
    }

    /// Returns whether a peer can rescue a worker that blocks.
    pub fn is_rescued(&self) -> bool {
        self.latency.is_some() && (self.workers > 1 || self.helpers.1 > 0)
    }
}
