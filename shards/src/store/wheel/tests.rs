//! Tests of the parts of a wheel that the tests of all stores (`tests/store/stores.rs`) cannot see.

use super::{levels::LEVELS, *};

mod counts;

impl Wheel {
    /// Asserts that each entry is where the head of `wheel/mod.rs` says, and that the counts agree.
    fn check(&self) {
        let in_buckets = self.levels.check();
        let base = self.levels.base;
        let mut held = self.max_keys.len();
        let mut least = u64::MAX;
        for entry in self.keys.iter() {
            let Entry { key, slot } = entry;
            held += 1;
            least = least.min(key);
            if key > base {
                let bucket = self.levels.bucket(key);
                assert!(bucket.contains(&slot), "{key} is not in its bucket");
            } else {
                let mut front = self.tree.entries().iter().chain(&self.run[self.head..]);
                let there = front.any(|it| (it.key, it.slot) == (key, slot));
                // Some entries of a bucket of equal keys may still be in their bucket.
                assert!(there || key == base, "{key} is not in front of {base}");
            }
        }
        assert_eq!(held, self.len);
        let first = self.first;
        assert_eq!(first.slot != VACANT, held > 0);
        assert_eq!({ first.key }, least);
        let in_front = self.tree.entries().len() + self.run[self.head..].len();
        assert_eq!(
            self.stale(),
            in_buckets + in_front + self.max_keys.len() - held
        );
        let most = (self.keys.len() + STALE) * 2;
        assert!(self.stale() <= most, "{} of {held}", self.stale());
    }
}

#[test]
fn each_entry_is_in_the_place_of_its_key() {
    let mut wheel = Wheel::new();
    let mut slots = Vec::new();
    let mut random = 1_u64;
    let mut turned_back = 0;
    let mut quickly = [0; 2];
    for step in 0..40_000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = random >> 33;
        // Some keys are far apart, so that `base` has to go back now and then.
        let key = step * 1_000 + (draw % 60_000_000) * if draw % 1_000 == 0 { 60_000 } else { 1 };
        let base = wheel.levels.base;
        match draw % 5 {
            _ if slots.len() < 700 && step % 10_000 < 6_000 => {
                let slot = wheel.try_insert(key);
                quickly[0] += usize::from(slot.is_some());
                slots.push(slot.unwrap_or_else(|| wheel.insert(key)));
            }
            0 | 1 if !slots.is_empty() => {
                let first = slots.iter().position(|&slot| slot == wheel.first.slot);
                let at = first.filter(|_| draw % 2 == 0);
                let slot = slots.swap_remove(at.unwrap_or(draw as usize % slots.len()));
                let was_removed = wheel.try_remove(slot);
                quickly[1] += usize::from(was_removed);
                if !was_removed {
                    wheel.remove(slot);
                }
            }
            2 if !slots.is_empty() => wheel.rekey(slots[draw as usize % slots.len()], key),
            _ if step % 10_000 > 7_000 => {
                let popped = wheel.pop_due(u64::MAX, |_| ());
                slots.retain(|&slot| popped.is_none_or(|it| it.1 != slot));
            }
            _ => {}
        }
        turned_back += usize::from(wheel.levels.base < base);
        if step % 8 == 0 {
            wheel.check();
        }
    }
    assert!(turned_back > 0, "base never went back");
    assert!(quickly.iter().all(|&count| count > 1_000), "{quickly:?}");
}

/// The memory of the buckets is bounded by the most entries that were held at once.
#[test]
fn blocks_are_used_again() {
    let mut wheel = Wheel::new();
    for round in 0..50_u64 {
        for i in 0..5_000 {
            wheel.insert(round * 1_000_000 + i * 97 % 1_000_000);
        }
        while wheel.pop_due(u64::MAX, |_| ()).is_some() {}
    }
    let (slots, nodes) = wheel.levels.room();
    // Each bucket in use has a block. With the limits of tests, buckets have few entries.
    assert!(slots <= 16 * 5_000 + LEVELS * 64 * 16, "{slots} slots");
    assert!(nodes <= 2 * LEVELS + 5_000 / 16, "{nodes} nodes");
}

/// A bucket of equal keys at its start goes to the tree, not to the run. `soon` must not be called
/// with stale entries of the old run.
#[test]
fn only_held_slots_are_prefetched() {
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

/// Many timers at one moment do not move each time that an earlier timer fires.
#[test]
fn many_entries_at_one_moment_stay_in_place() {
    const TIMERS: u64 = 10_000;
    const EARLIER: u64 = 990;
    // A moment at which a bucket begins, and one at which none does.
    for instant in [1_000_000_000, 1_000_000_001] {
        let mut wheel = Wheel::new();
        wheel.insert(1);
        for _ in 0..TIMERS {
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
        let most = 2 * LEVELS as u64 * (TIMERS + EARLIER);
        let moves = 1..=most;
        assert!(
            moves.contains(&(wheel.moves as u64)),
            "{} moves",
            wheel.moves
        );
    }
}

/// Compares a wheel with a sorted set. With the limits of tests, buckets are split, become roots,
/// and become children again all the time.
#[test]
fn nodes_become_roots_and_children_again() {
    let (mut nodes, mut back, mut put_off, mut quickly) = (0, 0, 0, 0);
    for seed in 1..=24_u64 {
        let mut wheel = Wheel::new();
        let mut model = BTreeSet::new();
        let mut slots: Vec<u32> = Vec::new();
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % below
        };
        let mut now = seed * 1_000_000_007;
        for step in 0..5_000 {
            // From some ns to an hour ahead, and some whole seconds.
            let width = [30, 3_000, 400_000, 90_000_000, 4_000_000_000_000][draw(5) as usize];
            let key = match draw(8) {
                0 => (now / 1_000_000_000 + 1 + draw(2)) * 1_000_000_000,
                1 => now + 500_000 + draw(8),
                2 if seed % 8 == 0 => u64::MAX - draw(3),
                _ => now + draw(width),
            };
            let grows = step % 2_500 < 1_200;
            let which = draw(slots.len().max(1) as u64) as usize;
            let base = wheel.levels.base;
            match draw(8) {
                0..4 if grows || slots.len() < 4 => {
                    let slot = wheel.insert(key);
                    assert!(model.insert((key, slot)));
                    slots.push(slot);
                }
                0 if !slots.is_empty() => {
                    let slot = slots.swap_remove(which);
                    assert!(model.remove(&(wheel.key(slot), slot)));
                    wheel.remove(slot);
                }
                1 if slots.len() > 16 && step % 4 == 0 => {
                    // Several at once, because these moves are noted and made later.
                    for &slot in &slots[which / 2..][..4] {
                        let old = wheel.key(slot);
                        if step % 8 == 0 && wheel.try_note(slot, key, key < old) {
                            quickly += 1;
                        } else {
                            wheel.lower(slot, key);
                        }
                        assert!(model.remove(&(old, slot)));
                        model.insert((key.min(old), slot));
                        assert_eq!(wheel.key(slot), key.min(old));
                        put_off += wheel.noted;
                    }
                }
                1..5 if !slots.is_empty() => {
                    let slot = slots[which];
                    assert!(model.remove(&(wheel.key(slot), slot)));
                    wheel.rekey(slot, key);
                    model.insert((key, slot));
                }
                _ => {
                    now += draw(if grows { 50_000 } else { 3_000_000 });
                    while let Some((key, slot)) = wheel.pop_due(now, |_| ()) {
                        assert_eq!(Some(key), model.first().map(|it| it.0));
                        assert!(model.remove(&(key, slot)));
                        slots.retain(|&it| it != slot);
                    }
                }
            }
            back += usize::from(wheel.levels.base < base);
            assert_eq!(wheel.first().map(|it| it.0), model.first().map(|it| it.0));
            if step % 16 == 0 {
                wheel.make_noted_moves();
                wheel.check();
                nodes = nodes.max(wheel.levels.room().1);
            }
        }
        while let Some((key, slot)) = wheel.pop_due(u64::MAX, |_| ()) {
            assert_eq!(Some(key), model.first().map(|it| it.0));
            assert!(model.remove(&(key, slot)));
        }
        assert!(model.is_empty());
        wheel.check();
    }
    assert!(nodes > 2 * LEVELS, "{nodes} nodes: nothing was split");
    assert!(put_off > 1_000, "{put_off} moves were put off");
    assert!(quickly > 500, "{quickly} notes were left by the fast path");
    assert!(back > 100, "base went back {back} times");
}
