//! The checks after each step, and at the end.

use std::sync::{Arc, atomic::Ordering};

use tourbillon_model::State;
use tourbillon_shards::{NEVER, Notice, Outcome};

use super::{Op, model::Model, world::World};
use crate::common::Scripted;

impl World {
    /// Runs an outcome delivery, and finds out which timer it belongs to.
    pub fn hear(&mut self, notice: Notice<Scripted>) {
        let (how, kind, tag) = (notice.outcome(), notice.kind(), notice.tag());
        assert!(notice.run().is_none());
        let told = |id: &usize| self.timers[*id].calls.get().len() > self.timers[*id].told.len();
        let id = (0..self.timers.len())
            .find(told)
            .expect("a callback got its outcome");
        assert_eq!(self.timers[id].model.state, State::Telling(how));
        assert_eq!((self.timers[id].kind(), id as u32), (kind, tag));
        self.tell(id, how);
    }

    pub fn close(&mut self) {
        let orphans = self.shard.close();
        for id in 0..self.timers.len() {
            if matches!(self.timers[id].model.state, State::Pending(_)) {
                self.tell(id, Outcome::Shutdown);
            }
        }
        self.closed = true;
        drop(orphans);
    }

    pub fn check(&self) {
        let (mut owed, mut first) = (0, NEVER);
        for (id, model) in self.timers.iter().enumerate() {
            assert_eq!(model.calls.get(), model.told, "timer {id}");
            let plain = &model.model;
            assert_eq!(model.calls.is_dropped(), plain.is_over(), "callback {id}");
            if let Some(timer) = &model.timer {
                assert_eq!(timer.status(), plain.status(), "timer {id}");
                assert_eq!(timer.deadline(), plain.deadline(), "timer {id}");
                assert_eq!(timer.wait(), plain.wait, "timer {id}");
            }
            let owes = plain.deadline().is_some() || matches!(plain.state, State::Telling(_));
            owed += usize::from(owes && model.plan.outcome);
            if let (State::Pending(at), false) = (plain.state, model.held) {
                first = first.min(model.key(at));
            }
        }
        let owner = self.shard.owner();
        assert_eq!(owner.owes(), owed);
        assert_eq!(owner.over.all(), self.over);
        assert_eq!(owner.wakes.load(Ordering::Relaxed), 0, "nobody sleeps");
        assert!(
            self.shard.next_deadline() <= first,
            "it would sleep too long"
        );
        let mut listed = 0;
        for (name, list) in self.lists.iter().enumerate() {
            assert_eq!(self.names.count(&name.to_string()), list.len());
            listed += usize::from(!list.is_empty());
        }
        assert_eq!(self.names.list().len(), listed);
    }

    /// Ends the timers that are left, and checks that nothing is left behind.
    pub fn finish(mut self) {
        self.apply(Op::Close);
        self.apply(Op::Tell(usize::MAX));
        for id in 0..self.timers.len() {
            self.drop_handle(id);
        }
        self.check();
        assert!(
            self.timers
                .iter()
                .all(|timer: &Model| timer.model.is_over())
        );
        assert_eq!(self.names.list(), []);
        assert_eq!(Arc::strong_count(&self.shard), 1, "a node was left behind");
    }
}
