//! The times at which cooldowns ended, as recorded by the callbacks.

use std::{
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use tourbillon::time::Instant;

/// The record of one ability.
#[derive(Default)]
struct Cell {
    /// Number of its ended cooldowns.
    ends: AtomicU32,
    /// End of the last cooldown, in ns of the game.
    last: AtomicU64,
}

/// The records of all abilities of all players.
pub struct World {
    start: Instant,
    cells: Box<[Cell]>,
}

impl World {
    /// Creates the records. The game's time starts now.
    pub fn new(abilities: usize) -> Self {
        Self {
            start: Instant::now(),
            cells: (0..abilities).map(|_| Cell::default()).collect(),
        }
    }

    /// Returns the time of the game, in ns.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("no game takes centuries")
    }

    /// Converts a time of the game to an instant.
    pub fn at(&self, ns: u64) -> Instant {
        self.start + Duration::from_nanos(ns)
    }

    /// Records the end of a cooldown; the callback of each timer.
    pub fn ended(&self, ability: usize) {
        let cell = &self.cells[ability];
        cell.last.store(self.now(), Relaxed);
        // Release: a thread that reads the count also reads the time.
        cell.ends.fetch_add(1, Release);
    }

    /// Returns the number of ended cooldowns of an ability, and the end of the last one.
    pub fn ends(&self, ability: usize) -> (u32, u64) {
        let cell = &self.cells[ability];
        let ends = cell.ends.load(Acquire);
        (ends, cell.last.load(Relaxed))
    }
}
