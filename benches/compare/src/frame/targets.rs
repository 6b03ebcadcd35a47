//! Tourbillon's targets, one for each row of the table.
//!
//! The targets were set on a reference machine, and each row has the peers' figures from there. An
//! absolute figure holds only on the machine where it was measured, but a ratio also holds on other
//! machines. The wanted ratio to a peer is therefore the target divided by the peer's reference
//! figure. If a peer has no reference figure, Tourbillon has to be better than the peer.
//!
//! Tourbillon with exact timers has rows of its own where it has other targets than the default.

use crate::system::System::{
    self, Compio, DelayQueue, Glommio, Monoio, Smol, Tokio, TokioAlt as Alt,
};

/// Direction in which a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

/// Target for a figure of ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Value to reach on the reference machine, which gives a wanted ratio to each peer.
    There(f64),
    /// Absolute value to reach on the current machine, for a row without reference figures.
    Here(f64),
    /// This ratio to the figure of this peer. The others are not compared.
    Times(f64, System),
    /// At least as good as each peer.
    Equal,
    /// Better than each peer.
    Ahead,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// Whose figure has this target: Tourbillon, or Tourbillon with exact timers.
    pub ours: System,
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of our figure, and of the peers' figure if `against` is empty.
    pub figure: &'static str,
    /// Names of the peers' figures to compare with. The first one that a peer has counts.
    pub against: &'static [&'static str],
    pub better: Better,
    pub target: Target,
    /// Figures of the peers on the reference machine.
    pub there: &'static [(System, f64)],
}

/// Wanted ratio of our figure to a peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    better: Better,
    ratio: f64,
    /// Whether a figure with exactly this ratio meets the target.
    or_equal: bool,
}

impl Row {
    /// Returns the wanted ratio to the figure of `peer`, or `None` if the target says nothing of
    /// it, or if it is no peer.
    pub fn wanted(&self, peer: System) -> Option<Wanted> {
        if peer.is_ours() {
            return None;
        }
        let there = self.there.iter().find(|(system, _)| *system == peer);
        let (ratio, or_equal) = match (self.target, there) {
            (Target::There(target), Some((_, figure))) => (target / figure, true),
            (Target::Times(ratio, system), _) if system == peer => (ratio, true),
            (Target::Times(..), _) => return None,
            (Target::Equal, _) => (1.0, true),
            _ => (1.0, false),
        };
        let better = self.better;
        Some(Wanted {
            better,
            ratio,
            or_equal,
        })
    }

    /// Returns the names of the peers' figures to compare with, in the order of preference.
    pub fn of_peers(&self) -> &[&'static str] {
        match self.against {
            [] => std::slice::from_ref(&self.figure),
            against => against,
        }
    }

    /// Returns whether no figure can be better than `ours`.
    ///
    /// This is a zero where lower is better. It meets each target.
    pub fn is_least(&self, ours: f64) -> bool {
        self.better == Better::Lower && ours == 0.0
    }

    /// Returns the absolute target and the sign that the table shows before it, or `None` if the
    /// row has none. A figure that equals the target meets it.
    pub fn bound_here(&self) -> Option<(&'static str, f64)> {
        match (self.target, self.better) {
            (Target::Here(target), Better::Lower) => Some(("≤", target)),
            (Target::Here(target), Better::Higher) => Some(("≥", target)),
            _ => None,
        }
    }

    /// Returns whether `ours` meets the absolute target, or `None` if the row has none.
    pub fn is_met_here(&self, ours: f64) -> Option<bool> {
        match (self.target, self.better) {
            (Target::Here(target), Better::Lower) => Some(ours <= target),
            (Target::Here(target), Better::Higher) => Some(ours >= target),
            _ => None,
        }
    }
}

impl Wanted {
    /// Returns whether a ratio meets the target.
    pub fn is_met(self, ratio: f64) -> bool {
        let is_better = match self.better {
            Better::Lower => ratio < self.ratio,
            Better::Higher => ratio > self.ratio,
        };
        is_better || (self.or_equal && ratio == self.ratio)
    }

    /// Returns the bound of the ratio.
    pub fn ratio(self) -> f64 {
        self.ratio
    }

    /// Returns the sign that the table shows before the bound.
    pub fn sign(self) -> &'static str {
        match (self.better, self.or_equal) {
            (Better::Lower, true) => "≤",
            (Better::Lower, false) => "<",
            (Better::Higher, true) => "≥",
            (Better::Higher, false) => ">",
        }
    }
}

/// Returns the row of this figure of `ours`, or `None` if the figure has no target.
pub fn row(ours: System, workload: &str, figure: &str) -> Option<&'static Row> {
    let wanted = (ours, workload, figure);
    let mut rows = ROWS.iter();
    rows.find(|row| (row.ours, row.workload, row.figure) == wanted)
}

/// Returns a row for a figure that is better if it is lower.
const fn less(
    workload: &'static str,
    figure: &'static str,
    target: Target,
    there: &'static [(System, f64)],
) -> Row {
    Row {
        ours: System::Tourbillon,
        workload,
        figure,
        against: &[],
        better: Better::Lower,
        target,
        there,
    }
}

/// Returns a row for a figure that is better if it is higher.
const fn more(
    workload: &'static str,
    figure: &'static str,
    target: Target,
    there: &'static [(System, f64)],
) -> Row {
    Row {
        better: Better::Higher,
        ..less(workload, figure, target, there)
    }
}

impl Row {
    /// Sets the names of the peers' figures to compare with.
    const fn against(self, against: &'static [&'static str]) -> Row {
        Row { against, ..self }
    }

    /// Makes this a target of Tourbillon with exact timers.
    const fn exact(self) -> Row {
        Row {
            ours: System::Exact,
            ..self
        }
    }
}

use Target::{Ahead, Equal, Here, There, Times};

/// All rows with a target, in the order of the table.
#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    // Peers have one kind of timer. Both kinds of Tourbillon's timers are compared with it.
    less("w1", "callback: ns per pair", There(60.0), &[(Tokio, 157.0), (DelayQueue, 137.0)])
        .against(&["callback: ns per pair", "sleep: ns per pair"]),
    less("w1", "sleep: ns per pair", There(70.0), &[(Tokio, 157.0), (DelayQueue, 137.0)])
        .against(&["sleep: ns per pair", "callback: ns per pair"]),
    less("w1", "callback, recycled: ns per pair", Ahead, &[])
        .against(&["callback, recycled: ns per pair", "sleep, recycled: ns per pair"]),
    less("w1", "sleep, recycled: ns per pair", Ahead, &[])
        .against(&["sleep, recycled: ns per pair", "callback, recycled: ns per pair"]),
    less("w1", "callback, at: ns per pair", There(60.0), &[(Tokio, 142.0)])
        .against(&["sleep, until: ns per pair"]),
    less("w1", "sleep, until: ns per pair", There(0.55 * 142.0), &[(Tokio, 142.0)]),

    less("w2", "random 10k: ns", There(25.0), &[(Tokio, 60.0)]),
    less("w2", "random 1M: ns", There(200.0), &[(Tokio, 480.0)]),
    less("w2", "later 10k: ns", Here(10.0), &[]),
    less("w2", "later 1M: ns", There(200.0), &[(Tokio, 491.0)]),
    less("w2", "later 10k, clock read: ns", Ahead, &[]),
    less("w2", "later 1M, clock read: ns", There(200.0), &[(Tokio, 491.0)]),
    // A thread outside the runtime may take twice the target of "later 10k: ns".
    less("w2", "outside, later 10k: ns", Here(2.0 * 10.0), &[]),
    less("w2", "outside, later 1M: ns", Ahead, &[]),
    less("w2", "outside, later 10k, clock read: ns", Ahead, &[]),
    less("w2", "outside, later 1M, clock read: ns", Ahead, &[]),
    less("w2", "sleep, random 10k: ns", There(40.0), &[(Tokio, 60.0)]).against(&["random 10k: ns"]),
    less("w2", "sleep, random 1M: ns", There(0.8 * 480.0), &[(Tokio, 480.0)]).against(&["random 1M: ns"]),
    less("w2", "sleep, later 10k: ns", Ahead, &[]).against(&["later 10k: ns"]),
    less("w2", "sleep, later 1M: ns", There(300.0), &[(Tokio, 491.0)]).against(&["later 1M: ns"]),
    less("w2", "sleep, later 10k, clock read: ns", Ahead, &[]).against(&["later 10k, clock read: ns"]),
    less("w2", "sleep, later 1M, clock read: ns", Ahead, &[]).against(&["later 1M, clock read: ns"]),

    // Exact timers are compared with all peers. By default, timers that come fast share wake-ups,
    // and what is wanted is to be ahead of tokio, which does the same, in lateness and in cost.
    less("w3", "tasks 1M: p50 µs", Times(0.5, Tokio), &[]),
    less("w3", "tasks 1M: p50 µs", There(3.0), &[(Tokio, 691_258.0), (Compio, 8.2)]).exact(),
    less("w3", "tasks 1M: p99 µs", Times(1.0, Tokio), &[]),
    less("w3", "tasks 1M: p99 µs", There(200.0), &[(Tokio, 710_908.0), (Compio, 4_754.0)]).exact(),
    less("w3", "tasks 1M: CPU ns per fire", There(0.7 * 1_478.0), &[(Tokio, 1_478.0)]),
    less("w3", "tasks 1M: CPU ns per fire", Times(1.34, Tokio), &[]).exact(),
    less("w3", "tasks 1M: arm ns", There(300.0), &[(Tokio, 632.0), (Alt, 647.0), (Compio, 561.0)]),
    less("w3", "callbacks 1M: p50 µs", Ahead, &[]),
    less("w3", "callbacks 1M: p50 µs", There(2.0), &[(DelayQueue, 2_269.0)]).exact(),
    less("w3", "callbacks 1M: p99 µs", Ahead, &[]),
    less("w3", "callbacks 1M: p99 µs", There(200.0), &[(DelayQueue, 12_662.0)]).exact(),
    less("w3", "callbacks 1M: CPU s", There(0.6), &[(DelayQueue, 0.56)]),
    less("w3", "callbacks 1M: CPU s", Times(1.97, DelayQueue), &[]).exact(),
    less("w3", "callbacks 1M: arm ns", There(80.0), &[(Tokio, 632.0), (Alt, 647.0), (Compio, 561.0)])
        .against(&["callbacks 1M: arm ns", "tasks 1M: arm ns"]),
    less("w3", "callbacks 1M, in batches: arm ns", Equal, &[])
        .against(&["callbacks 1M: arm ns", "tasks 1M: arm ns"]),
    less("w3", "tasks 200k: p50 µs", Times(0.5, Tokio), &[]),
    less("w3", "tasks 200k: p50 µs", There(5.0), &[(Tokio, 1_257.0), (Compio, 13.0)]).exact(),
    less("w3", "tasks 200k: p99 µs", Times(1.0, Tokio), &[]),
    less("w3", "tasks 200k: p99 µs", There(60.0), &[(Tokio, 4_849.0), (Compio, 130.0)]).exact(),
    less("w3", "tasks 200k: p99.9 µs", Times(1.0, Tokio), &[]),
    less("w3", "tasks 200k: p99.9 µs", There(1_000.0), &[(Tokio, 6_710.0), (Compio, 2_071.0)])
        .exact(),
    less("w3", "tasks 200k: CPU ns per fire", There(1.1 * 1_157.0), &[(Tokio, 1_157.0)]),
    less("w3", "tasks 200k: CPU ns per fire", Times(6.1, Tokio), &[]).exact(),
    less("w3", "callbacks 200k: p50 µs", Ahead, &[]),
    less("w3", "callbacks 200k: p50 µs", Ahead, &[]).exact(),
    less("w3", "callbacks 200k: p99 µs", Ahead, &[]),
    less("w3", "callbacks 200k: p99 µs", Ahead, &[]).exact(),
    less("w3", "callbacks 200k: CPU ns per fire", There(1.1 * 881.0), &[(DelayQueue, 881.0)]),
    less("w3", "callbacks 200k: CPU ns per fire", Times(5.5, DelayQueue), &[]).exact(),
    less("w3", "tasks 20k: p50 µs", Times(0.5, Tokio), &[]),
    less("w3", "tasks 20k: p50 µs", There(5.0), &[(Tokio, 1_059.0)]).exact(),
    less("w3", "tasks 20k: p99 µs", Times(1.0, Tokio), &[]),
    less("w3", "tasks 20k: p99 µs", Ahead, &[]).exact(),
    less("w3", "tasks 20k: CPU ns per fire", There(1.5 * 2_576.0), &[(Tokio, 2_576.0)]),
    less("w3", "tasks 20k: CPU ns per fire", Times(6.8, Tokio), &[]).exact(),
    less("w3", "tasks 1M, 1 ms: p99 µs", Here(2_000.0), &[]),
    less("w3", "tasks 1M, 1 ms: CPU ns per fire", There(700.0), &[(Tokio, 2_268.0), (Smol, 1_612.0)])
        .against(&["tasks 1M: CPU ns per fire"]),
    less("w3", "callbacks 1M, 1 ms: p99 µs", Here(2_000.0), &[]),
    less("w3", "callbacks 1M, 1 ms: CPU s", There(0.7), &[(DelayQueue, 0.72)])
        .against(&["callbacks 1M: CPU s"]),
    less("w3", "tasks 200k, 1 ms: p99 µs", Here(2_000.0), &[]),
    less("w3", "tasks 200k, 1 ms: CPU ns per fire", Equal, &[])
        .against(&["tasks 200k: CPU ns per fire"]),
    less("w3", "callbacks 200k, 1 ms: p99 µs", Here(2_000.0), &[]),
    less("w3", "callbacks 200k, 1 ms: CPU ns per fire", There(900.0), &[(DelayQueue, 881.0)])
        .against(&["callbacks 200k: CPU ns per fire"]),

    less("w4", "1 thread: ns per arm", There(70.0), &[(Tokio, 1_211.0), (DelayQueue, 87.5)]),
    less("w4", "2 threads: ns per arm", There(70.0), &[(Tokio, 898.0), (DelayQueue, 127.0)]),
    less("w4", "1 thread, returned: ns per arm", Ahead, &[]).against(&["1 thread: ns per arm"]),
    less("w4", "2 threads, returned: ns per arm", Ahead, &[]).against(&["2 threads: ns per arm"]),
    less("w4", "1 thread, in batches: ns per arm", Ahead, &[]).against(&["1 thread: ns per arm"]),
    less("w4", "2 threads, in batches: ns per arm", Ahead, &[]).against(&["2 threads: ns per arm"]),
    less("w4", "1 thread, sleep: ns per arm", Ahead, &[]).against(&["1 thread: ns per arm"]),
    less("w4", "2 threads, sleep: ns per arm", Ahead, &[]).against(&["2 threads: ns per arm"]),

    less("w5", "p50 µs", There(5.0), &[(Tokio, 1_123.0), (Compio, 37.0)]),
    less("w5", "p99 µs", There(90.0), &[(Tokio, 2_012.0), (Compio, 111.0)]),
    less("w5", "CPU µs each", There(33.0), &[(Tokio, 33.0)]),
    less("w5", "p50 over floor", Here(1.1), &[]),
    less("w5", "spin: p50 µs", Here(3.0), &[]),

    less("w6", "callback: bytes", There(96.0), &[(DelayQueue, 64.0)]),
    // On the reference machine, smol's sleeps were unboxed, so this row has no figure of smol.
    less("w6", "sleep: bytes", There(125.0), &[(Tokio, 136.0)]),
    less("w6", "sleep, unboxed: bytes", There(110.0), &[(Tokio, 136.0), (Alt, 248.0), (Smol, 119.0)])
        .against(&["sleep, unboxed: bytes", "sleep: bytes"]),
    less("w6", "task: bytes", There(205.0), &[(Tokio, 439.0), (Smol, 290.0)]),

    less("w7", "armed: p50 µs", There(60.0), &[(Tokio, 190_145.0), (Smol, 79.0)]),
    less("w7", "armed: max µs", There(200.0), &[(Tokio, 190_212.0), (Smol, 143.0)]),
    less("w7", "spawn: p50 µs", There(60.0), &[(Tokio, 1_340.0), (Smol, 121.0)]),
    less("w7", "spawn: max µs", There(200.0), &[(Tokio, 190_232.0), (Smol, 172.0)]),

    less("w8", "spawn 1M: ns", There(170.0), &[(Tokio, 730.0), (Alt, 826.0), (Smol, 305.0)]),
    less("w8", "spawn 10k: ns", There(180.0), &[(Tokio, 513.0), (Alt, 521.0), (Smol, 235.0)]),
    less("w8", "yield: ns", There(27.0), &[(Tokio, 27.1)]),
    less("w8", "ping-pong: ns", There(350.0), &[(Tokio, 660.0), (Alt, 696.0), (Smol, 610.0), (Monoio, 212.0)]),
    less("w8", "chained: ns", There(110.0), &[(Tokio, 203.0), (Alt, 207.0), (Smol, 156.0)]),

    more("w9", "hello: req/s", There(1.2 * 111_648.0), &[(Tokio, 111_648.0)]),
    less("w9", "hello: CPU µs", There(0.9 * 7.5), &[(Tokio, 7.5)]),
    more("w9", "header timeout: req/s", There(1.2 * 106_591.0), &[(Tokio, 106_591.0)]),
    less("w9", "header timeout: CPU µs", There(0.9 * 8.1), &[(Tokio, 8.1)]),
    less("w9", "delayed: CPU µs", There(13.0), &[(Tokio, 16.4)]),
    less("w9", "delayed: p99 ms", Equal, &[]),

    less("w10", "CPU ms", There(0.2), &[(Tokio, 0.2), (Alt, 0.17)]),
    less("w10", "voluntary switches", There(2.0), &[(Tokio, 3.0), (Alt, 3.0), (Compio, 2.0), (Glommio, 2.0)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_ratio_to_each_peer() {
        let row = row(System::Tourbillon, "w1", "callback: ns per pair").unwrap();
        let wanted = row.wanted(Tokio).unwrap();
        assert_eq!(wanted.ratio(), 60.0 / 157.0);
        assert!(wanted.is_met(60.0 / 157.0) && wanted.is_met(0.3) && !wanted.is_met(0.5));
        assert_eq!(wanted.sign(), "≤");
        // compio has no reference figure.
        let wanted = row.wanted(Compio).unwrap();
        assert!(wanted.is_met(0.99) && !wanted.is_met(1.0));
        assert_eq!(wanted.sign(), "<");
    }

    #[test]
    fn a_ratio_to_one_peer_says_nothing_of_the_others() {
        let row = row(System::Tourbillon, "w3", "tasks 200k: p50 µs").unwrap();
        let wanted = row.wanted(Tokio).unwrap();
        assert!(wanted.is_met(0.5) && !wanted.is_met(0.51));
        assert_eq!(wanted.sign(), "≤");
        assert_eq!(row.wanted(Compio), None);
    }

    #[test]
    fn more_requests_per_second_are_better() {
        let row = row(System::Tourbillon, "w9", "hello: req/s").unwrap();
        let wanted = row.wanted(Tokio).unwrap();
        assert!(wanted.is_met(1.3) && !wanted.is_met(1.1) && !wanted.is_met(0.9));
        assert_eq!(wanted.sign(), "≥");
    }

    #[test]
    fn an_absolute_target_needs_no_peer() {
        let row = row(System::Tourbillon, "w5", "spin: p50 µs").unwrap();
        assert_eq!(row.is_met_here(2.9), Some(true));
        assert_eq!(row.is_met_here(3.1), Some(false));
        assert_eq!(ROWS[0].is_met_here(1.0), None);
    }

    #[test]
    fn no_figure_has_two_rows() {
        for (at, one) in ROWS.iter().enumerate() {
            let key = |row: &Row| (row.ours, row.workload, row.figure);
            let first = ROWS.iter().position(|other| key(other) == key(one));
            assert_eq!(first, Some(at), "{one:?}");
            assert!(one.there.iter().all(|(_, figure)| *figure > 0.0), "{one:?}");
        }
    }
}
