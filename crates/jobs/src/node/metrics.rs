//! What a node counts for each queue and kind, and of what it asks its store.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Cause, Failure, NodeStats, failure::Then, health::StoreMetrics, held, histogram::Histogram,
    stats::Counters,
};

/// Of how many kinds without a handler of their own the attempts are counted apart, in all queues
/// together. Names of kinds may come from anybody, and each costs memory here and in whatever
/// collects the metrics.
const MOST_OTHERS: usize = 100;

/// What a node did since it started, in more detail than [`NodeStats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The node as a whole.
    pub total: NodeStats,
    /// By queue and kind, in the order of their names.
    ///
    /// Each kind of which the node has a handler has an entry in each of its queues, from the start
    /// on. Of the others, which [`on_other`](super::NodeBuilder::on_other) runs, the first 100 have
    /// one as soon as an attempt has begun, and so have jobs without a kind. All further ones share
    /// one in each queue, whose [`kind`](KindMetrics::kind) is `None`.
    pub kinds: Vec<KindMetrics>,
    /// What the node asks its store for.
    pub store: StoreMetrics,
}

/// What a node did with the jobs of one kind in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindMetrics {
    /// The name of the queue.
    pub queue: String,
    /// The kind, which is empty for jobs without one; `None` for all kinds that have no entry of
    /// their own.
    pub kind: Option<String>,
    /// Attempts whose handlers run.
    pub running: u64,
    /// Attempts that began.
    pub begun: u64,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed, for whatever reason.
    pub failed: u64,
    /// Of these, attempts whose handlers panicked.
    pub panicked: u64,
    /// Of these, attempts that took longer than they may.
    pub timed_out: u64,
    /// Attempts that snoozed.
    pub snoozed: u64,
    /// Jobs that died here, unless the store refused the end.
    pub dead: u64,
    /// Attempts whose end the store refused, as the token was stale.
    pub stale: u64,
    /// How long after its time each attempt began, from the moment for which it was planned to the
    /// first step of its handler, by the store's clock.
    pub lateness: Histogram,
    /// How long each handler took, from its first step to its end.
    pub duration: Histogram,
}

/// The counters of a queue and a kind.
pub(super) struct Kind(Mutex<KindMetrics>);

impl Kind {
    fn new(queue: &str, kind: Option<&str>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(KindMetrics {
            queue: queue.to_owned(),
            kind: kind.map(str::to_owned),
            ..KindMetrics::default()
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, KindMetrics> {
        // Nothing that panics runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the end of a handler.
    fn end(&self, result: &Result<(), Failure>, duration: Option<Duration>) {
        let mut kind = self.lock();
        let Err(failure) = result else {
            kind.done += 1;
            kind.duration.record(duration.unwrap_or_default());
            return;
        };
        if let Some(duration) = duration {
            kind.duration.record(duration);
        }
        if let Then::Snooze(_) = failure.then {
            kind.snoozed += 1;
            return;
        }
        kind.failed += 1;
        match failure.cause {
            Cause::Panic => kind.panicked += 1,
            Cause::TimeLimit => kind.timed_out += 1,
            _ => {}
        }
    }
}

/// An attempt that has begun, and whose handler has not ended. It runs until this is dropped, also
/// if the end of the user's runtime drops it.
pub(super) struct InHandler(Arc<Kind>);

impl InHandler {
    pub(super) fn new(kind: Arc<Kind>) -> Self {
        let mut counters = kind.lock();
        counters.begun += 1;
        counters.running += 1;
        drop(counters);
        Self(kind)
    }

    /// Counts the end of the handler.
    pub(super) fn end(self, result: &Result<(), Failure>, duration: Option<Duration>) {
        self.0.end(result, duration);
    }
}

impl Drop for InHandler {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

/// An attempt whose handler is about to begin.
pub(super) struct Planned {
    kind: Arc<Kind>,
    /// How late it is already.
    late: Duration,
    since: Instant,
}

impl Planned {
    pub(super) fn new(kind: Arc<Kind>, late: Duration) -> Self {
        Self {
            kind,
            late,
            since: Instant::now(),
        }
    }

    /// Records how late the handler begins.
    pub(super) fn begins(self) {
        let late = self.late.saturating_add(self.since.elapsed());
        self.kind.lock().lateness.record(late);
    }
}

/// The counters of a queue.
#[derive(Default)]
struct OfQueue {
    kinds: BTreeMap<String, Arc<Kind>>,
    /// Those of the kinds that have none of their own.
    rest: Option<Arc<Kind>>,
}

#[derive(Default)]
struct Inner {
    queues: BTreeMap<String, OfQueue>,
    /// How many entries there are of kinds that have no handler of their own.
    others: usize,
}

/// The counters of all queues and kinds.
#[derive(Default)]
pub(super) struct ByKind(Mutex<Inner>);

impl ByKind {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that panics runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of a queue and a kind. `is_own` tells whether the kind has a handler of
    /// its own.
    pub(super) fn get(&self, queue: &str, kind: &str, is_own: bool) -> Arc<Kind> {
        let inner = &mut *self.lock();
        let of_queue = match inner.queues.get_mut(queue) {
            Some(of_queue) => of_queue,
            None => inner.queues.entry(queue.to_owned()).or_default(),
        };
        if let Some(found) = of_queue.kinds.get(kind) {
            return found.clone();
        }
        // Jobs without a kind are one entry, which no name from outside makes more.
        let is_other = !is_own && !kind.is_empty();
        if is_other && inner.others >= MOST_OTHERS {
            let rest = &mut of_queue.rest;
            return rest.get_or_insert_with(|| Kind::new(queue, None)).clone();
        }
        inner.others += usize::from(is_other);
        let new = Kind::new(queue, Some(kind));
        of_queue.kinds.insert(kind.to_owned(), new.clone());
        new
    }

    fn read(&self) -> Vec<KindMetrics> {
        let inner = self.lock();
        let all = inner.queues.values();
        let all = all.flat_map(|of_queue| of_queue.kinds.values().chain(&of_queue.rest));
        all.map(|kind| kind.lock().clone()).collect()
    }
}

/// Reads the metrics of a node, also after the node has ended.
///
/// Clones read those of the same node. They keep neither the node nor its store.
#[derive(Clone)]
pub struct MetricsReader {
    pub(super) counters: Arc<Counters>,
    pub(super) held: held::Table,
}

impl fmt::Debug for MetricsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsReader").finish_non_exhaustive()
    }
}

impl MetricsReader {
    /// Returns what the node did since it started.
    pub fn read(&self) -> NodeMetrics {
        NodeMetrics {
            total: self.counters.read(self.held.len()),
            kinds: self.counters.kinds.read(),
            store: self.counters.health.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_is_dropped_runs_no_more() {
        let kinds = ByKind::default();
        let running = InHandler::new(kinds.get("queue", "kind", true));
        assert_eq!(kinds.read()[0].running, 1);
        drop(running);
        let kind = &kinds.read()[0];
        assert_eq!((kind.begun, kind.running, kind.done), (1, 0, 0));
    }

    #[test]
    fn the_number_of_entries_has_a_bound() {
        let kinds = ByKind::default();
        for number in 0..MOST_OTHERS {
            kinds
                .get("a", &format!("other-{number}"), false)
                .lock()
                .begun += 1;
        }
        // Further ones share an entry, and neither those that are known nor kinds with a handler.
        for (queue, kind, is_own) in [
            ("a", "more", false),
            ("a", "and more", false),
            ("b", "more", false),
            ("a", "other-7", false),
            ("a", "own", true),
            ("b", "own", true),
            ("a", "", false),
        ] {
            kinds.get(queue, kind, is_own).lock().begun += 1;
        }
        let read = kinds.read();
        assert_eq!(read.len(), MOST_OTHERS + 5);
        let begun = |queue: &str, kind: Option<&str>| {
            let mut of_kind = read
                .iter()
                .filter(|it| it.queue == queue && it.kind.as_deref() == kind);
            let begun = of_kind.next().map(|it| it.begun);
            assert_eq!(of_kind.next(), None);
            begun
        };
        assert_eq!((begun("a", None), begun("b", None)), (Some(2), Some(1)));
        assert_eq!(begun("a", Some("other-7")), Some(2));
        assert_eq!(begun("a", Some("own")), Some(1));
        assert_eq!(begun("a", Some("")), Some(1));
        assert_eq!(begun("b", Some("own")), Some(1));
        assert_eq!(begun("a", Some("more")), None);
    }
}
