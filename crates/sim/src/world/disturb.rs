//! Injection of faults.

use super::{
    BEGIN, Run, State,
    decide::Class,
    story::{Millis, Part, Who},
};

impl State {
    /// Returns whether a fault with this chance, in millionths, happens at this point.
    pub(crate) fn happens(&mut self, class: Class, chance: u32) -> bool {
        if chance == 0 || self.settled {
            return false;
        }
        let key = self.meet(class);
        self.vary(key, false, |rng| rng.u32(0..1_000_000) < chance)
    }

    /// Freezes a thread from this point on. Returns the length in ns.
    fn draw_freeze(&mut self, rng: &mut fastrand::Rng) -> u64 {
        let length = rng.u64(1_000..=self.plan.freeze_ns.max(2_000));
        let lost = Millis(length);
        self.happens_to(Who::Caller, Part::Decided, || {
            format!("loses its core for {lost}")
        });
        self.faults.freezes += 1;
        self.disturbances.push((self.now, self.now + length));
        length
    }

    /// Takes the core from a thread until a moment.
    pub(crate) fn freeze(&mut self, thread: usize, until: u64) {
        let until_then = Millis(until.wrapping_sub(BEGIN));
        self.happens_to(Who::Thread(thread), Part::Asked, || {
            format!("has no core until {until_then}")
        });
        self.threads[thread].run = Run::Frozen(until);
        self.next_due = self.next_due.min(until);
    }

    /// Has a thread that was woken get no core, at random. Returns the length in ns.
    pub(crate) fn late_core(&mut self) -> Option<u64> {
        let chance = self.plan.freeze.saturating_mul(30);
        if chance == 0 || self.settled {
            return None;
        }
        let key = self.meet(Class::Core);
        let mut rng = self.numbers(key);
        let comes = rng.u32(0..1_000_000) < chance && self.takes(key);
        comes.then(|| self.draw_freeze(&mut rng))
    }

    /// Injects at most one random fault. Returns whether the thread must not continue.
    pub(crate) fn disturb(&mut self, me: usize) -> bool {
        // Draw one number for all faults: each owns a part of the range proportional to its chance.
        let chances = [
            self.plan.freeze,
            self.plan.pause,
            self.plan.suspend,
            self.plan.wall_step,
            self.plan.spurious,
        ];
        let all: u32 = chances.iter().sum();
        if all == 0 || self.settled {
            return false;
        }
        let key = self.meet(Class::Fault);
        let mut rng = self.numbers(key);
        let mut drawn = rng.u32(0..1_000_000);
        if drawn >= all || !self.takes(key) {
            return false;
        }
        let mut which = 0;
        while drawn >= chances[which] {
            drawn -= chances[which];
            which += 1;
        }
        match which {
            0 => {
                // The system takes the core away from this thread.
                let until = self.now + self.draw_freeze(&mut rng);
                self.freeze(me, until);
                return true;
            }
            1 => {
                let length = rng.u64(1_000_000..10_000_000_000);
                self.tell(Part::Decided, || {
                    format!("the machine stands still for {length} ns")
                });
                self.faults.pauses += 1;
                self.disturbances.push((self.now, self.now + length));
                self.now += length;
            }
            2 => {
                let length = rng.u64(1_000_000..60_000_000_000);
                self.tell(Part::Decided, || {
                    format!("the machine is suspended for {length} ns")
                });
                self.faults.suspensions += 1;
                let clocks = &mut self.hosts[0].clocks;
                clocks.suspended += length;
                clocks.wall = clocks.wall.wrapping_add(length);
                // The kernel reports a resume like a step of the clock.
                self.clock_was_set(0);
            }
            3 => {
                let length = rng.u64(1_000_000..3_600_000_000_000);
                let forward = rng.bool();
                self.tell(Part::Decided, || {
                    format!("the wall clock is set by {length} ns, forward: {forward}")
                });
                self.faults.wall_steps += 1;
                let wall = &mut self.hosts[0].clocks.wall;
                *wall = if forward {
                    wall.wrapping_add(length)
                } else {
                    wall.wrapping_sub(length)
                };
                self.clock_was_set(0);
            }
            _ => {
                let all = self.kernel.eventfds();
                if !all.is_empty() {
                    let fd = all[rng.usize(..all.len())];
                    self.tell(Part::Decided, || format!("a wake-up for nothing at {fd}"));
                    self.faults.spurious += 1;
                    self.written(fd);
                }
            }
        }
        false
    }

    pub(crate) fn clock_was_set(&mut self, host: usize) {
        for fd in self.kernel.clock_was_set(host) {
            self.signal(fd);
        }
        self.fire_due();
    }

    /// Returns whether writes may be dropped.
    pub(crate) fn drops(&self) -> bool {
        self.dropping && !self.settled
    }

    pub(crate) fn drop_no_more(&mut self) {
        self.dropping = false;
        self.faults.drop_over.get_or_insert(self.now);
        // A thread may still wait for a write that was dropped.
        if self.faults.dropped > 0 {
            self.wake_all();
        }
    }

    pub(crate) fn settle(&mut self) {
        self.tell(Part::Asked, || "from here on nothing goes wrong".into());
        // From here on, a thread that makes no progress shows an error of the runtime.
        self.settled = true;
        self.faults.drop_over.get_or_insert(self.now);
        self.wake_all();
    }

    pub(crate) fn disturbed(&self, from: u64, to: u64) -> u64 {
        let overlap = |&(begin, end): &(u64, u64)| end.min(to).saturating_sub(begin.max(from));
        self.disturbances.iter().map(overlap).sum()
    }
}
