//! `block_in_place`: a worker announces that it is about to block.

use std::sync::Arc;

use crate::{
    clock::looked,
    engine::{local, local::Local, shared::Shared, shutdown},
    sys::sync::atomic::{Ordering, fence},
    util::budget,
};

/// Runs `f`, which may block. On a worker, peers take over its queue at once, and its timers and
/// sockets as those of a blocked worker. If no peer is free, a helper is started.
///
/// `f` has no budget of tokio: it may poll a future until it is ready, as an executor does.
pub(crate) fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
    local::with_local(|local| match local {
        // A call within another changes nothing: peers have taken over already. A thread that is no
        // worker may block as it likes.
        // On a current-thread runtime, no peer is there and none is started.
        Some(local) if !local.in_place.get() && !local.shared().is_current_thread() => {
            let _in_place = InPlace::begin(local);
            budget::outside_polls(f)
        }
        _ => budget::outside_polls(f),
    })
}

/// Marks a worker as being in `block_in_place`, until it is dropped.
struct InPlace<'a>(&'a Local);

impl<'a> InPlace<'a> {
    fn begin(local: &'a Local) -> Self {
        let core = local.shard.owner();
        let shared: &Arc<Shared> = &core.shared;
        // It may be here for long.
        looked::forget();
        local.set_in_place(true);
        core.watchdog.set_in_place(true);
        shared.in_place.fetch_add(1, Ordering::AcqRel);
        // Move the LIFO slot's task to the deque, where thieves find it. (`set_in_place` keeps the
        // slot empty from here on.)
        local.release();
        let in_place = Self(local);
        // Make sure that a thread is in reserve before peers are woken: each peer that leaves the
        // reserve to search or to rescue must leave another thread there.
        shared.ensure_reserve();
        shared.wake_one();
        local.shard.call();
        // A paused clock stops the heartbeats: wake the helpers, which then check the queues.
        if shared.clock.is_paused() {
            shared.helpers.wake_all();
        }
        // The thread that stops the runtime sets the flag and then counts the workers that are in
        // place. The fence orders our count before our check, so one of the two sees the other.
        fence(Ordering::SeqCst);
        if shared.is_stopping() {
            shutdown::end_if_all_in_place(shared);
        }
        in_place
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        let core = self.0.shard.owner();
        // The worker is back: one helper less is allowed, and a worker uses its LIFO slot again.
        core.shared.in_place.fetch_sub(1, Ordering::AcqRel);
        core.watchdog.set_in_place(false);
        self.0.set_in_place(false);
        // Without a watchdog the worker was watched only for this call.
        if !core
            .shared
            .config
            .is_watched(core.shared.workers.load().len())
        {
            self.0.shard.dismiss();
        }
    }
}
