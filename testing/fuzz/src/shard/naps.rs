//! Operations on sleeps and their models.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Poll, Waker},
};

use tourbillon_model::{self as model, State};
use tourbillon_shards::{Due, NEVER, Outcome, Ran, Sleep};

use super::{model::Nap, owner::TestOwner, world::World};

impl World {
    /// Wakes the task of a sleep and finds the sleep by its outcome. Returns whether it had been
    /// moved.
    pub fn fire_nap(&mut self, due: Due<TestOwner>, at: u64) -> bool {
        let now = self.now;
        assert!(matches!(due.run(|| now), Ran::Fired));
        let mut fired = self
            .naps
            .iter_mut()
            .filter(|nap| nap.model.state == State::Pending(at))
            .filter(|nap| nap.sleep.outcome() == Some(Outcome::Fired));
        let nap = fired.next().expect("one of them was due");
        nap.end(Outcome::Fired);
        std::mem::take(&mut nap.model.moved)
    }

    pub fn nap(&mut self, at: u64) {
        let mut nap = Nap {
            model: model::Timer::pending(false, at, 0),
            sleep: Sleep::new(&self.shard, at),
            waker: Arc::default(),
            is_polled: false,
            woken: 0,
        };
        if self.is_closed {
            nap.end(Outcome::Shutdown);
        }
        self.naps.push(nap);
        self.naps_made += 1;
    }

    pub fn reset_nap(&mut self, id: usize, to: u64) {
        let nap = &mut self.naps[id];
        nap.sleep.reset(to);
        nap.model.moved |= !nap.model.is_over();
        nap.model.state = State::Pending(to.min(NEVER));
        if self.is_closed {
            // It is armed again, and refused.
            nap.end(Outcome::Shutdown);
        }
    }

    pub fn poll(&mut self, id: usize) {
        let nap = &mut self.naps[id];
        let waker = Waker::from(nap.waker.clone());
        match (nap.sleep.poll(&waker), nap.model.state) {
            (Poll::Ready(how), State::Over(over)) => assert_eq!(how, over),
            (Poll::Pending, State::Pending(_)) => nap.is_polled = true,
            (poll, state) => panic!("{poll:?}, and it is {state:?}"),
        }
    }

    pub fn drop_nap(&mut self, id: usize) {
        let nap = self.naps.swap_remove(id);
        drop(nap.sleep);
        assert_eq!(Arc::strong_count(&nap.waker), 1, "a waker was left behind");
        assert_eq!(nap.waker.0.load(Relaxed), nap.woken);
    }
}
