//! The targets: one for each row, with the peers' figures from when the targets were set.
//!
//! An absolute figure holds only on the machine that it was measured on; a ratio holds elsewhere,
//! too. So the wanted ratio of ours to a peer is the target divided by that peer's figure there.
//! Against a peer without a figure there, ours has to be ahead.

use crate::system::System::{
    self, Compio, DelayQueue, Glommio, Monoio, Smol, Tokio, TokioAlt as Alt,
};

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// To reach this where the peers' figures were measured: a ratio to each of them.
    There(f64),
    /// To reach this here and now: what no peer's figure stands beside.
    Here(f64),
    /// To be no worse than any peer.
    Equal,
    /// To be better than each peer.
    Ahead,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    pub workload: &'static str,
    /// Ours, which is the peers', too, if there is nothing in `against`.
    pub figure: &'static str,
    /// The peers' figures that it is compared with: of each peer the first that it has.
    pub against: &'static [&'static str],
    pub better: Better,
    pub target: Target,
    /// The peers' figures where the target was set.
    pub there: &'static [(System, f64)],
}

/// The wanted ratio of our figure to a peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    better: Better,
    ratio: f64,
    /// Whether the very ratio is enough.
    or_equal: bool,
}

impl Row {
    /// Returns the wanted ratio to this peer.
    pub fn wanted(&self, peer: System) -> Wanted {
        let there = self.there.iter().find(|(system, _)| *system == peer);
        let (ratio, or_equal) = match (self.target, there) {
            (Target::There(target), Some((_, figure))) => (target / figure, true),
            (Target::Equal, _) => (1.0, true),
            _ => (1.0, false),
        };
        let better = self.better;
        Wanted {
            better,
            ratio,
            or_equal,
        }
    }

    /// Returns the peers' names for the figure, in the order of preference.
    pub fn of_peers(&self) -> &[&'static str] {
        match self.against {
            [] => std::slice::from_ref(&self.figure),
            against => against,
        }
    }

    /// Returns whether no figure could be better than this: one that is zero meets each target.
    pub fn is_least(&self, ours: f64) -> bool {
        self.better == Better::Lower && ours == 0.0
    }

    /// Returns whether our figure meets an absolute target, or `None` if the row has none.
    pub fn is_met_here(&self, ours: f64) -> Option<bool> {
        match (self.target, self.better) {
            (Target::Here(target), Better::Lower) => Some(ours <= target),
            (Target::Here(target), Better::Higher) => Some(ours >= target),
            _ => None,
        }
    }
}

impl Wanted {
    pub fn is_met(self, ratio: f64) -> bool {
        let is_better = match self.better {
            Better::Lower => ratio < self.ratio,
            Better::Higher => ratio > self.ratio,
        };
        is_better || (self.or_equal && ratio == self.ratio)
    }

    /// The bound itself.
    pub fn ratio(self) -> f64 {
        self.ratio
    }

    /// As the table has it.
    pub fn sign(self) -> &'static str {
        match (self.better, self.or_equal) {
            (Better::Lower, true) => "≤",
            (Better::Lower, false) => "<",
            (Better::Higher, true) => "≥",
            (Better::Higher, false) => ">",
        }
    }
}

/// The row of this figure of ours, if it has one.
pub fn row(workload: &str, figure: &str) -> Option<&'static Row> {
    let mut rows = ROWS.iter();
    rows.find(|row| row.workload == workload && row.figure == figure)
}

/// A row in which less is better.
const fn less(
    workload: &'static str,
    figure: &'static str,
    target: Target,
    there: &'static [(System, f64)],
) -> Row {
    Row {
        workload,
        figure,
        against: &[],
        better: Better::Lower,
        target,
        there,
    }
}

/// A row in which more is better.
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
    const fn against(self, against: &'static [&'static str]) -> Row {
        Row { against, ..self }
    }
}

/// The floor on the machine where the targets were set: the lateness of raw `epoll_pwait2`, in µs.
const FLOOR: f64 = 47.0;

use Target::{Ahead, Equal, Here, There};

#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    // Peers have one kind of timer: it stands beside both of ours.
    less("w1", "callback: ns per pair", There(60.0), &[(Tokio, 138.0), (Alt, 150.0), (DelayQueue, 114.0)])
        .against(&["callback: ns per pair", "sleep: ns per pair"]),
    less("w1", "sleep: ns per pair", There(70.0), &[(Tokio, 138.0), (Alt, 150.0), (DelayQueue, 114.0)])
        .against(&["sleep: ns per pair", "callback: ns per pair"]),
    less("w1", "callback, recycled: ns per pair", Ahead, &[])
        .against(&["callback, recycled: ns per pair", "sleep, recycled: ns per pair"]),
    less("w1", "sleep, recycled: ns per pair", Ahead, &[])
        .against(&["sleep, recycled: ns per pair", "callback, recycled: ns per pair"]),

    less("w2", "random 10k: ns", There(25.0), &[(Tokio, 73.0), (Alt, 152.0), (Monoio, 47.0)]),
    less("w2", "random 1M: ns", There(110.0), &[(Tokio, 427.0), (Alt, 768.0)]),
    less("w2", "later 10k: ns", Here(10.0), &[]),
    less("w2", "later 1M: ns", There(60.0), &[(Tokio, 357.0), (Alt, 715.0)]),
    less("w2", "later 10k, clock read: ns", Ahead, &[]),
    less("w2", "later 1M, clock read: ns", There(60.0), &[(Tokio, 357.0), (Alt, 715.0)]),
    // From another thread: twice that.
    less("w2", "outside, later 10k: ns", Here(2.0 * 10.0), &[]),
    less("w2", "outside, later 1M: ns", There(2.0 * 60.0), &[(Tokio, 357.0), (Alt, 715.0)]),
    less("w2", "outside, later 10k, clock read: ns", Ahead, &[]),
    less("w2", "outside, later 1M, clock read: ns", There(2.0 * 60.0), &[(Tokio, 357.0), (Alt, 715.0)]),
    less("w2", "sleep, random 10k: ns", Ahead, &[]).against(&["random 10k: ns"]),
    less("w2", "sleep, random 1M: ns", Ahead, &[]).against(&["random 1M: ns"]),
    less("w2", "sleep, later 10k: ns", Ahead, &[]).against(&["later 10k: ns"]),
    less("w2", "sleep, later 1M: ns", Ahead, &[]).against(&["later 1M: ns"]),

    less("w3", "tasks 1M: p50 µs", There(8.0), &[(Tokio, 555_000.0), (Alt, 171_000.0), (Compio, 8.0), (Smol, 296.0)]),
    less("w3", "tasks 1M: p99 µs", There(1_000.0), &[(Tokio, 623_000.0), (Alt, 366_000.0), (Compio, 2_022.0), (Smol, 16_000.0)]),
    less("w3", "tasks 1M: CPU ns per fire", There(700.0), &[(Tokio, 2_182.0), (Alt, 2_367.0), (Monoio, 1_318.0)]),
    less("w3", "tasks 1M: arm ns", There(300.0), &[(Tokio, 632.0), (Alt, 647.0), (Compio, 561.0)]),
    less("w3", "callbacks 1M: p50 µs", There(8.0), &[(DelayQueue, 2_395.0)]),
    less("w3", "callbacks 1M: p99 µs", There(500.0), &[(DelayQueue, 13_800.0)]),
    less("w3", "callbacks 1M: CPU s", There(0.5), &[(DelayQueue, 0.73)]),
    less("w3", "callbacks 1M: arm ns", There(80.0), &[(Tokio, 632.0), (Alt, 647.0), (Compio, 561.0)])
        .against(&["callbacks 1M: arm ns", "tasks 1M: arm ns"]),
    less("w3", "tasks 200k: p50 µs", There(14.0), &[(Tokio, 1_245.0), (Alt, 1_251.0), (Compio, 14.0), (Smol, 22.0)]),
    less("w3", "tasks 200k: p99 µs", There(50.0), &[(Tokio, 4_672.0), (Alt, 3_863.0), (Compio, 50.0), (Smol, 140.0)]),
    less("w3", "tasks 200k: CPU ns per fire", There(3_000.0), &[(Tokio, 1_616.0), (Compio, 7_500.0), (Smol, 6_100.0)]),

    less("w4", "1 thread: ns per arm", There(70.0), &[(Tokio, 175.0), (Alt, 480.0), (DelayQueue, 74.0)]),
    less("w4", "2 threads: ns per arm", There(80.0), &[(Tokio, 148.0), (Alt, 361.0), (DelayQueue, 128.0)]),
    less("w4", "1 thread, returned: ns per arm", Ahead, &[]).against(&["1 thread: ns per arm"]),
    less("w4", "2 threads, returned: ns per arm", Ahead, &[]).against(&["2 threads: ns per arm"]),
    less("w4", "1 thread, sleep: ns per arm", Ahead, &[]).against(&["1 thread: ns per arm"]),
    less("w4", "2 threads, sleep: ns per arm", Ahead, &[]).against(&["2 threads: ns per arm"]),

    less("w5", "p50 µs", There(1.1 * FLOOR), &[(Tokio, 1_139.0), (Alt, 1_134.0), (Compio, 57.0), (Smol, 61.0)]),
    less("w5", "p99 µs", Ahead, &[(Tokio, 1_994.0), (Alt, 1_998.0), (Compio, 159.0), (Smol, 180.0)]),
    less("w5", "CPU µs each", There(35.0), &[(Tokio, 51.0), (Compio, 39.0), (Smol, 95.0)]),
    less("w5", "p50 over floor", Here(1.1), &[]),
    less("w5", "spin: p50 µs", Here(3.0), &[]),

    less("w6", "callback: bytes", There(96.0), &[(DelayQueue, 64.0)]),
    // smol's there were unboxed.
    less("w6", "sleep: bytes", There(110.0), &[(Tokio, 136.0), (Alt, 248.0)]),
    less("w6", "sleep, unboxed: bytes", There(110.0), &[(Tokio, 136.0), (Alt, 248.0), (Smol, 120.0)])
        .against(&["sleep, unboxed: bytes", "sleep: bytes"]),
    less("w6", "task: bytes", There(240.0), &[(Tokio, 439.0), (Alt, 551.0), (Compio, 279.0)]),

    less("w7", "armed: p50 µs", There(130.0), &[(Tokio, 190_150.0), (Alt, 190_084.0), (Smol, 76.0)]),
    less("w7", "armed: max µs", There(300.0), &[(Tokio, 190_202.0), (Alt, 190_111.0), (Smol, 114.0)]),
    less("w7", "spawn: p50 µs", There(130.0), &[(Tokio, 1_367.0), (Alt, 1_392.0), (Smol, 133.0)]),
    less("w7", "spawn: max µs", There(300.0), &[(Tokio, 190_175.0), (Alt, 190_195.0), (Smol, 234.0)]),

    less("w8", "spawn 1M: ns", There(170.0), &[(Tokio, 730.0), (Alt, 826.0), (Smol, 305.0)]),
    less("w8", "spawn 10k: ns", There(180.0), &[(Tokio, 513.0), (Alt, 521.0), (Smol, 235.0)]),
    less("w8", "yield: ns", There(28.0), &[(Tokio, 29.5), (Alt, 31.6), (Glommio, 26.0)]),
    less("w8", "ping-pong: ns", There(350.0), &[(Tokio, 660.0), (Alt, 696.0), (Smol, 610.0), (Monoio, 212.0)]),
    less("w8", "chained: ns", There(110.0), &[(Tokio, 203.0), (Alt, 207.0), (Smol, 156.0)]),

    more("w9", "hello: req/s", Equal, &[]),
    less("w9", "hello: CPU µs", Equal, &[]),
    more("w9", "header timeout: req/s", Equal, &[]),
    less("w9", "header timeout: CPU µs", Equal, &[]),
    less("w9", "delayed: CPU µs", Equal, &[]),
    less("w9", "delayed: p99 ms", Equal, &[]),

    less("w10", "CPU ms", There(0.2), &[(Tokio, 0.2), (Alt, 0.17)]),
    less("w10", "voluntary switches", There(2.0), &[(Tokio, 3.0), (Alt, 3.0), (Compio, 2.0), (Glommio, 2.0)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_ratio_to_each_peer() {
        let row = row("w1", "callback: ns per pair").unwrap();
        let wanted = row.wanted(Tokio);
        assert_eq!(wanted.ratio(), 60.0 / 138.0);
        assert!(wanted.is_met(60.0 / 138.0) && wanted.is_met(0.4) && !wanted.is_met(0.5));
        assert_eq!(wanted.sign(), "≤");
        // It has no figure there.
        let wanted = row.wanted(Compio);
        assert!(wanted.is_met(0.99) && !wanted.is_met(1.0));
        assert_eq!(wanted.sign(), "<");
    }

    #[test]
    fn more_is_better_where_requests_are_counted() {
        let wanted = row("w9", "hello: req/s").unwrap().wanted(Tokio);
        assert!(wanted.is_met(1.0) && wanted.is_met(1.3) && !wanted.is_met(0.9));
        assert_eq!(wanted.sign(), "≥");
    }

    #[test]
    fn what_has_no_peer_is_measured_by_itself() {
        let row = row("w5", "spin: p50 µs").unwrap();
        assert_eq!(row.is_met_here(2.9), Some(true));
        assert_eq!(row.is_met_here(3.1), Some(false));
        assert_eq!(ROWS[0].is_met_here(1.0), None);
    }

    #[test]
    fn no_figure_has_two_rows() {
        for (at, one) in ROWS.iter().enumerate() {
            let same = |other: &&Row| (other.workload, other.figure) == (one.workload, one.figure);
            assert_eq!(
                ROWS.iter().position(|other| same(&other)),
                Some(at),
                "{one:?}"
            );
            assert!(one.there.iter().all(|(_, figure)| *figure > 0.0), "{one:?}");
        }
    }
}
