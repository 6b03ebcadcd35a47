//! A ring of the last events of one thread. Any thread copies it without stopping the writer.
//!
//! An event is two words. One thread, the owner, writes them; `written` counts the events. Event
//! `n` is in slot `n` modulo the number of slots. The count is the sequence number of all slots:
//!
//! | state of event `n` | count | slot |
//! |---|---|---|
//! | not written | at most `n` | has an older event, or is being written |
//! | written | more than `n` | has event `n` |
//! | overwritten | at least `n` plus the number of slots | may have a part of a newer event |
//!
//! A reader copies the events below the count, reads the count again, and drops the events that may
//! have been overwritten meanwhile. See "The ring" in `PROTOCOLS.md`.

use std::sync::OnceLock;

use tourbillon_sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// A ring of the last events of one thread.
pub struct Ring {
    /// A power of two of them. They are made for the first event, or by
    /// [`reserve`](Ring::reserve).
    slots: OnceLock<Box<[Slot]>>,
    /// The number of slots minus one.
    mask: u64,
    written: AtomicU64,
}

#[repr(transparent)]
struct Slot([AtomicU64; 2]);

/// A copy of the last events of a [`Ring`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The number of the first event, counted from zero over all events of the ring.
    pub first: u64,
    /// The events, oldest first.
    pub events: Vec<[u64; 2]>,
}

impl Ring {
    /// Creates a ring that keeps at least `events` events. It has one slot more, for the event that
    /// is being written, and rounds up to a power of two.
    ///
    /// The first event allocates the slots. Memory that no event has reached is not resident.
    pub fn new(events: usize) -> Self {
        let slots = events.saturating_add(1).next_power_of_two().max(2);
        Self {
            slots: OnceLock::new(),
            mask: slots as u64 - 1,
            written: AtomicU64::new(0),
        }
    }

    /// Allocates the slots now, for a thread that must not wait for memory when it writes its first
    /// event.
    #[must_use]
    pub fn reserve(self) -> Self {
        self.slots();
        self
    }

    /// Returns the slots, and makes them if there are none.
    #[inline]
    fn slots(&self) -> &[Slot] {
        self.slots.get_or_init(|| zeroed((self.mask + 1) as usize))
    }

    /// Returns the slot of an event.
    #[inline]
    fn slot<'a>(&self, slots: &'a [Slot], number: u64) -> &'a Slot {
        &slots[(number & self.mask) as usize]
    }

    /// Writes an event.
    ///
    /// # Safety
    ///
    /// No other thread calls this at the same time: each call happens before the next one.
    #[inline]
    pub unsafe fn push(&self, event: [u64; 2]) {
        let slots = self.slots();
        let number = self.written.load(Relaxed);
        // A reader that sees a word of this event sees `number` events or more, and so drops the
        // event that this one overwrites. Pairs with the fence in `copy`.
        fence(Release);
        let slot = self.slot(slots, number);
        slot.0[0].store(event[0], Relaxed);
        slot.0[1].store(event[1], Relaxed);
        // A reader of this count sees the whole event.
        self.written.store(number + 1, Release);
    }

    /// Copies the last events, at most `most` of them. Any thread may call this.
    pub fn copy(&self, most: usize) -> Copied {
        let end = self.written.load(Acquire);
        // The writer makes the slots before it counts the first event.
        let Some(slots) = self.slots.get().filter(|_| end > 0) else {
            return Copied::default();
        };
        // The slot of event `end` may be half written, so one event fewer than slots is intact.
        let begin = end.saturating_sub(self.mask.min(most as u64));
        let copy = |number: u64| {
            let slot = self.slot(slots, number);
            [slot.0[0].load(Relaxed), slot.0[1].load(Relaxed)]
        };
        let mut events: Vec<_> = (begin..end).map(copy).collect();
        // The writer went on meanwhile. Event `now` may be half written, over the event that is one
        // round before it.
        fence(Acquire);
        let now = self.written.load(Relaxed);
        let first = now.saturating_sub(self.mask).clamp(begin, end);
        events.drain(..(first - begin) as usize);
        Copied { first, events }
    }
}

/// Returns empty slots, in memory that becomes resident only when it is written.
#[cfg(not(any(loom, tourbillon_sim)))]
fn zeroed(slots: usize) -> Box<[Slot]> {
    let words = vec![[0_u64; 2]; slots].into_boxed_slice();
    // SAFETY: `Slot` is `repr(transparent)`, and `AtomicU64` has the size and the validity of
    // `u64`. It has the same alignment on the 64-bit systems that the runtime supports; the
    // assertion below checks that. The box is the only owner of the memory.
    unsafe { Box::from_raw(Box::into_raw(words) as *mut [Slot]) }
}

#[cfg(not(any(loom, tourbillon_sim)))]
const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

/// Returns empty slots. These atomics are not plain words.
#[cfg(any(loom, tourbillon_sim))]
fn zeroed(slots: usize) -> Box<[Slot]> {
    let slot = |_| Slot([AtomicU64::new(0), AtomicU64::new(0)]);
    (0..slots).map(slot).collect()
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("slots", &(self.mask + 1))
            .field("written", &self.written.load(Relaxed))
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        thread,
    };

    use super::*;

    fn event(number: u64) -> [u64; 2] {
        [number, !number]
    }

    fn push(ring: &Ring, numbers: std::ops::Range<u64>) {
        // SAFETY: each test has one writer.
        numbers.for_each(|number| unsafe { ring.push(event(number)) });
    }

    #[test]
    fn the_last_events_are_kept_in_order() {
        let ring = Ring::new(3);
        assert_eq!(ring.copy(9), Copied::default());
        push(&ring, 0..2);
        let copied = ring.copy(9);
        assert_eq!(copied.events, [event(0), event(1)]);
        push(&ring, 2..9);
        let copied = ring.copy(9);
        assert_eq!((copied.first, copied.events.len()), (6, 3));
        assert_eq!(copied.events, [event(6), event(7), event(8)]);
        let copied = ring.copy(2);
        assert_eq!((copied.first, copied.events), (7, vec![event(7), event(8)]));
    }

    #[test]
    fn a_ring_has_room_for_what_was_asked() {
        for (asked, slots) in [(0, 2), (1, 2), (2, 4), (3, 4), (4, 8), (1_000, 1_024)] {
            assert_eq!(Ring::new(asked).reserve().slots().len(), slots);
        }
    }

    #[test]
    fn the_first_event_makes_the_slots() {
        let ring = Ring::new(3);
        assert_eq!(ring.copy(9), Copied::default());
        assert!(ring.slots.get().is_none(), "a copy makes none");
        push(&ring, 0..1);
        assert!(ring.slots.get().is_some());
        assert!(Ring::new(3).reserve().slots.get().is_some());
    }

    #[test]
    fn copies_are_whole_while_the_owner_writes() {
        let (ring, over) = (Ring::new(63), AtomicBool::new(false));
        let events = if cfg!(miri) { 1_000 } else { 200_000 };
        thread::scope(|scope| {
            scope.spawn(|| {
                push(&ring, 0..events);
                over.store(true, SeqCst);
            });
            let mut last = 0;
            while !over.load(SeqCst) {
                let copied = ring.copy(usize::MAX);
                assert!(copied.first >= last, "events do not come back");
                last = copied.first;
                for (number, got) in (copied.first..).zip(copied.events) {
                    assert_eq!(got, event(number));
                }
            }
        });
        assert_eq!(ring.copy(usize::MAX).events.len(), 63);
    }
}
