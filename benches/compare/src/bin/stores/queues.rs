//! The data structures under comparison, behind one trait.
//!
//! Ids name the timers. They are dense numbers from 0 on. Some structures need a handle to find a
//! timer again. An array keeps these handles by id, as the node of a timer would.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    future::poll_fn,
    hint::black_box,
    time::Duration,
};

use hierarchical_hash_wheel_timer::{
    IdOnlyTimerEntry,
    wheels::{Skip, cancellable::QuadWheelWithOverflow},
};
use orx_priority_queue::{PriorityQueue, PriorityQueueDecKey, QuaternaryHeapOfIndices};
use tokio::{runtime::Runtime, task::unconstrained, time::Instant};
use tokio_util::time::{DelayQueue, delay_queue};
use tourbillon_shards::store::Store;

/// A store that this program measures. Keys are deadlines in ns.
pub trait Queue {
    /// Returns an empty store for ids below `most`. It reserves no memory for timers, unless it
    /// cannot grow.
    fn new(most: usize) -> Self;
    /// Inserts a timer. Its id must not be in the store.
    fn insert(&mut self, id: u32, key: u64);
    /// Moves a timer to another deadline. Its id must be in the store.
    fn refresh(&mut self, id: u32, key: u64);
    /// Removes a timer. Its id must be in the store.
    fn cancel(&mut self, id: u32);
    /// Removes the timer with the earliest deadline, and returns its id and its deadline.
    ///
    /// Returns `None` if the store is empty. Stores that have only `fire` always return `None`.
    fn pop(&mut self) -> Option<(u32, u64)>;
    /// Removes all timers in the order of their deadlines, and returns their number. `_expected`
    /// is the number of timers that were not cancelled.
    fn fire(&mut self, _expected: usize) -> usize {
        let mut fired = 0;
        while let Some(timer) = self.pop() {
            black_box(timer);
            fired += 1;
        }
        fired
    }
}

/// One of our stores.
///
/// The store itself chooses the slot of each entry. This program inserts the ids in ascending
/// order, before it removes anything. So each slot equals its id.
pub struct Ours<S>(S);

/// Stores `value` at index `at` of `table`. Extends the table with defaults if it is too short.
fn set<T: Clone + Default>(table: &mut Vec<T>, at: u32, value: T) {
    let at = at as usize;
    if at >= table.len() {
        table.resize(at + 1, T::default());
    }
    table[at] = value;
}

impl<S: Store + Default> Queue for Ours<S> {
    fn new(_most: usize) -> Self {
        Self(S::default())
    }

    fn insert(&mut self, id: u32, key: u64) {
        let slot = self.0.insert(key);
        assert_eq!(slot, id, "slots are dense");
    }

    fn refresh(&mut self, id: u32, key: u64) {
        self.0.rekey(id, key);
    }

    fn cancel(&mut self, id: u32) {
        self.0.remove(id);
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        let (key, id) = self.0.pop_due(u64::MAX, |_| ())?;
        Some((id, key))
    }
}

/// The standard library's binary heap, with lazy removal.
///
/// A move or a cancellation leaves the timer's old entry in the heap, and increments the timer's
/// change number. An entry with an older change number is stale, and `pop` skips it.
pub struct Lazy {
    /// Deadline, id, and the timer's change number when the entry was pushed.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Current change number of each timer, by id.
    changes: Vec<u32>,
}

impl Queue for Lazy {
    fn new(_most: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            changes: Vec::new(),
        }
    }

    fn insert(&mut self, id: u32, key: u64) {
        set(&mut self.changes, id, 0);
        self.heap.push(Reverse((key, id, 0)));
    }

    fn refresh(&mut self, id: u32, key: u64) {
        let change = &mut self.changes[id as usize];
        *change += 1;
        self.heap.push(Reverse((key, id, *change)));
    }

    fn cancel(&mut self, id: u32) {
        self.changes[id as usize] += 1;
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        loop {
            let Reverse((key, id, change)) = self.heap.pop()?;
            if self.changes[id as usize] == change {
                return Some((id, key));
            }
        }
    }
}

/// The standard library's B-tree, keyed by deadline and id.
pub struct Tree {
    tree: BTreeMap<(u64, u32), ()>,
    /// Current deadline of each timer, by id.
    keys: Vec<u64>,
}

impl Queue for Tree {
    fn new(_most: usize) -> Self {
        Self {
            tree: BTreeMap::new(),
            keys: Vec::new(),
        }
    }

    fn insert(&mut self, id: u32, key: u64) {
        set(&mut self.keys, id, key);
        self.tree.insert((key, id), ());
    }

    fn refresh(&mut self, id: u32, key: u64) {
        let old = std::mem::replace(&mut self.keys[id as usize], key);
        self.tree.remove(&(old, id));
        self.tree.insert((key, id), ());
    }

    fn cancel(&mut self, id: u32) {
        self.tree.remove(&(self.keys[id as usize], id));
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        let ((key, id), ()) = self.tree.pop_first()?;
        Some((id, key))
    }
}

/// `orx-priority-queue`'s indexed 4-ary heap. It cannot grow: it needs a bound of the ids at the
/// start.
pub struct Orx(QuaternaryHeapOfIndices<usize, u64>);

impl Queue for Orx {
    fn new(most: usize) -> Self {
        Self(QuaternaryHeapOfIndices::with_index_bound(most))
    }

    fn insert(&mut self, id: u32, key: u64) {
        self.0.push(id as usize, key);
    }

    fn refresh(&mut self, id: u32, key: u64) {
        self.0.update_key(&(id as usize), key);
    }

    fn cancel(&mut self, id: u32) {
        self.0.remove(&(id as usize));
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        let (id, key) = self.0.pop()?;
        Some((id as u32, key))
    }
}

/// tokio-util's `DelayQueue`, with a resolution of 1 ms.
///
/// It uses tokio's clock, which is paused here. When the runtime has nothing else to do, tokio
/// advances the clock to the next timer.
pub struct Delays {
    queue: DelayQueue<u32>,
    /// The queue's handle of each timer, by id. `None` after a cancellation.
    keys: Vec<Option<delay_queue::Key>>,
    runtime: &'static Runtime,
    /// The instant at which keys count as 0.
    start: Instant,
}

impl Queue for Delays {
    fn new(_most: usize) -> Self {
        let runtime = runtime();
        let _inside = runtime.enter();
        Self {
            queue: DelayQueue::new(),
            keys: Vec::new(),
            runtime,
            start: Instant::now(),
        }
    }

    fn insert(&mut self, id: u32, key: u64) {
        let at = self.start + Duration::from_nanos(key);
        let handle = self.queue.insert_at(id, at);
        set(&mut self.keys, id, Some(handle));
    }

    fn refresh(&mut self, id: u32, key: u64) {
        let at = self.start + Duration::from_nanos(key);
        let handle = self.keys[id as usize].as_ref().expect("it is there");
        self.queue.reset_at(handle, at);
    }

    fn cancel(&mut self, id: u32) {
        let handle = self.keys[id as usize].take().expect("it is there");
        self.queue.remove(&handle);
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        None
    }

    fn fire(&mut self, _expected: usize) -> usize {
        let queue = &mut self.queue;
        // Without `unconstrained`, tokio's budget would interrupt the loop from time to time.
        self.runtime.block_on(unconstrained(async {
            let mut fired = 0;
            while let Some(expired) = poll_fn(|cx| queue.poll_expired(cx)).await {
                black_box(expired.into_inner());
                fired += 1;
            }
            fired
        }))
    }
}

/// Returns the runtime of all [`Delays`]. Its clock is paused.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: std::sync::OnceLock<Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        builder.build().expect("a runtime")
    })
}

/// `hierarchical_hash_wheel_timer`'s cancellable wheel. A tick stands for 1 ms here.
///
/// The entry of a cancelled timer stays in the wheel until its tick.
pub struct Ticks {
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u32>>,
}

impl Ticks {
    /// Adds an entry to the wheel.
    fn arm(&mut self, id: u32, key: u64) {
        // Round up, so that the timer does not fire early. The wheel is at tick 0 until `fire`,
        // so the key is also the delay.
        let delay = Duration::from_millis(key.div_ceil(1_000_000));
        let armed = self.wheel.insert(IdOnlyTimerEntry { id, delay });
        assert!(armed.is_ok(), "it is not due");
    }
}

impl Queue for Ticks {
    fn new(_most: usize) -> Self {
        Self {
            wheel: QuadWheelWithOverflow::new(),
        }
    }

    fn insert(&mut self, id: u32, key: u64) {
        self.arm(id, key);
    }

    fn refresh(&mut self, id: u32, key: u64) {
        // The wheel cannot move an entry.
        self.cancel(id);
        self.arm(id, key);
    }

    fn cancel(&mut self, id: u32) {
        assert!(self.wheel.cancel(&id).is_ok(), "it is there");
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        None
    }

    fn fire(&mut self, expected: usize) -> usize {
        let mut fired = 0;
        // Stop after the last live timer. Only the entries of cancelled timers may remain then.
        while fired < expected {
            match self.wheel.can_skip() {
                Skip::Empty => break,
                Skip::Millis(ticks) => self.wheel.skip(ticks),
                Skip::None => {
                    for entry in self.wheel.tick() {
                        black_box(entry.id);
                        fired += 1;
                    }
                }
            }
        }
        fired
    }
}
