//! The plan of faults of a simulation, and their counts.

/// The rule that chooses the next thread.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// At each point, switches to a random thread with this chance in 65,536.
    Uniform(u16),
    /// Switches like `Uniform` during bursts, and hardly ever between them.
    Bursts {
        /// The chance of a switch during a burst, in 65,536.
        often: u16,
        /// The length of a burst, and of the pause after it, in points.
        length: u32,
    },
    /// Runs the thread with the highest priority until it waits. With this chance in 65,536, a
    /// point sets its priority to the lowest.
    Priorities(u16),
    /// Runs the thread with the highest priority until it waits. Some points, which are chosen at
    /// the beginning, set the priority of the thread that passes them below all first ones. (After
    /// Burckhardt and others, *A Randomized Scheduler with Probabilistic Guarantees of Finding
    /// Bugs*.)
    Changes {
        /// How many such points there are: one less than the depth of the bugs to find.
        count: u32,
        /// They are among the first so many points.
        points: u64,
    },
}

/// The plan of a seed. Each number without a unit is a chance in millionths, at each point where
/// the fault can happen.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rule that chooses the next thread.
    pub style: Style,
    /// The maximum time between two points, in ns. The minimum is a fourth of it.
    pub point_ns: u64,
    /// The maximum lateness of timed wake-ups by the kernel, in ns.
    pub late_ns: u64,
    /// A write to an eventfd has no effect.
    pub drop: u32,
    /// A write takes effect up to 3 ms later.
    pub delay: u32,
    /// A write takes effect twice, the second time later.
    pub double: u32,
    /// A thread wakes up without a reason.
    pub spurious: u32,
    /// A signal ends a wait in the kernel.
    pub interrupt: u32,
    /// The thread does not run for up to [`freeze_ns`](Plan::freeze_ns).
    pub freeze: u32,
    /// The maximum length of a freeze, in ns.
    pub freeze_ns: u64,
    /// No thread runs for up to 10 s, while all clocks continue.
    pub pause: u32,
    /// The machine is suspended for up to a minute, while the monotonic clock stands still.
    pub suspend: u32,
    /// The wall clock is set forward or back by up to an hour.
    pub wall_step: u32,
    /// Starting a helper or a blocking thread fails. In millionths of these starts.
    pub refuse: u32,
    /// A weak compare-exchange fails spuriously.
    pub weak: u32,
    /// The maximum number of points. A seed that exceeds it fails, because the program is in a
    /// loop.
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

/// The faults that have happened.
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
    /// The time of the first dropped write, and the time since which no dropped write matters,
    /// because all threads were woken.
    pub drop_first: Option<u64>,
    pub drop_over: Option<u64>,
    pub refuse_first: Option<u64>,
    /// The times of delayed writes.
    pub delays: Vec<u64>,
}

impl Faults {
    /// Returns whether a dropped write may be the reason that something due at `due` had not
    /// happened before `at`.
    pub fn drop_excuses(&self, due: u64, at: u64) -> bool {
        self.drop_first.is_some_and(|first| first <= at)
            && self.drop_over.is_none_or(|over| due <= over)
    }
}
