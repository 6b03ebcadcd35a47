//! How many blocking threads the jobs of a group may hold, if the group has a bound.
//!
//! A job of such a group is *admitted* while it is in the queue of the threads or runs. If as many
//! are admitted as the bound says, a new job *waits* here. When an admitted job ends or is aborted,
//! the job of its group that has waited for longest is admitted in its place. So a group has jobs
//! that wait only while it has admitted ones, and no thread looks here for work.
//!
//! All this is under the mutex of the pool. The bound of a group never changes.

use std::{collections::BTreeMap, mem};

use crate::engine::groups::GroupId;

/// The jobs of the groups that have a bound.
#[derive(Debug)]
pub(super) struct Bounded<J> {
    /// In the order of the groups' numbers. There are as many as it takes for those that have had a
    /// job.
    groups: Vec<OfGroup<J>>,
}

#[derive(Debug)]
struct OfGroup<J> {
    /// How many jobs are admitted.
    admitted: usize,
    /// Those that wait, by their numbers.
    waiting: BTreeMap<u64, J>,
}

impl<J> Default for Bounded<J> {
    fn default() -> Self {
        Self { groups: Vec::new() }
    }
}

impl<J> Bounded<J> {
    /// Admits a new job, and returns it. Or keeps it, if its group has `most` jobs that are
    /// admitted.
    pub(super) fn admit(&mut self, group: GroupId, most: usize, number: u64, job: J) -> Option<J> {
        let empty = || OfGroup {
            admitted: 0,
            waiting: BTreeMap::new(),
        };
        let groups = self.groups.len().max(group.index() + 1);
        self.groups.resize_with(groups, empty);
        let of = &mut self.groups[group.index()];
        if of.admitted < most {
            of.admitted += 1;
            return Some(job);
        }
        of.waiting.insert(number, job);
        None
    }

    /// Notes that an admitted job of this group is over. Returns the one that is admitted in its
    /// place, with its number.
    pub(super) fn over(&mut self, group: GroupId) -> Option<(u64, J)> {
        let of = self.groups.get_mut(group.index())?;
        let next = of.waiting.pop_first();
        if next.is_none() {
            of.admitted -= 1;
        }
        next
    }

    /// Takes the job with this number out, if it waits.
    pub(super) fn remove(&mut self, number: u64) -> Option<J> {
        let mut groups = self.groups.iter_mut();
        groups.find_map(|of| of.waiting.remove(&number))
    }

    /// Takes all jobs out that wait. No group has an admitted job afterwards, as far as this knows.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = J> {
        let groups = mem::take(&mut self.groups);
        groups.into_iter().flat_map(|of| of.waiting.into_values())
    }

    /// Returns how many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        self.groups.iter().map(|of| of.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waits_until_another_of_its_group_is_over() {
        let (mut bounded, [one, two]) = (Bounded::default(), [1, 2].map(GroupId::new));
        assert_eq!(bounded.admit(two, 1, 0, 'a'), Some('a'));
        assert_eq!(bounded.admit(two, 1, 1, 'b'), None);
        assert_eq!(bounded.admit(one, 1, 2, 'c'), Some('c'));
        assert_eq!(bounded.admit(two, 1, 3, 'd'), None);
        assert_eq!(bounded.waiting(), 2);
        // The first one first.
        assert_eq!(bounded.over(one), None);
        assert_eq!(bounded.over(two), Some((1, 'b')));
        assert_eq!((bounded.remove(3), bounded.remove(3)), (Some('d'), None));
        assert_eq!(bounded.over(two), None);
        assert_eq!(bounded.admit(two, 1, 4, 'e'), Some('e'));
    }

    #[test]
    fn what_is_over_after_the_end_is_not_counted() {
        let (mut bounded, group) = (Bounded::default(), GroupId::new(1));
        assert_eq!(bounded.admit(group, 1, 0, 'a'), Some('a'));
        assert_eq!(bounded.admit(group, 1, 1, 'b'), None);
        assert_eq!(bounded.clear().collect::<String>(), "b");
        assert_eq!((bounded.over(group), bounded.waiting()), (None, 0));
    }
}
