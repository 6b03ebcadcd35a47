//! How a worker divides its time among the groups of tasks, once there are some.
//!
//! Where the worker takes its next job, it charges the last one to its group, and goes on with that
//! group until the turn is over or the group has no job left. Then the next turn begins
//! (`engine/groups/turns.rs`).
//!
//! What another group waits for may be a socket or a timer. So between two jobs the worker also
//! looks at these, once about a turn has passed since it last did. It has read the clock for the
//! charge, and the look takes about one percent of a turn. The turn ends with the look: what came
//! meanwhile does not wait for the rest of it.
//!
//! The jobs of another group may keep a worker busy that would otherwise have searched. So in the
//! turn of the default group it also takes jobs from the injector and from the deques of its peers.

use crate::{
    engine::{
        context::group::InGroup,
        groups::{
            Group, GroupId, Table, turns,
            turns::{PAUSED_JOB, Turns},
        },
        job::Job,
        worker::Worker,
    },
    metrics::label::Label,
};

impl<'a> Worker<'a> {
    /// Returns the next job for a worker that has just run one, by the shares of the groups. If it
    /// is time to look at timers and sockets, this returns `None` and sets `interval` to zero.
    #[cold]
    #[inline(never)]
    pub(super) fn next_in_groups(&mut self, groups: &'a Table) -> Option<Job> {
        let now = self.shared.clock.real();
        self.end_job(now);
        if self.tick != self.last_poll && self.is_time_to_look(groups, now) {
            self.interval = 0;
            if let Some(turns) = &mut self.turns {
                turns.end();
            }
            return None;
        }
        let job = self.next_by_shares(groups);
        if let (Some(_), Some(turns)) = (&job, &mut self.turns) {
            turns.begin_job(now);
        }
        job
    }

    /// Returns whether a turn has passed since the worker last looked, or less of it is left than
    /// half of a job takes.
    fn is_time_to_look(&self, groups: &Table, now: u64) -> bool {
        let away = now.saturating_sub(self.looked.at);
        let jobs = self.tick.saturating_sub(self.looked.jobs).max(1);
        let half_a_job = away / jobs / 2;
        // On a clock that was ever paused, all must depend on the program alone.
        away + half_a_job >= turns::length(groups) && !self.shared.clock.was_paused()
    }

    /// Returns the next job, by the shares of the groups. The default group has a job if this
    /// worker or the injector has one; if any other group has one, also if a peer has one. The last
    /// job is charged.
    pub(super) fn next_by_shares(&mut self, groups: &'a Table) -> Option<Job> {
        let mut turns = self.turns.take().unwrap_or_else(Turns::new);
        let job = self.next_in_turn(groups, &mut turns);
        self.turns = Some(turns);
        job
    }

    /// Returns the name of the group of the job that the worker has taken, if the runtime has
    /// groups and it is not the default one.
    pub(crate) fn group_name(&self) -> Option<Label> {
        let groups = self.shared.task_groups.table()?;
        let group = self.turns.as_ref()?.group();
        (group != GroupId::DEFAULT).then(|| groups.get(group).label())
    }

    /// Puts what a callback spawns and arms into its group, which is that of the present job.
    #[inline]
    pub(super) fn enter_group(&self) -> Option<InGroup> {
        let turns = self.turns.as_ref()?;
        Some(InGroup::enter(self.shared, turns.group()))
    }

    /// Publishes the group of the present job, whose name is not published yet.
    #[inline]
    pub(super) fn begin_in_group(&self) {
        if self.turns.is_some() {
            self.publish_group();
        }
    }

    #[cold]
    fn publish_group(&self) {
        let watch = &self.core.watchdog.watch;
        watch.begin_in(self.tick, self.group_name());
    }

    /// Takes a job of the group whose turn it is, and begins the next turn if there is none.
    fn next_in_turn(&mut self, groups: &Table, turns: &mut Turns) -> Option<Job> {
        let present = turns.present();
        if present.is_none() && !self.others_wait(groups, turns.group()) {
            turns.catch_up();
        }
        let job = present.and_then(|group| self.take_of(groups, group, turns));
        if job.is_some() {
            return job;
        }
        // It has none left, whatever is left of its turn.
        let mut tried = present.map_or(0, |group| 1 << group.index());
        while let Some(group) = turns.next_of(groups, tried) {
            if let Some(job) = self.take_of(groups, group, turns) {
                self.begin_turn(groups, group, turns);
                return Some(job);
            }
            tried |= 1 << group.index();
        }
        None
    }

    /// Returns whether a group but this one has work, without a look at peers.
    fn others_wait(&self, groups: &Table, group: GroupId) -> bool {
        let is_other = |(index, _): &(usize, _)| *index != group.index();
        let mut others = groups.iter().enumerate().filter(is_other);
        let default_waits = || self.local.has_shared() || !self.shared.queues.is_empty();
        others.any(|(_, other)| other.has_work())
            || self.local.pinned().has_other_than(group)
            || group != GroupId::DEFAULT && default_waits()
    }

    fn begin_turn(&mut self, groups: &Table, group: GroupId, turns: &mut Turns) {
        turns.begin(groups, group);
        self.local.set_other_group(group != GroupId::DEFAULT);
    }

    /// Takes a job of this group.
    fn take_of(&mut self, groups: &Table, group: GroupId, turns: &mut Turns) -> Option<Job> {
        if self.is_retired() {
            // A retired worker hands on all else.
            return self.local.pinned().take_of(group).map(Job::Task);
        }
        if group != GroupId::DEFAULT {
            return self.take_of_other(groups.get(group), group, turns);
        }
        // 1. Now and then one from the injector, as without groups.
        if turns.injector_in == 0 {
            turns.injector_in = self.shared.injector_interval();
            let queues = &self.shared.queues;
            if let Some(job) = (!queues.is_empty()).then(|| queues.steal()).flatten() {
                return Some(job);
            }
        }
        turns.injector_in -= 1;
        // 2. The worker's own jobs, and then those from outside.
        let job = self.local.next().or_else(|| self.shared.queues.steal());
        let pinned = self.local.pinned();
        if job.is_some() || !groups.has_work() && !pinned.has_other_than(group) {
            return job;
        }
        // 3. Those of peers. Without work of other groups the worker searches.
        let job = self.steal_from_peers();
        if job.is_some() && !self.search.is_on && self.local.has_queued() {
            // As after a search that is not counted: see `search`.
            self.shared.wake_one();
        }
        job
    }

    /// Takes a job of a group that is not the default one: in turns a task that is pinned to this
    /// worker, and a job that any worker may run.
    fn take_of_other(&self, of: &Group, group: GroupId, turns: &mut Turns) -> Option<Job> {
        let pinned = self.local.pinned();
        if !pinned.is_used() {
            return of.take();
        }
        let own = || pinned.take_of(group).map(Job::Task);
        match turns.is_pinned_next(group) {
            true => own().or_else(|| of.take()),
            false => of.take().or_else(own),
        }
    }

    /// Notes that a job begins which the worker has found by a search.
    #[inline]
    pub(super) fn begin_found(&mut self, job: &Job) {
        if self.turns.is_some() {
            self.begin_found_in_turn(job);
        }
    }

    #[cold]
    fn begin_found_in_turn(&mut self, job: &Job) {
        let (Some(groups), Some(mut turns)) = (self.shared.task_groups.table(), self.turns.take())
        else {
            return;
        };
        let group = job.group();
        if turns.present() != Some(group) {
            self.begin_turn(groups, group, &mut turns);
        }
        turns.begin_job(self.shared.clock.real());
        self.turns = Some(turns);
    }

    /// Charges the job that has ended by `now`, in real time in ns, to its group, if there are
    /// groups.
    #[inline]
    pub(super) fn end_job(&mut self, now: u64) {
        if self.turns.is_some() {
            self.charge(now);
        }
    }

    #[cold]
    fn charge(&mut self, now: u64) {
        let Some(groups) = self.shared.task_groups.table() else {
            return;
        };
        let took = if self.shared.clock.was_paused() {
            Some(PAUSED_JOB)
        } else if self.local.was_in_place.take() {
            // It has blocked, and others have run in its place.
            Some(0)
        } else {
            None
        };
        let Some(turns) = &mut self.turns else { return };
        if let Some(took) = turns.end_job(groups, now, took) {
            groups.get(turns.group()).count(self.core.index, took);
        }
    }

    /// Returns how many jobs may run until the next poll: fewer if they take long, so that the
    /// worker is back in its loop before its alarm calls a peer.
    pub(super) fn jobs_to_next_poll(&self) -> u64 {
        let most = u64::from(self.shared.config.event_interval);
        // On a clock that was ever paused, all must depend on the program alone. A current-thread
        // runtime has no peer that an alarm could call.
        if self.shared.clock.was_paused() || self.is_single {
            return most;
        }
        self.local.pace.jobs_within(self.poll_within).clamp(1, most)
    }

    /// Returns whether there is a job in this worker's own queues, or in that of a group.
    pub(super) fn has_jobs(&self) -> bool {
        self.local.has_jobs() || self.shared.task_groups.have_work()
    }
}
