//! What the primitives of the library ask the simulation.

use std::ptr;

use tourbillon_sync::sim::{Hook, Probe};

use super::{Ended, IS_INSIDE, ME, NEVER, Wait, World, decide::Class, enter, me, story::Part};

impl Hook for World {
    fn step(&self) {
        if let Some(world) = enter() {
            world.point();
        }
    }

    fn yield_now(&self) {
        match enter() {
            Some(world) => world.give_way(),
            None => std::thread::yield_now(),
        }
    }

    fn wait(&self, address: usize) {
        match enter() {
            Some(world) => _ = world.wait(world.lock(), Wait::Lock(address), NEVER),
            None => std::thread::yield_now(),
        }
    }

    fn wake(&self, address: usize) {
        // A thread that has left the simulation may call this, too, for a waiter that is part of
        // it.
        let was_inside = IS_INSIDE.replace(true);
        if !was_inside {
            self.lock().wake(|wait| wait == Wait::Lock(address));
        }
        IS_INSIDE.set(was_inside);
    }

    fn fails(&self) -> bool {
        enter().is_some_and(|world| {
            let mut state = world.lock();
            let chance = state.plan.weak;
            state.happens(Class::Weak, chance)
        })
    }

    fn has_me(&self) -> bool {
        ME.get().is_some() && !IS_INSIDE.get()
    }

    fn sleep(
        &self,
        condition: usize,
        mutex: usize,
        unlock: &mut dyn FnMut(),
        nanos: Option<u64>,
    ) -> bool {
        let Some(world) = enter() else {
            unlock();
            return true;
        };
        unlock();
        let mut state = world.lock();
        state.wake(|wait| wait == Wait::Lock(mutex));
        let chance = state.plan.spurious.saturating_mul(50);
        if state.happens(Class::Early, chance) {
            state.faults.spurious += 1;
            return true;
        }
        let until = nanos.map_or(NEVER, |nanos| state.ahead(nanos));
        let ended = world.wait(state, Wait::Condition(condition), until);
        // After a signal, it is a wake-up for no reason.
        ended != Ended::Time
    }

    fn notify(&self, address: usize, all: bool) {
        let Some(world) = enter() else { return };
        world.point();
        let mut state = world.lock();
        let wait = Wait::Condition(address);
        if all {
            return state.wake(|it| it == wait);
        }
        let waiting = state.waiting(wait);
        if !waiting.is_empty() {
            // A condition variable promises nothing about which thread it wakes.
            let which = state.which(waiting.len());
            state.wake_one(waiting[which]);
        }
    }

    fn starts(&self, name: &str) -> bool {
        let Some(world) = enter() else { return true };
        world.point();
        let mut state = world.lock();
        // The runtime must cope without these threads, while it cannot run without workers.
        let is_optional = name.contains("-helper-") || name.contains("-blocking-");
        let chance = state.plan.refuse;
        if is_optional && state.happens(Class::Refusal, chance) {
            state.faults.refused += 1;
            let now = state.now;
            state.faults.refuse_first.get_or_insert(now);
            state.tell(Part::Decided, || format!("{name} is refused"));
            return false;
        }
        if let Some(me) = me() {
            state.threads[me].next_name = Some(name.into());
        }
        true
    }

    fn unparks(&self) -> bool {
        enter().is_some_and(|world| {
            let mut state = world.lock();
            let chance = state.plan.spurious;
            state.happens(Class::Early, chance)
        })
    }

    fn random(&self) -> Option<u64> {
        enter().map(|world| world.lock().rng().u64(..))
    }

    fn watch(&self, probe: Probe) {
        if let Some(world) = enter() {
            if let Some(oracle) = &mut world.lock().oracle {
                oracle.watch(probe);
            }
        }
    }

    fn own(&self, address: usize, make: &mut dyn FnMut() -> *const ()) -> Option<*const ()> {
        let world = enter()?;
        let mut state = world.lock();
        let (host, life) = state.life();
        // The machine that is not described as a host has those of this process.
        if host == 0 {
            return None;
        }
        let known = state.owned.entry((address, host, life));
        // The thread is inside, so what `make` does is no point.
        let own = *known.or_insert_with(|| make().expose_provenance());
        Some(ptr::with_exposed_provenance(own))
    }
}

impl World {
    /// Passes a point at which another thread runs, if there is one.
    pub(crate) fn give_way(&self) {
        let me = me().expect("it is a thread of the world");
        let mut state = self.lock();
        state.pass(me);
        state.gives_way = true;
        // Under priorities, the thread that yields would otherwise be chosen again at once.
        state.demote(me);
        state.threads[me].since = 0;
        self.next(state, me);
    }
}
