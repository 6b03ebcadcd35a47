//! Tolerances and moments that are kept in a few bits.

use std::time::Duration;

use tourbillon_shards::{NEVER, Taken, Tolerance};

#[test]
fn a_tolerance_is_rounded_down_by_less_than_a_fifth() {
    for bits in 0..62 {
        for near in [-1_i64, 0, 1, 12_345, 1 << (bits / 2)] {
            let ns = (1_u64 << bits).saturating_add_signed(near);
            let rounded = Tolerance::new(ns).ns();
            let most = ns.min(NEVER);
            assert!(rounded <= most, "{rounded} for {ns}");
            assert!(most - rounded <= most / 5, "{rounded} for {ns}");
        }
    }
    assert!((0..8).all(|ns| Tolerance::new(ns).ns() == ns));
    for us in [250, 500, 1_000, 2_000, 4_000, 5_000, 10_000, 20_000] {
        assert_eq!(Tolerance::new(us * 1_000).ns(), us * 1_000);
    }
    assert_eq!(Tolerance::new(u64::MAX), Tolerance::new(NEVER));
}

#[test]
fn codes_grow_with_tolerances_and_lead_back_to_them() {
    let last = Tolerance::new(NEVER).code();
    for code in 0..=last {
        let tolerance = Tolerance::from_code(code);
        assert_eq!(Tolerance::new(tolerance.ns()), tolerance, "{code}");
        assert_eq!(tolerance.is_exact(), code == 0);
        assert!(code == 0 || Tolerance::from_code(code - 1).ns() < tolerance.ns());
    }
    // A thread can keep one more value in a byte.
    assert!(last < 250);
}

#[test]
fn elapsed_time_is_exact_for_18_minutes() {
    let wrap = Taken::WRAP;
    assert_eq!(Duration::from_nanos(wrap).as_secs(), 18 * 60 + 19);
    for begin in [0, 1_023, 1_024, wrap - 1, wrap, 123_456_789_012_345] {
        let taken = Taken::at(begin);
        for passed in [0, 1, 1_024, 5_000_000, 17 * 60 * 1_000_000_000] {
            let elapsed = taken.elapsed(begin + passed);
            assert!(elapsed.abs_diff(passed) < 1_024, "{elapsed}, {passed}");
        }
        assert_eq!(taken.elapsed(begin + wrap), 0);
    }
}

#[test]
fn a_sample_of_four_bits_has_one_in_sixteen() {
    let sampled = (0..1_600).filter(|at| Taken::at(at << 10).is_one_of(4));
    assert_eq!(sampled.count(), 100);
}
