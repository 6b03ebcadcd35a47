//! The turns of the groups on one worker: which group's jobs it runs next, and for how long.
//!
//! A worker keeps a *virtual time* for each group: the time that it has spent on the group's jobs,
//! divided by the group's shares. The group with work whose virtual time is the least has the next
//! turn. So over time the worker divides itself by shares among the groups that have work.

use crate::engine::groups::{GroupId, MOST, Table};

/// How long a turn is, in ns, if another group waits. The last job of a turn may be longer.
const SLICE: u64 = 100_000;
/// The unit of virtual time: how much one ns takes of a group that has one share.
const UNIT: u64 = 1 << 20;
/// The virtual time at which a worker counts it anew, so that it never ends.
const ANEW: u64 = 1 << 60;
/// What a job counts for on a clock that was ever paused, in ns. There all must depend on the
/// program alone.
pub(crate) const PAUSED_JOB: u64 = SLICE / 8;

/// Returns how long a turn is, in ns, if another group waits.
pub(crate) fn length(table: &Table) -> u64 {
    SLICE.min(table.latency_goal())
}

/// The turns of the groups on one worker.
pub(crate) struct Turns {
    /// The virtual time of each group.
    times: [u64; MOST],
    /// The virtual time up to which the worker has come: the greatest with which a turn began.
    reached: u64,
    /// The group whose turn it is.
    group: GroupId,
    /// How much is left of the turn, in ns.
    left: u64,
    /// When the present job began, in ns. `None` between two jobs.
    since: Option<u64>,
    /// The groups, a set of numbers, of which the next job is one that is pinned to the worker.
    /// That of the default group is in `Local`.
    pinned_next: u32,
    /// How many jobs of the default group run before the worker looks at the injector first.
    pub(crate) injector_in: u32,
}

impl Turns {
    /// Creates the turns of a worker that has run nothing.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            times: [0; MOST],
            reached: 0,
            group: GroupId::DEFAULT,
            left: 0,
            since: None,
            pinned_next: 0,
            injector_in: 0,
        })
    }

    /// Returns the group whose turn it is, if some of the turn is left.
    pub(crate) fn present(&self) -> Option<GroupId> {
        (self.left > 0).then_some(self.group)
    }

    /// Returns the group whose turn it is, or was.
    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    /// Returns whether a pinned task of this group is next, which changes with each call.
    pub(crate) fn is_pinned_next(&mut self, group: GroupId) -> bool {
        let bit = 1 << group.index();
        self.pinned_next ^= bit;
        self.pinned_next & bit != 0
    }

    /// Notes that a job of the present turn begins.
    pub(crate) fn begin_job(&mut self, now: u64) {
        self.since = Some(now);
    }

    /// Charges the job that has ended to its group. Returns how long it took, in ns, or `None` if
    /// there was none. `took` replaces the time that has passed.
    pub(crate) fn end_job(&mut self, table: &Table, now: u64, took: Option<u64>) -> Option<u64> {
        let since = self.since.take()?;
        let took = took.unwrap_or_else(|| now.saturating_sub(since));
        let shares = table.get(self.group).shares();
        let time = &mut self.times[self.group.index()];
        *time = time.saturating_add(virtual_time(took, shares));
        self.left = self.left.saturating_sub(took);
        Some(took)
    }

    /// Returns the group that comes next of those that are not in `tried`, a set of numbers.
    pub(crate) fn next_of(&self, table: &Table, tried: u32) -> Option<GroupId> {
        let untried = (0..table.len()).filter(|index| tried & (1 << index) == 0);
        let untried = untried.map(GroupId::new);
        untried.min_by_key(|&group| self.time_of(table, group))
    }

    /// Begins the turn of a group that has work.
    pub(crate) fn begin(&mut self, table: &Table, group: GroupId) {
        let time = self.time_of(table, group);
        self.times[group.index()] = time;
        self.reached = self.reached.max(time);
        while self.reached >= ANEW {
            self.reached -= ANEW;
            // A group that is so far behind gets no credit for it.
            let back = |time: &mut u64| *time = time.saturating_sub(ANEW);
            self.times.iter_mut().for_each(back);
        }
        self.group = group;
        self.left = length(table);
    }

    /// Ends the turn, whatever is left of it.
    pub(crate) fn end(&mut self) {
        self.left = 0;
    }

    /// Notes that the turn is over and no other group waits. What the last job took beyond the turn
    /// is no credit of groups that did not wait for it.
    pub(crate) fn catch_up(&mut self) {
        self.reached = self.reached.max(self.times[self.group.index()]);
    }

    /// Returns the virtual time of a group that has work now. A group that had none gets no credit
    /// for that but for one turn.
    fn time_of(&self, table: &Table, group: GroupId) -> u64 {
        let credit = virtual_time(SLICE, table.get(group).shares());
        self.times[group.index()].max(self.reached.saturating_sub(credit))
    }
}

/// Returns the virtual time of `ns` ns of a group with so many shares.
fn virtual_time(ns: u64, shares: u32) -> u64 {
    ns.saturating_mul(UNIT) / u64::from(shares.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::groups::{Groups, Options};

    fn options(name: &str, shares: u32) -> Options {
        let mut options = Options::named(name);
        options.shares = shares;
        options
    }

    /// Returns groups with these shares. The first is the default group.
    fn groups(shares: &[u32]) -> Groups {
        let groups = Groups::new();
        let default = options("default", shares[0]);
        for (index, &shares) in shares.iter().enumerate().skip(1) {
            let group = options(&index.to_string(), shares);
            groups.make(&group, &default, 1).unwrap();
        }
        groups
    }

    /// Runs jobs until `end`, in ns. `job` returns how long the next job of a group takes, or
    /// `None` if the group has none. Returns the time of each group.
    fn run(groups: &Groups, end: u64, job: impl Fn(usize, u64) -> Option<u64>) -> Vec<u64> {
        let table = groups.table().unwrap();
        let (mut turns, mut now) = (Turns::new(), 0);
        let mut spent = vec![0; table.len()];
        while now < end {
            let of = |group: GroupId| job(group.index(), now).map(|took| (group, took));
            let mut found = turns.present().and_then(of);
            let mut tried = 0;
            while found.is_none() {
                let Some(group) = turns.next_of(table, tried) else {
                    break;
                };
                found = of(group);
                match found {
                    Some(_) => turns.begin(table, group),
                    None => tried |= 1 << group.index(),
                }
            }
            match found {
                Some((group, took)) => {
                    turns.begin_job(now);
                    now += took;
                    spent[group.index()] += took;
                    assert_eq!(turns.end_job(table, now, None), Some(took));
                    let mut others = (0..table.len()).filter(|&other| other != group.index());
                    if turns.present().is_none() && others.all(|other| job(other, now).is_none()) {
                        turns.catch_up();
                    }
                }
                None => now += 1_000,
            }
        }
        spent
    }

    const SECOND: u64 = 1_000_000_000;

    fn near(parts: &[u64], shares: &[u64]) {
        let (all, of): (u64, u64) = (parts.iter().sum(), shares.iter().sum());
        for (part, share) in parts.iter().zip(shares) {
            let (part, share) = (*part as f64 / all as f64, *share as f64 / of as f64);
            assert!((part / share - 1.0).abs() < 0.01, "{parts:?} of {shares:?}");
        }
    }

    #[test]
    fn groups_with_work_get_time_by_their_shares() {
        near(
            &run(&groups(&[100, 300]), SECOND, |_, _| Some(5_000)),
            &[1, 3],
        );
        // Whatever the lengths of their jobs.
        let lengths = |group, _| Some([1_000, 400_000, 70_000][group]);
        near(
            &run(&groups(&[50, 100, 850]), 10 * SECOND, lengths),
            &[1, 2, 17],
        );
    }

    #[test]
    fn a_group_that_is_alone_gets_all_the_time() {
        let spent = run(&groups(&[100, 1]), SECOND, |group, _| {
            (group == 1).then_some(1_000)
        });
        assert_eq!(spent[0], 0);
        assert!(spent[1] >= SECOND);
    }

    #[test]
    fn a_group_that_had_no_work_gets_no_credit_beyond_a_turn() {
        // The default group begins after nine of ten seconds.
        let late = |group, now| (group == 1 || now >= 9 * SECOND).then_some(50_000);
        let spent = run(&groups(&[100, 100]), 10 * SECOND, late);
        let fair = SECOND / 2;
        assert!(spent[0].abs_diff(fair) <= 2 * SLICE, "{spent:?}");
    }

    #[test]
    fn a_group_that_wakes_up_is_next() {
        let groups = groups(&[100, 100]);
        let table = groups.table().unwrap();
        let mut turns = Turns::new();
        let other = GroupId::new(1);
        for now in 0..100 {
            turns.begin(table, other);
            turns.begin_job(now * 2 * SLICE);
            turns.end_job(table, (now + 1) * 2 * SLICE, None);
            assert_eq!(turns.present(), None);
            assert_eq!(turns.next_of(table, 0), Some(GroupId::DEFAULT));
        }
    }

    #[test]
    fn virtual_time_does_not_end() {
        // A group of one share runs alone for a month, in jobs of an hour. Then it has to share.
        const MONTH: u64 = 30 * 24 * 3_600 * SECOND;
        let (alone, job) = (MONTH, 3_600 * SECOND);
        let shared = |group, now| match now {
            _ if now < alone => (group == 1).then_some(job),
            _ if now < alone + SLICE => (group == 1).then_some(SLICE),
            _ => Some(SLICE),
        };
        let before = run(&groups(&[1, 1]), alone, shared);
        let after = run(&groups(&[1, 1]), alone + 10 * SECOND, shared);
        near(&[after[0] - before[0], after[1] - before[1]], &[1, 1]);
    }

    #[test]
    fn a_latency_goal_bounds_the_turns_of_others() {
        let goal = 20_000;
        let groups = Groups::new();
        let mut default = Options::named("default");
        default.latency_goal = goal;
        let other = groups.make(&Options::named("batch"), &default, 1).unwrap();
        let table = groups.table().unwrap();
        let mut turns = Turns::new();
        turns.begin(table, other);
        turns.begin_job(0);
        turns.end_job(table, goal - 1, None);
        assert_eq!(turns.present(), Some(other));
        turns.begin_job(goal - 1);
        turns.end_job(table, goal, None);
        assert_eq!(turns.present(), None);
    }
}
