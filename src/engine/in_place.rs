//! A worker that is about to block, and says so.

use std::sync::Arc;

use crate::{
    engine::{local, local::Local, shared::Shared, shutdown},
    sys::sync::atomic::{Ordering, fence},
};

/// Runs `f`, which may block. On a worker, others do meanwhile what that should: its queue is theirs at
/// once, and timers and sockets are seen to as if it was stuck; if nobody is there for that, a helper is
/// started.
pub(crate) fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
    local::with_local(|local| match local {
        Some(local) if !local.in_place.get() => {
            let _away = Away::begin(local);
            f()
        }
        _ => f(),
    })
}

/// The worker is away until this is dropped.
struct Away<'a>(&'a Local);

impl<'a> Away<'a> {
    fn begin(local: &'a Local) -> Self {
        let core = local.shard.owner();
        let shared: &Arc<Shared> = &core.shared;
        local.in_place.set(true);
        local.shares.set(true);
        core.in_place.store(true, Ordering::Relaxed);
        shared.in_place.fetch_add(1, Ordering::AcqRel);
        local.release();
        let away = Self(local);
        // Who is called, and who searches, is to find somebody sitting when it gets up in its turn.
        shared.stand_by();
        shared.wake_one();
        local.shard.call();
        if shared.clock.is_paused() {
            shared.helpers.wake_all();
        }
        // Who stops the runtime looks at who is away after that.
        fence(Ordering::SeqCst);
        if shared.is_stopping() {
            shutdown::end_for_those_away(shared);
        }
        away
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let core = self.0.shard.owner();
        core.shared.in_place.fetch_sub(1, Ordering::AcqRel);
        core.in_place.store(false, Ordering::Relaxed);
        self.0.in_place.set(false);
        self.0.shares.set(core.is_helper);
        if !core
            .shared
            .config
            .is_watched(core.shared.workers.load().len())
        {
            self.0.shard.dismiss();
        }
    }
}
