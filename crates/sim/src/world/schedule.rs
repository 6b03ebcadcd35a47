//! The scheduler of a simulation, and the progress of time.

use super::{
    NEVER, Run, State, Wait,
    decide::{Class, Decision, Key},
    die_with,
    faults::Style,
    outside,
    story::{Part, Who},
};

/// A thread that passes this many points without waiting gets the lowest priority. It prevents a
/// spinning thread from starving the one that it waits for.
const PATIENCE: u32 = 4_000;
/// The same where priorities are to hold for long.
const LONG_PATIENCE: u32 = 20_000;

/// The reason of a seed that passes too many points.
pub(crate) const ENDLESS: &str = "it does not come to an end";

impl State {
    /// Passes a point of thread `me`. Returns whether another thread must run.
    pub(crate) fn pass(&mut self, me: usize) -> bool {
        let number = self.tick();
        if number > self.plan.points_most {
            let dump = self.dump();
            die_with(ENDLESS, &dump);
        }
        // Time passes at each point, so that a loop reaches its deadline.
        let most = self.plan.point_ns.max(1);
        let took = self.pace.u64(most / 4..=most);
        self.now += took;
        let thread = &mut self.threads[me];
        thread.cpu += took;
        thread.since += 1;
        thread.turn += 1;
        self.mix(me as u64 ^ (self.now << 8));
        if self.disturb(me) || self.loses_core(me) {
            return true;
        }
        if self.now >= self.next_due {
            self.fire_due();
        }
        // A thread that spins for another one would otherwise keep that one from running.
        if self.threads[me].since >= self.patience() {
            self.demote(me);
            self.threads[me].since = 0;
            self.gives_way = true;
            return true;
        }
        let key = self.switch_of(me);
        if self.kept.is_some() {
            return self.kept_switch(key).is_some();
        }
        let mut rng = self.numbers(key);
        match self.plan.style {
            Style::Uniform(often) => rng.u16(..) < often,
            Style::Bursts { often, length } => {
                (number / u64::from(length)) % 2 == 0 && rng.u16(..) < often || rng.u16(..) < 40
            }
            Style::Priorities(often) => {
                if rng.u16(..) < often {
                    self.demote(me);
                    return true;
                }
                std::mem::take(&mut self.changed)
            }
            Style::Changes { .. } => {
                // One that a fault came in the way of is made up for.
                let change = self.changes.first_entry();
                if let Some(change) = change.filter(|change| *change.key() <= number) {
                    self.threads[me].priority = change.remove();
                    return true;
                }
                std::mem::take(&mut self.changed)
            }
        }
    }

    fn patience(&self) -> u32 {
        match self.plan.style {
            Style::Changes { .. } => LONG_PATIENCE,
            _ => PATIENCE,
        }
    }

    /// Chooses the points that change priorities. The thread that passes the i-th one, in the order
    /// in which they are drawn, gets the i-th lowest priority of those.
    pub(super) fn choose_changes(&mut self) {
        let Style::Changes { count, points } = self.plan.style else {
            return;
        };
        let mut rng = self.numbers(Key {
            class: Class::Switch,
            who: u32::MAX,
            count: 0,
        });
        self.changes = (0..count)
            .map(|i| (rng.u64(1..=points.max(1)), i64::from(i) - i64::from(count)))
            .collect();
        self.lowest = -i64::from(count);
    }

    /// Gives the thread the lowest priority.
    pub(crate) fn demote(&mut self, me: usize) {
        self.lowest -= 1;
        self.threads[me].priority = self.lowest;
    }

    /// Returns the threads that can run, in the order of their numbers.
    fn ready(&self) -> impl Iterator<Item = usize> {
        let threads = self.threads.iter().enumerate();
        threads
            .filter(|(number, it)| it.run == Run::Ready && self.has_core(*number))
            .map(|(number, _)| number)
    }

    /// Returns the name of the present turn of a thread.
    fn switch_of(&self, me: usize) -> Key {
        Key {
            class: Class::Switch,
            who: me as u32,
            count: self.threads[me].turn,
        }
    }

    /// Returns which thread runs next without a decision: the same one, or if it waits or gives
    /// way, the ready one that has the next number.
    fn usual(&mut self, me: usize) -> usize {
        let gives_way = std::mem::take(&mut self.gives_way);
        if !gives_way && self.threads[me].run == Run::Ready && self.has_core(me) {
            return me;
        }
        let next = self.ready().find(|&number| number > me);
        next.unwrap_or_else(|| self.ready().next().expect("one is ready"))
    }

    /// Chooses the next thread. If none can run, advances the time to the next event.
    pub(crate) fn choose(&mut self, me: usize) -> usize {
        let (mut woke_all, ran_until) = (false, self.now);
        while self.ready().next().is_none() {
            self.update_next_due();
            if self.next_due > self.now {
                self.check_neglect();
            }
            if self.next_due == NEVER {
                // All threads may wait for dropped writes: wake them once in place of the next
                // write that would. After `drop_no_more` every thread has been woken, so this is
                // not the reason.
                if !woke_all && self.faults.dropped > 0 && self.drops() {
                    woke_all = true;
                    self.wake_all();
                    continue;
                }
                let dump = self.dump();
                die_with("nobody can run any more, and no timer is set", &dump);
            }
            // All threads wait, so the time jumps to the next event.
            self.now = self.now.max(self.next_due);
            self.fire_due();
        }
        let (key, usual) = (self.switch_of(me), self.usual(me));
        let next = match self.plan.style {
            _ if self.kept.is_some() => {
                let kept = self.kept_switch(key);
                let kept = kept.filter(|to| self.ready().any(|it| it == *to));
                kept.unwrap_or(usual)
            }
            Style::Priorities(_) | Style::Changes { .. } => {
                let threads = &self.threads;
                let best = self.ready().max_by_key(|&number| threads[number].priority);
                best.expect("one is ready")
            }
            _ => {
                let count = self.ready().count();
                // The first number of the decision was whether there is a switch.
                let mut rng = self.numbers(key);
                _ = (rng.u16(..), rng.u16(..));
                let nth = rng.usize(..count);
                self.ready().nth(nth).expect("one of them")
            }
        };
        if next != usual {
            let to = next as u32;
            self.record(Decision { key, to });
        }
        // A decision that leaves all as it is has no part in the run.
        if next != me {
            self.mix(next as u64);
        }
        if next != me || self.now > ran_until {
            self.draw_run(me, ran_until, next);
        }
        match self.threads[me].run {
            Run::Ready if next != usual && next != me => self.tell_switch(me, next),
            _ if next != me => {
                let part = [Part::Detail, Part::Decided][usize::from(next != usual)];
                self.happens_to(Who::Thread(next), part, || "goes on".into());
            }
            _ => {}
        }
        outside::set_runs(next);
        next
    }

    /// Performs everything that is due: ends waits, fires timerfds, delivers delayed writes.
    pub(crate) fn fire_due(&mut self) {
        for number in 0..self.threads.len() {
            match self.threads[number].run {
                Run::Waits(_, until) | Run::Frozen(until) if until <= self.now => {
                    self.threads[number].run = Run::Ready;
                    // A thread that has waited begins with new patience.
                    self.threads[number].since = 0;
                    self.changed = true;
                }
                _ => {}
            }
        }
        for host in &mut self.hosts {
            if host.paused_until != 0 && host.paused_until <= self.now {
                host.paused_until = 0;
                // Its threads can run again.
                self.changed = true;
            }
        }
        for fd in self.kernel.take_due(self.now, &self.hosts) {
            if let Some(host) = self.kernel.host_of(fd) {
                let name = &self.hosts[host].name;
                self.tell(Part::Plain, || format!("a timer of {name} goes off"));
            }
            self.signal(fd);
        }
        self.deliver();
        // Delayed writes take effect here, in the order in which they were made.
        while let Some(fd) = self.kernel.take_late(self.now) {
            self.written(fd);
        }
        self.update_next_due();
    }

    /// Computes the time before which nothing is due.
    fn update_next_due(&mut self) {
        // The time limit of a simulation is no event.
        let threads = self.threads.iter().filter_map(|it| match it.run {
            Run::Waits(Wait::Host, _) => None,
            Run::Waits(_, until) | Run::Frozen(until) => Some(until),
            _ => None,
        });
        let pauses = self.hosts.iter().map(|host| host.paused_until);
        let pauses = pauses.filter(|until| *until > self.now);
        let next = threads.chain(pauses).min().unwrap_or(NEVER);
        let packet = self.net.next_due().unwrap_or(NEVER);
        self.next_due = next.min(packet).min(self.kernel.next_due(&self.hosts));
    }
}
