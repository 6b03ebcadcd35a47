//! What the stores' common tests in `tests/store.rs` cannot see.

use super::*;

impl Wheel {
    /// Where each entry is, by what the head of this file says, and the books of that.
    fn check(&self) {
        let mut counts = [0; LEVELS];
        let mut held = 0;
        for slot in 0..self.slots.end() {
            let Some(at) = self.slots.try_position(slot) else {
                continue;
            };
            held += 1;
            let key = self.key(slot);
            if at >= TREE {
                assert!(key <= self.base, "{key} is in front of {}", self.base);
            } else {
                assert!(key > self.base, "{key} is not in front of {}", self.base);
                let level = level_of(key, self.base);
                let digit = bucket_of(key, level) % DIGITS;
                assert!(self.occupied[level] & 1 << digit != 0);
                counts[level] += 1;
            }
        }
        assert_eq!((held, counts), (self.len, self.counts));
        for (level, count) in counts.into_iter().enumerate() {
            assert_eq!(count > 0, self.levels & 1 << level != 0);
            assert_eq!(count > 0, self.occupied[level] != 0);
        }
        assert_eq!(self.front_is_empty(), self.len == 0);
    }
}

#[test]
fn each_entry_is_in_the_place_of_its_key() {
    let mut wheel = Wheel::new();
    let mut slots = Vec::new();
    let mut random = 1_u64;
    let mut turned_back = 0;
    for step in 0..40_000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = random >> 33;
        // Two that are far apart, so that there is always a reason to go back.
        let key = step * 1_000 + (draw % 60_000_000) * if draw % 1_000 == 0 { 60_000 } else { 1 };
        let base = wheel.base;
        match draw % 5 {
            _ if slots.len() < 700 && step % 10_000 < 6_000 => slots.push(wheel.insert(key)),
            0 | 1 if !slots.is_empty() => {
                wheel.remove(slots.swap_remove(draw as usize % slots.len()));
            }
            2 if !slots.is_empty() => wheel.rekey(slots[draw as usize % slots.len()], key),
            _ if step % 10_000 > 7_000 => {
                let popped = wheel.pop_due(u64::MAX, |_| ());
                slots.retain(|&slot| popped.is_none_or(|it| it.1 != slot));
            }
            _ => {}
        }
        turned_back += usize::from(wheel.base < base);
        if step % 8 == 0 {
            wheel.check();
        }
    }
    assert!(turned_back > 0, "the crowd never dispersed");
}

/// What the buckets take is bounded by the most that was held at once.
#[test]
fn blocks_are_used_again() {
    let mut wheel = Wheel::new();
    for round in 0..50_u64 {
        for i in 0..5_000 {
            wheel.insert(round * 1_000_000 + i * 97 % 1_000_000);
        }
        while wheel.pop_due(u64::MAX, |_| ()).is_some() {}
    }
    assert!(wheel.buckets.room() <= 5_000 + LEVELS * DIGITS * 32);
}

/// A bucket whose entries all stand at its start goes to the front's heap, and not to the run: that has nobody to name.
#[test]
fn who_is_named_is_there() {
    let mut wheel = Wheel::new();
    wheel.insert(1);
    let removed = wheel.insert(2);
    wheel.insert(2);
    for _ in 0..600 {
        wheel.insert(64);
    }
    assert!(wheel.pop_due(1, |_| ()).is_some());
    wheel.remove(removed);
    let popped = wheel.pop_due(2, |slot| assert!(slot < 603, "slot {slot} was never held"));
    assert_eq!(popped.map(|it| it.0), Some(2));
    wheel.check();
}

/// Those that wait for a whole second are not moved for each timer that fires before it.
#[test]
fn a_crowd_at_one_instant_stays_where_it_is() {
    const CROWD: u64 = 10_000;
    const EARLIER: u64 = 990;
    // One at which a bucket begins, and one at which none does.
    for instant in [1_000_000_000, 1_000_000_001] {
        let mut wheel = Wheel::new();
        wheel.insert(1);
        for _ in 0..CROWD {
            wheel.insert(instant);
        }
        assert!(wheel.pop_due(1, |_| ()).is_some());
        for ms in 1..=EARLIER {
            let slot = wheel.insert(ms * 1_000_000);
            assert_eq!(
                wheel.pop_due(ms * 1_000_000, |_| ()),
                Some((ms * 1_000_000, slot))
            );
        }
        wheel.check();
        let most = 2 * LEVELS as u64 * (CROWD + EARLIER);
        assert!(wheel.moves as u64 <= most, "{} moves", wheel.moves);
    }
}
