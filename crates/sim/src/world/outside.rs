//! The calls of hosts that the real system has answered.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{IS_INSIDE, State, WORLD, World, die_with, me};
use crate::calls;

/// How many different ones are kept.
const KEPT: usize = 100;
/// How many of them a report names.
const NAMED: usize = 6;
/// Says why a seed has failed that has not ended in time.
pub(crate) const LATE: &str = "it has not ended: it waits for something outside of the simulation";

/// The calls, and how often each was made. A thread that ends the run may have the lock of the
/// state.
static LEFT: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
/// The thread that has the baton.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Notes which thread has the baton.
pub(super) fn set_runs(thread: usize) {
    RUNS.store(thread, Ordering::Relaxed);
}

/// Returns the calls so far, and how often each was made.
pub(crate) fn left() -> BTreeMap<String, u64> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Names calls that left the simulation, in one line. Empty if there are none.
pub(crate) fn line(left: &BTreeMap<String, u64>) -> String {
    if left.is_empty() {
        return String::new();
    }
    let named = left.iter().take(NAMED).map(|(call, count)| match count {
        1 => call.clone(),
        _ => format!("{call} ({count} times)"),
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if left.len() > NAMED {
        text += &format!(" and at least {} more", left.len() - NAMED);
    }
    format!("These calls left the simulation: {text}\n")
}

/// Has the calling thread make no further call of the simulation.
pub(crate) fn stay_inside() {
    IS_INSIDE.set(true);
}

/// Ends the process, which has not ended in time. Says which thread has the baton, its last call of
/// the real system, and where it is.
pub(crate) fn end_late(seconds: u32) -> ! {
    let why = format!("after {seconds} s {LATE}");
    let runs = RUNS.load(Ordering::Relaxed);
    let known = WORLD.get().and_then(|World(state)| {
        let state = state.try_lock().ok()?;
        let thread = &state.threads[runs];
        Some((state.place_of(runs), thread.system_id, state.dump()))
    });
    let Some((name, id, dump)) = known else {
        die_with(&why, "");
    };
    let call = calls::last_real().map_or(String::new(), |call| {
        format!(" The last call that the real system answered is {call}.")
    });
    let place = match calls::backtrace(id) {
        Some(functions) => format!("It is here:\n{functions}"),
        None => "It does not say where it is.".into(),
    };
    die_with(&format!("{why}\n{name} has the core.{call} {place}"), &dump)
}

impl State {
    /// Notes a call of the calling thread, if that is one of a host.
    pub(crate) fn leaves(&self, call: &str) {
        let host = self.host();
        if host == 0 {
            return;
        }
        self.note(|| format!("calls {call} of the real system"));
        let text = format!("{call} by {}", self.hosts[host].name).replace('\n', " ");
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < KEPT || left.contains_key(&text) {
            *left.entry(text).or_default() += 1;
        }
    }

    /// Returns the name of the calling thread, with that of its host.
    pub(crate) fn caller(&self) -> String {
        me().map_or(String::new(), |me| self.place_of(me))
    }
}
