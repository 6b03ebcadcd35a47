//! The structures that are compared, under one trait.
//!
//! Timers are known by their ids, dense small numbers; what a structure needs to find one again is kept in
//! an array by id, as a timer's node would keep it.

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

/// A store that is measured.
pub trait Queue {
    /// Empty, with room for nothing yet, unless it cannot grow.
    fn new(most: usize) -> Self;
    /// `id` is not there.
    fn insert(&mut self, id: u32, key: u64);
    /// `id` is there.
    fn refresh(&mut self, id: u32, key: u64);
    /// `id` is there.
    fn cancel(&mut self, id: u32);
    /// Takes out the next, and answers its id and its deadline; `None` where that is done in batches.
    fn pop(&mut self) -> Option<(u32, u64)>;
    /// Takes out all that is left, in the order of the deadlines, and answers how many that were.
    fn fire(&mut self, _expected: usize) -> usize {
        let mut fired = 0;
        while let Some(timer) = self.pop() {
            black_box(timer);
            fired += 1;
        }
        fired
    }
}

/// One of our stores. Slots are its own choice; they are dense, so that they are the ids here, where each
/// id is inserted once and in its turn.
pub struct Ours<S>(S);

/// The value at an index at which there may be none yet.
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

/// A binary heap that forgets nothing: what was moved or cancelled is skipped when its turn comes, if the
/// number of its last change is not that of the entry.
pub struct Lazy {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
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

/// `orx-priority-queue`'s indexed heap of four children. Its ids are bounded beforehand.
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

/// tokio-util's `DelayQueue`: milliseconds. Its time is tokio's, which is paused, and goes on by itself to
/// the next timer when there is nothing to do.
pub struct Delays {
    queue: DelayQueue<u32>,
    keys: Vec<Option<delay_queue::Key>>,
    runtime: &'static Runtime,
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

/// The runtime of all [`Delays`], whose time stands still.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: std::sync::OnceLock<Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        builder.build().expect("a runtime")
    })
}

/// `hierarchical_hash_wheel_timer`'s cancellable wheel: ticks, of 1 ms here. Cancelled ones stay until
/// their time.
pub struct Ticks {
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u32>>,
}

impl Ticks {
    fn arm(&mut self, id: u32, key: u64) {
        // Not before it is due. Its time is zero until all fires.
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
