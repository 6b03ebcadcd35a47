//! Whose turn it is in a world, and how its time goes on.

use super::{
    faults::Style,
    world::{BEGIN, NEVER, Run, State, die_with},
};

/// A thread that has run for so long without waiting for anything is the last in line.
const PATIENCE: u32 = 4_000;

impl State {
    /// The thread passes a point; true if another is to run.
    pub(super) fn pass(&mut self, me: usize) -> bool {
        let number = self.tick();
        if number > self.plan.points_most {
            let dump = self.dump();
            die_with("it does not come to an end", &dump);
        }
        let most = self.plan.point_ns.max(1);
        let took = self.rng.u64(most / 4..=most);
        self.now += took;
        let thread = &mut self.threads[me];
        thread.cpu += took;
        thread.since += 1;
        self.mix(me as u64 ^ (self.now << 8));
        if self.disturb(me) {
            return true;
        }
        if self.now >= self.next_due {
            self.come_due();
        }
        if self.threads[me].since >= PATIENCE {
            self.humble(me);
            return true;
        }
        match self.plan.style {
            Style::Uniform(often) => self.rng.u16(..) < often,
            Style::Bursts { often, length } => {
                (number / u64::from(length)) % 2 == 0 && self.rng.u16(..) < often
                    || self.rng.u16(..) < 40
            }
            Style::Priorities(often) => {
                if self.rng.u16(..) < often {
                    self.humble(me);
                    return true;
                }
                std::mem::take(&mut self.changed)
            }
        }
    }

    /// The thread is the last in line.
    pub(super) fn humble(&mut self, me: usize) {
        self.lowest -= 1;
        self.threads[me].priority = self.lowest;
        self.threads[me].since = 0;
    }

    /// Who can run, in the order of their numbers.
    fn ready(&self) -> impl Iterator<Item = usize> {
        let threads = self.threads.iter().enumerate();
        threads
            .filter(|(_, it)| it.run == Run::Ready)
            .map(|(number, _)| number)
    }

    /// Chooses who runs next; puts the time forward if nobody can.
    pub(super) fn choose(&mut self, me: usize) -> usize {
        let mut told = false;
        while self.ready().next().is_none() {
            self.recount();
            if self.next_due == NEVER {
                // Who was to be woken by what was dropped: the next that wakes them is this. Not
                // once writes are dropped no more: everybody was woken then.
                if !told && self.faults.dropped > 0 && self.drops() {
                    told = true;
                    self.wake_all();
                    continue;
                }
                let dump = self.dump();
                die_with("nobody can run any more", &dump);
            }
            self.now = self.now.max(self.next_due);
            self.come_due();
        }
        let next = match self.plan.style {
            Style::Priorities(_) => {
                let threads = &self.threads;
                let best = self.ready().max_by_key(|&number| threads[number].priority);
                best.expect("one is ready")
            }
            _ => {
                let count = self.ready().count();
                let nth = self.rng.usize(..count);
                self.ready().nth(nth).expect("one of them")
            }
        };
        self.mix(next as u64);
        if next != me && self.traces {
            let (now, name) = (self.now - BEGIN, &self.threads[next].name);
            eprintln!("{now:>14} {name}");
        }
        next
    }

    /// All that is due by now happens.
    pub(super) fn come_due(&mut self) {
        for number in 0..self.threads.len() {
            match self.threads[number].run {
                Run::Waits(_, until) | Run::Frozen(until) if until <= self.now => {
                    self.threads[number].run = Run::Ready;
                    self.threads[number].since = 0;
                    self.changed = true;
                }
                _ => {}
            }
        }
        let offsets = [0, self.suspended, self.wall];
        for fd in self.kernel.take_due(self.now, offsets) {
            self.note(|| format!("timerfd {fd} goes off"));
            self.signal(fd);
        }
        while let Some(fd) = self.kernel.take_late(self.now) {
            self.written(fd);
        }
        self.recount();
    }

    fn recount(&mut self) {
        let threads = self.threads.iter().filter_map(|it| match it.run {
            Run::Waits(_, until) | Run::Frozen(until) => Some(until),
            _ => None,
        });
        let next = threads.min().unwrap_or(NEVER);
        let offsets = [0, self.suspended, self.wall];
        self.next_due = next.min(self.kernel.next_due(offsets));
    }
}
