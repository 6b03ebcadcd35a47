//! What goes wrong in a world, and how often.

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// At each point, another takes over in so many of 65,536 cases: any that can run.
    Uniform(u16),
    /// The same in bursts of so many points, and between them hardly ever.
    Bursts {
        /// In a burst: in so many of 65,536 cases.
        often: u16,
        /// How long a burst is, and the pause after it.
        length: u32,
    },
    /// The one of the highest priority runs, as long as it can. In so many of 65,536 cases its
    /// priority becomes the lowest. (After Burckhardt and others, *A Randomized Scheduler with
    /// Probabilistic Guarantees of Finding Bugs*.)
    Priorities(u16),
}

/// What a seed has drawn: each number is a chance, in millionths at each point where that may
/// happen.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the next thread is chosen.
    pub style: Style,
    /// How many ns a point takes, at most; at least a fourth of it.
    pub point_ns: u64,
    /// By how many ns the kernel is late at most when it wakes somebody in time.
    pub late_ns: u64,
    /// A write to an eventfd does nothing.
    pub drop: u32,
    /// It has its effect later, by up to 3 ms.
    pub delay: u32,
    /// It has it twice, the second time later.
    pub double: u32,
    /// Someone is woken for nothing.
    pub spurious: u32,
    /// A wait in the kernel ends by a signal.
    pub interrupt: u32,
    /// The thread does not run for up to so many ns (see [`freeze_ns`](Plan::freeze_ns)).
    pub freeze: u32,
    /// How long at most.
    pub freeze_ns: u64,
    /// Nothing runs for up to 10 s: all clocks go on.
    pub pause: u32,
    /// The machine is suspended for up to a minute: the monotonic clock stands still.
    pub suspend: u32,
    /// The wall clock is set, by up to an hour, forward or back.
    pub wall_step: u32,
    /// A thread of the runtime is refused. Of 1,000,000 that are started.
    pub refuse: u32,
    /// An exchange that may fail for no reason does.
    pub weak: u32,
    /// After so many points the seed has failed: something goes round in circles.
    pub points_most: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            style: Style::Uniform(2000),
            point_ns: 40,
            late_ns: 0,
            drop: 0,
            delay: 0,
            double: 0,
            spurious: 0,
            interrupt: 0,
            freeze: 0,
            freeze_ns: 0,
            pause: 0,
            suspend: 0,
            wall_step: 0,
            refuse: 0,
            weak: 0,
            points_most: 20_000_000,
        }
    }
}

/// What has gone wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the plan")]
pub struct Faults {
    pub dropped: u64,
    pub delayed: u64,
    pub doubled: u64,
    pub spurious: u64,
    pub interrupts: u64,
    pub freezes: u64,
    pub pauses: u64,
    pub suspensions: u64,
    pub wall_steps: u64,
    pub refused: u64,
    /// When a write was dropped, and by when nobody waits for one any more, as all were woken then.
    pub drop_first: Option<u64>,
    pub drop_over: Option<u64>,
    pub refuse_first: Option<u64>,
    /// When writes were delayed.
    pub delays: Vec<u64>,
}

impl Faults {
    /// Returns whether a write that was dropped may be why what was due at `due` was not had before
    /// `at`.
    pub fn drop_excuses(&self, due: u64, at: u64) -> bool {
        self.drop_first.is_some_and(|first| first <= at)
            && self.drop_over.is_none_or(|over| due <= over)
    }
}
