//! Operations on many timers at once: by the wall clock, or by name.

use std::time::Duration;

use tourbillon::time::{self, advance};
use tourbillon_shards::{Cancel, NEVER, Outcome};

use super::{Step, clocks::Kind, plain::Way, world::World};

impl World {
    pub async fn set_wall(&mut self, step: Step) {
        let to = match step {
            Step::By(moment) => self.moment(Kind::Wall, moment),
            Step::To(which, by) => {
                let walls = self.timers.iter().filter(|timer| timer.kind == Kind::Wall);
                let waits: Vec<_> = walls.filter(|timer| timer.is_pending()).collect();
                match which.checked_rem(waits.len()) {
                    Some(which) => waits[which].deadline().saturating_add_signed(by.into()),
                    None => return,
                }
            }
        };
        let (was, to) = (self.shown(Kind::Wall), to.clamp(1, NEVER - 1));
        let is_due = |&id: &usize| self.timers[id].is_due(&self.offsets, self.now);
        // These timers have a tolerance. They may run now, or wait until the clock shows their
        // time again.
        let due: Vec<_> = (0..self.timers.len()).filter(is_due).collect();
        time::set_wall_clock(self.zeros.time(to)).unwrap();
        if !due.is_empty() {
            advance(Duration::ZERO).await;
        }
        for id in due {
            self.pass_one(id, self.now, Way::Jump);
        }
        self.offsets.wall = i128::from(to) - i128::from(self.now);
        let mut skipped = false;
        for id in 0..self.timers.len() {
            let timer = &self.timers[id];
            let waited = timer.kind == Kind::Wall && timer.is_pending();
            // The step jumps over the timer's deadline.
            if waited && timer.skips && was < timer.deadline() && timer.deadline() < to {
                self.end(id, Outcome::Cancelled);
                skipped = true;
            }
        }
        if skipped {
            // A worker delivers the outcomes.
            self.settle().await;
        }
    }

    pub async fn cancel_named(&mut self, name: usize, max: usize) {
        let mut count = self.handle.cancel_named(&name.to_string(), max);
        let sizes = [0, 1].map(|clock| self.lists[name][clock].len());
        assert_eq!(count, sizes.iter().sum::<usize>().min(max));
        for clock in [0, 1] {
            // The oldest first.
            let list = &self.lists[name][clock];
            let found = list[..count.min(list.len())].to_vec();
            count -= found.len();
            for id in found {
                assert_eq!(self.cancel(id), Cancel::Cancelled);
            }
        }
    }
}
