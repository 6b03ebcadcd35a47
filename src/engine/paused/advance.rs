//! The future of `advance`: it requests a jump of the clock, and waits until the jump is over.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    engine::{paused::state::Jump, shared::Shared},
    util::lock::lock,
};

const NOT_PAUSED: &str = "`advance` was called on a runtime whose clock is not paused: call `time::pause` \
    first, or build the runtime with `Builder::start_paused`";

/// The future of [`advance`](crate::time::paused::advance).
pub(crate) struct Advance {
    shared: Arc<Shared>,
    by: Duration,
    /// The number of the jump, once it was requested.
    number: Option<u64>,
}

impl Advance {
    pub(crate) fn new(shared: Arc<Shared>, by: Duration) -> Self {
        Self {
            shared,
            by,
            number: None,
        }
    }
}

impl Future for Advance {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Clone before locking and drop after unlocking: wakers are user code.
        let mut waker = cx.waker().clone();
        let this = &mut *self;
        let mut guard = lock(&this.shared.quiescence.0);
        let state = &mut *guard;
        // First poll: request the jump.
        let Some(number) = this.number else {
            if state.closed {
                return Poll::Ready(());
            }
            if !this.shared.clock.is_paused() {
                drop(guard);
                panic!("{NOT_PAUSED}");
            }
            // Queue the jump. It is made once the runtime is quiescent.
            state.jumps += 1;
            let (number, by) = (state.jumps, this.by);
            state.requested.push_back(Jump { number, by, waker });
            this.number = Some(number);
            // The caller may be no member and so never judge. Wake a worker, which judges when it
            // is idle again.
            if let Some(worker) = this.shared.workers.load().first() {
                worker.wake();
            }
            return Poll::Pending;
        };
        // Later polls: the jump is over when it is on neither list.
        let mut jumps = state.requested.iter_mut().chain(&mut state.jumped);
        let ours = jumps.find(|jump| jump.number == number);
        let poll = match ours {
            Some(jump) => {
                // A later poll may come from another task.
                mem::swap(&mut jump.waker, &mut waker);
                Poll::Pending
            }
            None => Poll::Ready(()),
        };
        drop(guard);
        poll
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let is_ours = |jump: &Jump| jump.number == number;
        // Drop the jump's waker after unlocking: wakers are user code.
        let _given_up = {
            let mut state = lock(&self.shared.quiescence.0);
            let requested = state.requested.iter().position(is_ours);
            let made = state.jumped.iter().position(is_ours);
            let requested = requested.and_then(|at| state.requested.remove(at));
            requested.or_else(|| made.map(|at| state.jumped.remove(at)))
        };
    }
}
