//! The actions of a callback in a run, and the moves of a real timer.

use std::{
    panic::resume_unwind,
    sync::{
        Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tourbillon_shards::{Reset, Status, Timer};

use super::{Move, Script, world::World};
use crate::common::Scripted;

/// A move, as the real timer gets it.
pub enum Asked {
    At(u64),
    FromNow(u64, u64),
    FromStart(u64),
    Refresh(u64),
}

impl Asked {
    pub fn of(self, timer: &Timer<Scripted>) -> Reset {
        match self {
            Asked::At(at) => timer.reset_at(at),
            Asked::FromNow(now, wait) => timer.reset_after(now, wait),
            Asked::FromStart(wait) => timer.reset_from_start(wait),
            Asked::Refresh(now) => timer.refresh(now),
        }
    }
}

/// The state of a running callback: its handle, and its script.
pub struct Desk {
    pub id: usize,
    pub script: Mutex<Option<Script>>,
    pub timer: Mutex<Weak<Timer<Scripted>>>,
    pub world: Weak<Mutex<World>>,
    pub runs: AtomicUsize,
}

impl Desk {
    pub fn run(&self) {
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
        if let Script::MoveAndCancel(to) = script {
            // Again, when it has its next deadline.
            self.shift(&timer, to);
            self.expect_running(&timer);
        }
        if let Script::Cancel | Script::MoveAndCancel(_) = script {
            self.cancel(&timer);
            self.expect_running(&timer);
            // Both come too late now.
            self.shift(&timer, Move::Refresh);
            self.cancel(&timer);
        }
    }

    pub fn with_world<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        let world = self.world.upgrade().expect("the world outlives its timers");
        f(&mut world.lock().unwrap())
    }

    pub fn cancel(&self, timer: &Timer<Scripted>) {
        let expected = self.with_world(|world| world.cancel(self.id));
        assert_eq!(timer.cancel(), expected);
    }

    pub fn shift(&self, timer: &Timer<Scripted>, to: Move) {
        if let Some((expected, asked)) = self.with_world(|world| world.plan(self.id, to)) {
            assert_eq!(asked.of(timer), expected);
        }
    }

    pub fn expect_running(&self, timer: &Timer<Scripted>) {
        let (status, deadline) = self.with_world(|world| {
            let model = &world.timers[self.id].model;
            (model.status(), model.deadline())
        });
        assert!(matches!(status, Status::Running { .. }));
        assert_eq!(timer.status(), status);
        assert_eq!(timer.deadline(), deadline);
    }
}
