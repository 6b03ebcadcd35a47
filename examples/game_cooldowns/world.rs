//! What the callbacks write down: when each cooldown ended.

use std::{
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use tourbillon::time::Instant;

/// One ability's place.
#[derive(Default)]
struct Cell {
    /// How many cooldowns of it have ended.
    ends: AtomicU32,
    /// When the last of them did, in ns of the game.
    last: AtomicU64,
}

/// All abilities of all players.
pub struct World {
    start: Instant,
    cells: Box<[Cell]>,
}

impl World {
    /// Begins now.
    pub fn new(abilities: usize) -> Self {
        Self {
            start: Instant::now(),
            cells: (0..abilities).map(|_| Cell::default()).collect(),
        }
    }

    /// The time of the game, in ns.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("no game takes centuries")
    }

    /// The moment at a time of the game.
    pub fn at(&self, ns: u64) -> Instant {
        self.start + Duration::from_nanos(ns)
    }

    /// A cooldown has ended: what its timer calls.
    pub fn ended(&self, ability: usize) {
        let cell = &self.cells[ability];
        cell.last.store(self.now(), Relaxed);
        // Who sees the count sees the time.
        cell.ends.fetch_add(1, Release);
    }

    /// How many cooldowns of an ability have ended, and when the last did.
    pub fn ends(&self, ability: usize) -> (u32, u64) {
        let cell = &self.cells[ability];
        let ends = cell.ends.load(Acquire);
        (ends, cell.last.load(Relaxed))
    }
}
