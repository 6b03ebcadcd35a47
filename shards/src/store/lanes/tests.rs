//! What the stores' common tests in `tests/store.rs` cannot see.

use super::*;

impl Lanes {
    fn check(&self) {
        let lanes = self.lanes.iter().zip(&self.heads).zip(&self.tails);
        let mut held = self.strays.len();
        for (nth, ((lane, &head), &tail)) in lanes.enumerate() {
            let ends = (lane.entries.front(), lane.entries.back());
            let live = lane.entries.len() - lane.holes;
            held += live;
            match ends {
                (Some(first), Some(last)) => {
                    assert_eq!([first.key, last.key], [head, tail]);
                    assert!(first.slot != VACANT && last.slot != VACANT);
                }
                _ => assert_eq!([head, tail], [u64::MAX, 0]),
            }
            assert!(lane.holes <= HOLES.max(live), "{} of {live}", lane.holes);
            assert!(lane.entries.iter().is_sorted_by_key(|entry| entry.key));
            for (index, entry) in lane.entries.iter().enumerate() {
                let at = position(nth, lane.number(index));
                assert!(entry.slot == VACANT || self.slots.position(entry.slot) == at);
            }
            assert!(self.heads[self.least] <= head);
            assert!(lane.entries.capacity() <= 512.max(8 * lane.entries.len()));
        }
        assert_eq!(held, self.len);
    }
}

/// Memory is bounded by what is held, whatever became of the rest.
#[test]
fn holes_and_room_are_bounded() {
    let mut store = Lanes::new();
    let mut held = VecDeque::new();
    let mut random = 1_u64;
    for now in 0..60_000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = random >> 33;
        if now % 20_000 < 12_000 {
            // Four durations, and now and then any.
            let duration = match draw % 10 {
                9 => draw,
                _ => [100, 1_000, 5_000, 100_000][draw as usize % 4],
            };
            held.push_back(store.insert(now + duration));
        }
        if now % 20_000 > 6_000 {
            for _ in 0..2 {
                // From the middle, too.
                let nth = draw as usize % held.len().max(1) / 2;
                if let Some(slot) = held.remove(nth) {
                    store.remove(slot);
                }
            }
        }
        if draw % 4 == 0 {
            if let Some((_, popped)) = store.pop_due(now, |_| ()) {
                let nth = held.iter().position(|&slot| slot == popped);
                held.remove(nth.expect("it was held"));
            }
        }
        if now % 16 == 0 {
            store.check();
        }
    }
    for slot in held {
        store.remove(slot);
    }
    store.check();
    assert!(store.is_empty());
}

#[test]
fn as_many_lanes_do_as_there_are_durations() {
    let mut store = Lanes::new();
    let mut last = 0;
    for now in 0..10_000 {
        for duration in [10_000, 30, 2_000, 500] {
            store.insert(now + duration);
        }
        while let Some((key, _)) = store.pop_due(now, |_| ()) {
            assert!(key >= last);
            last = key;
        }
    }
    assert_eq!((store.lanes.len(), store.strays.len()), (4, 0));
    store.check();
}

/// What is popped in front of many holes leaves no more of them than what is removed.
#[test]
fn what_is_popped_leaves_no_holes_behind() {
    const HALF: u64 = 100_000;
    let mut store = Lanes::new();
    let slots: Vec<_> = (1..=2 * HALF + 1).map(|key| store.insert(key)).collect();
    assert_eq!(store.lanes.len(), 1);
    for &slot in &slots[HALF as usize..2 * HALF as usize] {
        store.remove(slot);
    }
    store.check();
    for key in 1..HALF {
        assert_eq!(
            store.pop_due(key, |_| ()),
            Some((key, slots[key as usize - 1]))
        );
        if key % 1_024 == 0 || key + 64 > HALF {
            store.check();
        }
    }
    store.check();
    assert_eq!(store.len(), 2);
}

/// Durations get lanes of their own, however many were taken by timers far ahead that nothing follows.
#[test]
fn few_far_ones_do_not_keep_the_lanes() {
    const HOUR: u64 = 3_600_000;
    let mut store = Lanes::new();
    for hours in (1..=LANES as u64).rev() {
        store.insert(hours * HOUR);
    }
    assert!(store.strays.len() <= LANES);
    for now in 0..100_000 {
        for duration in [30_000, 1_000, 60_000, 5_000] {
            store.insert(now + duration);
        }
        while let Some((key, _)) = store.pop_due(now, |_| ()) {
            assert_eq!(key, now);
        }
        assert!(store.strays.len() <= 100, "{} strays", store.strays.len());
        if now % 512 == 0 {
            store.check();
        }
    }
}
