//! Many deadlines, waited for in one place.

use std::{
    fmt,
    future::{Future, poll_fn},
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

/// Values that each wait for a deadline of their own, and come out one by one when it has passed:
/// the key expiry of a cache, the retries of a client. The names are tokio-util's.
///
/// One task owns the queue, and one timer serves it, whatever the number of values. They come out in
/// the order of their deadlines, never early; those of one deadline in no particular order.
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
    /// When each slot is due.
    store: Heap,
    /// What is in each slot.
    entries: Vec<Option<Entry<T>>>,
    /// Tells a value from those that had or will have its slot.
    generation: u64,
    /// Waits for the first deadline, once somebody asked.
    sleep: Option<Sleep>,
    /// Whom to wake when what it waits for changes.
    waker: Option<Waker>,
}

struct Entry<T> {
    value: T,
    deadline: Instant,
    generation: u64,
}

/// A value's place in a [`DelayQueue`], until it comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    slot: u32,
    generation: u64,
}

/// A value that came out of a [`DelayQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<T> {
    value: T,
    deadline: Instant,
    key: Key,
}

impl<T> Expired<T> {
    /// The value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// The value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// When it was due, or would have been.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What [`insert`](DelayQueue::insert) answered. It is good for nothing any more, but to tell
    /// the value from others.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl<T> DelayQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty queue with room for so many values.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            epoch: Epoch::new(Instant::now()),
            store: Heap::new(),
            entries: Vec::with_capacity(capacity),
            generation: 0,
            sleep: None,
            waker: None,
        }
    }

    /// Adds a value that comes out `timeout` from now. A timeout beyond 73 years means never.
    pub fn insert(&mut self, value: T, timeout: Duration) -> Key {
        self.insert_at(value, Instant::now_for_deadline().saturating_add(timeout))
    }

    /// Adds a value that comes out at `deadline`, at once if that has passed.
    ///
    /// # Panics
    ///
    /// If there are more than 2^31 values.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        let first = self.store.first();
        let slot = self.store.insert(self.epoch.nanos(deadline));
        self.generation += 1;
        let generation = self.generation;
        let entry = Some(Entry {
            value,
            deadline,
            generation,
        });
        match self.entries.get_mut(slot as usize) {
            Some(vacant) => *vacant = entry,
            None => self.entries.push(entry),
        }
        self.wake_if_changed(first);
        Key { slot, generation }
    }

    /// Takes a value out before its time.
    ///
    /// # Panics
    ///
    /// If it has come out; see [`try_remove`](DelayQueue::try_remove).
    #[track_caller]
    pub fn remove(&mut self, key: &Key) -> Expired<T> {
        self.try_remove(key).expect("the value is not in the queue")
    }

    /// Takes a value out before its time, if it has not come out.
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        self.entry(key)?;
        let first = self.store.first();
        let expired = self.take(key.slot);
        self.wake_if_changed(first);
        Some(expired)
    }

    /// Lets a value come out `timeout` from now instead.
    ///
    /// # Panics
    ///
    /// If it has come out.
    #[track_caller]
    pub fn reset(&mut self, key: &Key, timeout: Duration) {
        self.reset_at(key, Instant::now_for_deadline().saturating_add(timeout));
    }

    /// Lets a value come out at `deadline` instead.
    ///
    /// # Panics
    ///
    /// If it has come out.
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, deadline: Instant) {
        let nanos = self.epoch.nanos(deadline);
        let first = self.store.first();
        let entry = self.entry(key).expect("the value is not in the queue");
        entry.deadline = deadline;
        self.store.rekey(key.slot, nanos);
        self.wake_if_changed(first);
    }

    /// When a value comes out.
    ///
    /// # Panics
    ///
    /// If it has come out.
    #[track_caller]
    pub fn deadline(&self, key: &Key) -> Instant {
        let entry = self.entries.get(key.slot as usize).and_then(Option::as_ref);
        let entry = entry.filter(|entry| entry.generation == key.generation);
        entry.expect("the value is not in the queue").deadline
    }

    /// The value that comes out next.
    pub fn peek(&self) -> Option<Key> {
        let (_, slot) = self.store.first()?;
        let generation = self.entries[slot as usize].as_ref()?.generation;
        Some(Key { slot, generation })
    }

    /// Waits for the next value to come out; `None` if the queue is empty. May be dropped and called
    /// again without losing one.
    pub async fn expired(&mut self) -> Option<Expired<T>> {
        poll_fn(|cx| self.poll_expired(cx)).await
    }

    /// As [`expired`](DelayQueue::expired), for those who write futures by hand. If the queue is
    /// empty, the task is woken when something is inserted.
    ///
    /// # Panics
    ///
    /// If it has to wait, outside of a runtime.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        loop {
            let Some((key, slot)) = self.store.first() else {
                self.sleep = None;
                self.keep(cx.waker());
                return Poll::Ready(None);
            };
            if key != NEVER && key <= self.epoch.nanos(Instant::now()) {
                ready!(budget::check(cx));
                budget::spend();
                return Poll::Ready(Some(self.take(slot)));
            }
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
                // The runtime was shut down: nothing comes out any more, and nobody wakes us.
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        let first = self.store.first();
        self.store = Heap::new();
        self.entries.clear();
        self.wake_if_changed(first);
    }

    /// How many values there are, those that are due and have not come out included.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    fn entry(&mut self, key: &Key) -> Option<&mut Entry<T>> {
        let entry = self.entries.get_mut(key.slot as usize)?.as_mut()?;
        (entry.generation == key.generation).then_some(entry)
    }

    fn take(&mut self, slot: u32) -> Expired<T> {
        self.store.remove(slot);
        let entry = self.entries[slot as usize].take();
        let entry = entry.expect("a held slot has an entry");
        let generation = entry.generation;
        Expired {
            value: entry.value,
            deadline: entry.deadline,
            key: Key { slot, generation },
        }
    }

    fn keep(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(kept) => kept.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Wakes who waits, if the first deadline is not what it was: it waits for another one.
    fn wake_if_changed(&mut self, first: Option<(u64, u32)>) {
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

/// Nothing in it is pinned.
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
