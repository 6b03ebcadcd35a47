//! `DelayQueue`: a collection whose values expire one by one.

use std::{
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tourbillon_shards::{
    NEVER,
    store::{Heap, Store},
};

use crate::{
    clock::{instant::Instant, runtime_clock::Epoch},
    time::sleep::{Sleep, sleep_until},
    util::budget,
};

/// A queue of values that each have a deadline. A value can be taken once its deadline has passed.
///
/// Use it for the expiry of cache keys or for the retries of a client, for example. Its names are
/// tokio-util's. One task owns the queue, and one timer serves it, for any number of values. Values
/// come out in the order of their deadlines, and never early. The order of values with equal
/// deadlines, or with deadlines before the queue was made, is unspecified.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::DelayQueue;
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut queue = DelayQueue::new();
/// let session = queue.insert("session", Duration::from_secs(60));
/// queue.insert("token", Duration::from_millis(2));
/// queue.insert("nonce", Duration::from_millis(1));
/// queue.reset(&session, Duration::from_millis(3));
///
/// let mut gone = Vec::new();
/// while let Some(expired) = queue.expired().await {
///     gone.push(expired.into_inner());
/// }
/// assert_eq!(gone, ["nonce", "token", "session"]);
/// # });
/// ```
pub struct DelayQueue<T> {
    epoch: Epoch,
    /// The deadline of each slot, in ns of `epoch`.
    store: Heap,
    /// The value in each slot.
    entries: Vec<Option<Entry<T>>>,
    /// The slots of the values that [`DelayQueue::compact`] moved, by generation.
    moved: HashMap<u64, u32>,
    /// The generation of the last value. It tells a value from other values in the same slot.
    generation: u64,
    /// Waits for the first deadline. `None` before the first poll, and while the queue is empty.
    sleep: Option<Sleep>,
    /// The waker of the task that waits, woken when the first deadline changes.
    waker: Option<Waker>,
}

struct Entry<T> {
    value: T,
    deadline: Instant,
    key: Key,
}

/// Identifies a value in a [`DelayQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The slot of the value when it was inserted.
    slot: u32,
    generation: u64,
}

/// A value that has come out of a [`DelayQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<T> {
    value: T,
    deadline: Instant,
    key: Key,
}

impl<T> Expired<T> {
    /// Returns a reference to the value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns a mutable reference to the value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns the value's deadline. It may be in the future if the value was removed.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the key that [`insert`](DelayQueue::insert) returned for the value. No value of the
    /// queue has it any more, so it serves only for comparison.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl<T> DelayQueue<T> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty queue with room for `capacity` values.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            epoch: Epoch::new(Instant::now()),
            store: Heap::new(),
            entries: Vec::with_capacity(capacity),
            moved: HashMap::new(),
            generation: 0,
            sleep: None,
            waker: None,
        }
    }

    /// Inserts a value that comes out `timeout` from now, and returns its key.
    ///
    /// A timeout of more than 73 years means never.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 2^31 values.
    pub fn insert(&mut self, value: T, timeout: Duration) -> Key {
        self.insert_at(value, Instant::now_for_deadline().saturating_add(timeout))
    }

    /// Inserts a value that comes out at `deadline`, or at once if that has passed, and returns its
    /// key.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 2^31 values.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        let first = self.store.first();
        let slot = self.store.insert(self.epoch.nanos(deadline));
        // Slots are used again. The generation tells the key of a former value from the new one.
        self.generation += 1;
        let generation = self.generation;
        let key = Key { slot, generation };
        let entry = Some(Entry {
            value,
            deadline,
            key,
        });
        // The store reuses slots, and adds a new one only at the end.
        match self.entries.get_mut(slot as usize) {
            Some(vacant) => *vacant = entry,
            None => self.entries.push(entry),
        }
        self.wake_if_changed(first);
        key
    }

    /// Removes a value before its deadline, and returns it.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out; see [`try_remove`](DelayQueue::try_remove).
    #[track_caller]
    pub fn remove(&mut self, key: &Key) -> Expired<T> {
        self.try_remove(key).expect("the value is not in the queue")
    }

    /// Removes a value before its deadline and returns it, or returns `None` if it has come out.
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        let slot = self.slot(key)?;
        let first = self.store.first();
        let expired = self.take(slot);
        self.wake_if_changed(first);
        Some(expired)
    }

    /// Changes a value's deadline to `timeout` from now.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out.
    #[track_caller]
    pub fn reset(&mut self, key: &Key, timeout: Duration) {
        self.reset_at(key, Instant::now_for_deadline().saturating_add(timeout));
    }

    /// Changes a value's deadline to `deadline`.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out.
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, deadline: Instant) {
        let nanos = self.epoch.nanos(deadline);
        let first = self.store.first();
        let slot = self.slot(key).expect("the value is not in the queue");
        // The exact deadline is kept beside the store, which counts in ns of the epoch.
        self.held(slot).deadline = deadline;
        self.store.rekey(slot, nanos);
        self.wake_if_changed(first);
    }

    /// Returns a value's deadline.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out.
    #[track_caller]
    pub fn deadline(&self, key: &Key) -> Instant {
        let slot = self.slot(key);
        let entry = slot.and_then(|slot| self.entries[slot as usize].as_ref());
        entry.expect("the value is not in the queue").deadline
    }

    /// Returns the key of the value that comes out next, or `None` if the queue is empty.
    pub fn peek(&self) -> Option<Key> {
        let (_, slot) = self.store.first()?;
        Some(self.entries[slot as usize].as_ref()?.key)
    }

    /// Waits for the next value to come out, and returns it, or `None` if the queue is empty.
    ///
    /// If the runtime is shut down meanwhile, this never ends: nothing wakes the task any more.
    ///
    /// # Cancel safety
    ///
    /// If this future is dropped before it is ready, no value is lost.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside of a runtime.
    pub async fn expired(&mut self) -> Option<Expired<T>> {
        poll_fn(|cx| self.poll_expired(cx)).await
    }

    /// Polls for the next value, as [`expired`](DelayQueue::expired) does, for futures that are
    /// written by hand.
    ///
    /// If the queue is empty it returns `Ready(None)`, and wakes the task when a value is inserted.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside of a runtime.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        loop {
            // Empty: the waker is kept, for a value that is inserted later.
            let Some((key, slot)) = self.store.first() else {
                self.sleep = None;
                self.keep(cx.waker());
                return Poll::Ready(None);
            };
            // The first value is due.
            if key != NEVER && key <= self.epoch.nanos(Instant::now()) {
                ready!(budget::check(cx));
                budget::spend();
                return Poll::Ready(Some(self.take(slot)));
            }
            // Wait for the first deadline. The sleep is kept between polls and follows that
            // deadline.
            let deadline = self.epoch.instant(key);
            let sleep = self.sleep.get_or_insert_with(|| sleep_until(deadline));
            if sleep.deadline() != deadline {
                sleep.set_deadline(deadline);
            }
            if Pin::new(sleep).poll(cx).is_pending() {
                self.keep(cx.waker());
                return Poll::Pending;
            }
            if !self.sleep.as_ref().is_some_and(Sleep::is_elapsed) {
                // The runtime of the sleep was shut down. If this thread is not in another one by
                // now, no value comes out, and nothing wakes the task.
                if self.sleep.as_mut().is_some_and(Sleep::goes_elsewhere) {
                    continue;
                }
                self.keep(cx.waker());
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }

    /// Removes all values and drops them.
    pub fn clear(&mut self) {
        let first = self.store.first();
        // Keep the generation, so that keys of removed values stay invalid.
        self.store = Heap::new();
        self.entries.clear();
        self.moved.clear();
        self.wake_if_changed(first);
    }

    /// Returns for how many values there is room, including those that are there.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Makes room for at least `additional` more values.
    ///
    /// ```
    /// use tourbillon::time::DelayQueue;
    ///
    /// let mut queue = DelayQueue::<&str>::new();
    /// queue.reserve(10);
    /// assert!(queue.capacity() >= 10);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the room would take more than `isize::MAX` bytes.
    pub fn reserve(&mut self, additional: usize) {
        // Values that came out have left slots for others.
        let vacant = self.entries.len() - self.len();
        self.entries.reserve(additional.saturating_sub(vacant));
    }

    /// Frees memory that was reserved and never used. See [`compact`](DelayQueue::compact) for the
    /// memory of values that have come out.
    pub fn shrink_to_fit(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Frees all memory that the present values do not need. It takes O(n log n).
    ///
    /// Keys stay valid. The queue remembers each value that it moves until that value comes out.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::time::DelayQueue;
    ///
    /// let mut queue = DelayQueue::new();
    /// let keys: Vec<_> = (0..10).map(|n| queue.insert(n, Duration::from_secs(n))).collect();
    /// keys[..9].iter().for_each(|key| _ = queue.remove(key));
    /// queue.compact();
    /// assert_eq!(queue.capacity(), 1);
    /// assert_eq!(queue.remove(&keys[9]).into_inner(), 9);
    /// ```
    pub fn compact(&mut self) {
        let entries = mem::replace(&mut self.entries, Vec::with_capacity(self.store.len()));
        self.store = Heap::new();
        self.moved = HashMap::new();
        // A new store counts its slots from 0.
        for entry in entries.into_iter().flatten() {
            let slot = self.store.insert(self.epoch.nanos(entry.deadline));
            if slot != entry.key.slot {
                self.moved.insert(entry.key.generation, slot);
            }
            self.entries.push(Some(entry));
        }
    }

    /// Returns the number of values, including due ones that have not been taken.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether the queue has no values.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Returns the slot of the value with this key, or `None` if the value has come out.
    fn slot(&self, key: &Key) -> Option<u32> {
        let is_at = |&slot: &u32| {
            let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| entry.key == *key)
        };
        let slot = Some(key.slot).filter(is_at);
        slot.or_else(|| self.moved.get(&key.generation).copied().filter(is_at))
    }

    fn held(&mut self, slot: u32) -> &mut Entry<T> {
        let entry = self.entries[slot as usize].as_mut();
        entry.expect("a held slot has an entry")
    }

    fn take(&mut self, slot: u32) -> Expired<T> {
        self.store.remove(slot);
        let entry = self.entries[slot as usize].take();
        let entry = entry.expect("a held slot has an entry");
        if entry.key.slot != slot {
            self.moved.remove(&entry.key.generation);
        }
        Expired {
            value: entry.value,
            deadline: entry.deadline,
            key: entry.key,
        }
    }

    fn keep(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(kept) => kept.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Wakes the waiting task if the first deadline has changed: it waits for the old one.
    fn wake_if_changed(&mut self, first: Option<(u64, u32)>) {
        // The polling task sleeps until the former first deadline. Wake it to look at the new one.
        if self.store.first() != first {
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// No value of type `T` is pinned here.
impl<T> Unpin for DelayQueue<T> {}

impl<T> futures_core::Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        Poll::Ready(ready!(self.poll_expired(cx)))
    }
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.peek().map(|key| self.deadline(&key));
        f.debug_struct("DelayQueue")
            .field("len", &self.len())
            .field("next", &next)
            .finish_non_exhaustive()
    }
}
