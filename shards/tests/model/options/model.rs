//! A timer of a program beside its model, and the callback of the real timer.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tourbillon_model as model;
use tourbillon_shards::{Cancel, Flow, Kind, NEVER, Outcome, Reset, Timer, Tolerance};

use super::{Plan, Script};
use crate::common::{Calls, Scripted};

pub struct Model {
    pub plan: Plan,
    pub model: model::Timer,
    pub held: bool,
    pub alive: Arc<AtomicBool>,
    pub told: Vec<Outcome>,
    pub calls: Calls,
    pub timer: Option<Arc<Timer<Scripted>>>,
}

impl Model {
    pub fn kind(&self) -> Kind {
        if self.plan.recurring {
            Kind::Recurring
        } else {
            Kind::Once
        }
    }

    pub fn is_dead(&self) -> bool {
        !self.alive.load(Ordering::Relaxed)
    }

    /// Returns when the timer wakes the owner: at the roundest moment of its window.
    pub fn key(&self, at: u64) -> u64 {
        let tolerance = Tolerance::new(self.plan.tolerance).ns();
        let unit = if tolerance < 15_625 { 1_u128 } else { 15_625 };
        let last = at.saturating_add(tolerance).min(NEVER - 1);
        if at == 0 || at >= last {
            return at;
        }
        let roundest = |bit| u128::from(at).next_multiple_of(unit << bit);
        let mut moments = (0..64_u32).rev().map(roundest);
        let found = moments.find(|&moment| moment <= u128::from(last));
        found.map_or(last, |moment| moment as u64)
    }

    /// Returns what adds the jitter that is drawn for a deadline.
    pub fn jitter(&self, random: u64) -> impl FnMut(u64) -> u64 + use<> {
        let jitter = u128::from(self.plan.jitter);
        move |at| {
            let modulus = (jitter + 1).min(u128::from(u64::MAX));
            let drawn = (u128::from(random) % modulus) as u64;
            at.saturating_add(drawn).min(NEVER - 1)
        }
    }
}

/// Returns a callback that acts on its own timer, which the test puts into the cell.
pub fn callback(
    plan: &Plan,
    calls: &Calls,
    clock: &Arc<AtomicU64>,
    cell: &Arc<Mutex<Weak<Timer<Scripted>>>>,
) -> impl FnMut(Outcome) -> Flow + Send + 'static {
    let (script, recurring) = (plan.script, plan.recurring);
    let (clock, cell) = (clock.clone(), cell.clone());
    let mut log = calls.callback();
    move |how| {
        let _ = log(how);
        if how != Outcome::Fired {
            return Flow::Continue(());
        }
        let own = cell.lock().unwrap().upgrade();
        match (script, own) {
            (Script::End(how), _) => return Flow::Break(how),
            (Script::Panic, _) => resume_unwind(Box::new("as planned")),
            (Script::Cancel, Some(own)) => {
                let expected = [Cancel::Running, Cancel::AfterRun][usize::from(recurring)];
                assert_eq!(own.cancel(), expected);
            }
            (Script::MoveTo(span), Some(own)) => {
                let at = clock.load(Ordering::Relaxed).saturating_add(span);
                let expected = [Reset::TooLate, Reset::AfterRun][usize::from(recurring)];
                assert_eq!(own.reset_at(at), expected);
            }
            _ => {}
        }
        Flow::Continue(())
    }
}
