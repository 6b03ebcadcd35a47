//! The reactor of a worker: an epoll instance and its registered descriptors.
//!
//! Each descriptor is watched edge-triggered from registration to deregistration, sockets for both
//! directions. Its [`Readiness`] records each event until an operation finds that the readiness is
//! used up.

pub(crate) mod bits;
pub(crate) mod readiness;

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, OnceLock, PoisonError},
    task::Waker,
    time::Duration,
};

use slab::Slab;

pub(crate) use self::{
    bits::{Direction, Directions, Ready},
    readiness::Readiness,
};
use crate::{
    error::WatchEnded,
    sys::{
        epoll,
        epoll::{Epoll, Events, Prepared, Timeout},
        eventfd::EventFd,
        sync::{Mutex, thread},
    },
};

/// The epoll token of the worker's eventfd.
pub(crate) const WAKE_TOKEN: u64 = u64::MAX - 1;

/// The epoll tokens of the timerfds of the other clocks.
pub(crate) const CLOCK_TOKENS: [u64; 2] = [u64::MAX - 2, u64::MAX - 3];

/// Marks the token of a watchdog timer, in place of a generation.
const ALARM: u32 = u32::MAX - 1;

/// Marks the token of a worker's epoll instance, in place of a generation.
const FOLLOWED: u32 = u32::MAX - 2;

/// Returns the epoll token of the watchdog timer of `worker`.
pub(crate) fn alarm_token(worker: usize) -> u64 {
    Token::of_worker(worker, ALARM).pack()
}

/// Returns the worker whose watchdog timer has this token, if it is such a token.
pub(crate) fn alarm_of(token: u64) -> Option<usize> {
    Token::unpack(token).worker(ALARM)
}

/// Returns the worker whose epoll instance has this token, if it is such a token.
pub(crate) fn followed_of(token: u64) -> Option<usize> {
    Token::unpack(token).worker(FOLLOWED)
}

/// How many sources are looked at while they are locked: some µs.
const SEEN_AT_ONCE: usize = 128;

/// For how long a worker naps that cannot have an epoll instance. It then looks at everything that
/// could have woken it.
const NAP: Duration = Duration::from_millis(1);

/// An epoll instance with its registrations.
///
/// It begins *closed*, without a descriptor, and opens once: see "Nothing before it is needed" in
/// docs/internals/worker-loop.md.
pub(crate) struct Reactor {
    /// Set under the lock of `sources`.
    opened: OnceLock<Opened>,
    sources: Mutex<Sources>,
}

/// The descriptors of a reactor.
struct Opened {
    epoll: Epoll,
    /// Wakes the worker from epoll.
    eventfd: EventFd,
}

struct Sources {
    slab: Slab<Source>,
    generation: u32,
    closed: bool,
}

struct Source {
    /// Distinguishes this registration from earlier and later ones in the same slot: an event that
    /// was fetched before a descriptor was deregistered must not reach the slot's next user.
    generation: u32,
    fd: RawFd,
    readiness: Arc<Readiness>,
}

/// The address of a source in a reactor: slab index and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    index: u32,
    generation: u32,
}

impl Token {
    /// Returns the token of something that is no source, and belongs to `worker`.
    fn of_worker(worker: usize, generation: u32) -> Self {
        Self {
            index: worker as u32,
            generation,
        }
    }

    /// Returns the worker if this is such a token with this generation.
    fn worker(self, generation: u32) -> Option<usize> {
        (self.generation == generation).then_some(self.index as usize)
    }

    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn unpack(word: u64) -> Self {
        Self {
            index: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

impl Reactor {
    /// Creates a reactor that is closed.
    pub(crate) fn new() -> Self {
        let sources = Sources {
            slab: Slab::new(),
            // A generation tells a token from that of an earlier source in the same slot.
            generation: 0,
            closed: false,
        };
        Self {
            opened: OnceLock::new(),
            sources: Mutex::new(sources),
        }
    }

    /// Opens the reactor if it is closed, and returns its epoll instance. Any thread may call this.
    pub(crate) fn open(&self) -> io::Result<&Epoll> {
        if let Some(opened) = self.opened.get() {
            return Ok(&opened.epoll);
        }
        // One thread at a time.
        let _sources = self.sources();
        if self.opened.get().is_none() {
            let (epoll, eventfd) = (Epoll::new()?, EventFd::new()?);
            // The eventfd is watched edge-triggered: each write is an event, and no thread has to
            // read it.
            epoll.add(eventfd.as_raw_fd(), WAKE_TOKEN, epoll::READABLE)?;
            let _ = self.opened.set(Opened { epoll, eventfd });
        }
        let opened = self.opened.get();
        Ok(&opened.expect("it was just set").epoll)
    }

    /// Opens the reactor of a worker that is about to sleep. If the system refuses a descriptor,
    /// the worker naps in place of the sleep.
    #[cold]
    pub(crate) fn open_or_nap(&self) {
        if self.open().is_err() {
            thread::sleep(NAP);
        }
    }

    /// Returns whether the reactor is open.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// Returns the epoll instance of a reactor that is open.
    fn epoll(&self) -> Option<&Epoll> {
        self.opened.get().map(|opened| &opened.epoll)
    }

    /// Wakes the worker from epoll. A worker whose reactor is closed does not sleep there.
    pub(crate) fn wake(&self) {
        if let Some(opened) = self.opened.get() {
            opened.eventfd.write();
        }
    }

    /// Returns whether events are pending for the worker. Any thread may call this.
    pub(crate) fn has_events(&self) -> bool {
        self.epoll().is_some_and(Epoll::has_events)
    }

    /// Waits until events are pending, and does not take them.
    pub(crate) fn wait_ready(&self) {
        // Ignore an error: the worker must go on, and nothing can handle it.
        let _ = self.epoll().map(Epoll::wait_ready);
    }

    fn sources(&self) -> crate::sys::sync::MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to watch `fd`.
    pub(crate) fn register(
        &self,
        fd: RawFd,
        directions: Directions,
    ) -> io::Result<(Token, Arc<Readiness>)> {
        let readiness = Arc::new(Readiness::new());
        let token = {
            let mut sources = self.sources();
            // Checked under the lock: `close` either finds this source in the slab, or has set the
            // flag.
            if sources.closed {
                return Err(shut_down());
            }
            // The three highest generations are reserved: the highest for the eventfd and the
            // timerfds, the others for the watchdog timers and for instances of workers.
            sources.generation = (sources.generation + 1) % FOLLOWED;
            let generation = sources.generation;
            let index = sources.slab.insert(Source {
                generation,
                fd,
                readiness: readiness.clone(),
            });
            Token {
                index: index as u32,
                generation,
            }
        };
        // Insert first, then watch: an event may arrive as soon as epoll knows the token.
        let add = |epoll: &Epoll| epoll.add(fd, token.pack(), directions.conditions());
        if let Err(error) = self.open().and_then(add) {
            self.forget(token);
            return Err(error);
        }
        Ok((token, readiness))
    }

    /// Stops watching `fd`, which is still open. `None` means that it is not known any more.
    pub(crate) fn deregister(&self, token: Token, fd: Option<RawFd>) {
        // Forget the slot first. An event that epoll reports until the removal finds no source, or
        // one with another generation, and is ignored.
        self.forget(token);
        // Fails only if epoll does not know the descriptor, and then there is nothing to remove.
        let _ = self.epoll().zip(fd).map(|(epoll, fd)| epoll.remove(fd));
    }

    fn forget(&self, token: Token) {
        let mut sources = self.sources();
        // Each token is forgotten once, so the generation matches. The check keeps a mistake
        // elsewhere from removing another source.
        let index = token.index as usize;
        if sources
            .slab
            .get(index)
            .is_some_and(|source| source.generation == token.generation)
        {
            sources.slab.remove(index);
        }
    }

    /// Prepares a wait of at most `timeout`. Returns `None` if the reactor is closed: it has no
    /// events, and no wake-up would end the wait.
    pub(crate) fn prepare(&self, timeout: Timeout) -> Option<Prepared> {
        self.epoll().map(|epoll| epoll.prepare(timeout))
    }

    /// Waits for events as prepared.
    pub(crate) fn wait(&self, events: &mut Events, prepared: Prepared) {
        // The worker must continue even if epoll fails, and no caller could handle the error.
        let waited = self.epoll().map(|epoll| epoll.wait(events, prepared));
        if !matches!(waited, Some(Ok(()))) {
            events.clear();
        }
    }

    /// Takes pending events on behalf of the worker, without waiting.
    ///
    /// Returns whether the caller must wake the worker: a taken event would have woken it.
    pub(crate) fn take(&self, events: &mut Events) -> bool {
        let Some(epoll) = self.epoll() else {
            events.clear();
            return false;
        };
        match epoll.take(events) {
            // Both events are lost to the worker: its timerfd does not fire again, and its eventfd
            // gives no second edge.
            Ok(has_timer) => has_timer || events.iter().any(|it| it.token() == WAKE_TOKEN),
            Err(_) => {
                events.clear();
                false
            }
        }
    }

    /// Makes each event in the instance of `worker`, whose reactor is `other`, an event in this
    /// instance, too. If this instance did so before, it looks anew at what is pending there.
    ///
    /// The other instance ceases to follow this one. Returns whether this instance follows now: the
    /// kernel may refuse it.
    pub(crate) fn follow(&self, other: &Reactor, worker: usize) -> bool {
        let Some((epoll, followed)) = self.epoll().zip(other.epoll()) else {
            return false;
        };
        let token = Token::of_worker(worker, FOLLOWED).pack();
        let add = || epoll.add(followed.as_raw_fd(), token, epoll::READABLE);
        self.unfollow(other);
        // The kernel refuses a circle of instances. One of more than two is not broken here: it is
        // rare, and ends once one of its workers goes on.
        add().is_ok() || (other.unfollow(self) && add().is_ok())
    }

    /// Ends [`follow`](Self::follow). Returns whether the other instance was followed.
    pub(crate) fn unfollow(&self, other: &Reactor) -> bool {
        let both = self.epoll().zip(other.epoll());
        both.is_some_and(|(epoll, followed)| epoll.remove(followed.as_raw_fd()).is_ok())
    }

    /// Records events, and collects the wakers of the tasks that wait for them. The caller wakes
    /// them after unlocking.
    pub(crate) fn dispatch(&self, events: &Events, wakers: &mut Vec<Waker>) -> u64 {
        let mut harvest = events
            .iter()
            // A wake-up has done its work when the worker is awake. If it is the only event, the
            // lock is not taken.
            .filter(|event| event.token() != WAKE_TOKEN)
            .peekable();
        if harvest.peek().is_none() {
            return 0;
        }
        let mut ready = 0;
        // Lock once for the whole batch.
        let sources = self.sources();
        for event in harvest {
            let token = Token::unpack(event.token());
            match sources.slab.get(token.index as usize) {
                // Ignore events of sources that were deregistered meanwhile, and those of alarms,
                // clocks and instances: no source has their generations.
                Some(source) if source.generation == token.generation => {
                    source.readiness.set(event, wakers);
                    ready += 1;
                }
                _ => {}
            }
        }
        ready
    }

    /// Calls `see` for each task that waits for a descriptor: with the data of its waker, the
    /// descriptor, and what it waits for. `see` is called under locks.
    pub(crate) fn see_waiting(&self, mut see: impl FnMut(*const (), RawFd, Directions)) {
        let mut first = 0;
        loop {
            let sources = self.sources();
            if first >= sources.slab.capacity() {
                return;
            }
            // Unlock now and then: the worker may want to dispatch events.
            for index in first..first + SEEN_AT_ONCE {
                if let Some(Source { fd, readiness, .. }) = sources.slab.get(index) {
                    readiness.see_waiting(|data, directions| see(data, *fd, directions));
                }
            }
            first += SEEN_AT_ONCE;
        }
    }

    /// Fails all current and future waits. Returns the wakers of the waiting tasks; the caller
    /// wakes them after unlocking.
    #[must_use]
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut sources = self.sources();
        // Under the lock, so that no source is registered behind this loop.
        sources.closed = true;
        for (_, source) in &sources.slab {
            source.readiness.close(&mut wakers);
        }
        wakers
    }
}

/// Returns the error of operations after their runtime has shut down.
pub(crate) fn shut_down() -> io::Error {
    io::Error::other(WatchEnded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::epoll::Event;

    fn opened() -> Reactor {
        let reactor = Reactor::new();
        reactor.open().unwrap();
        reactor
    }

    /// Returns the tokens of the events that are pending at a reactor.
    fn take(reactor: &Reactor) -> Vec<u64> {
        let mut events = Events::new(8);
        reactor.take(&mut events);
        events.iter().map(Event::token).collect()
    }

    #[test]
    fn a_reactor_that_is_followed_follows_in_turn() {
        let (first, second) = (opened(), opened());
        assert!(first.follow(&second, 2));
        second.wake();
        assert_eq!(take(&first).into_iter().find_map(followed_of), Some(2));
        assert_eq!(take(&second), [WAKE_TOKEN]);
        assert!(second.follow(&first, 1), "it breaks the circle");
        first.wake();
        assert_eq!(take(&second).into_iter().find_map(followed_of), Some(1));
        assert_eq!(take(&first), [WAKE_TOKEN]);
        second.wake();
        assert!(take(&first).is_empty(), "it follows no more");
        assert!(!first.unfollow(&second));
        assert!(second.unfollow(&first));
    }

    #[test]
    fn a_reactor_that_follows_again_is_called_for_what_is_pending() {
        let (first, second) = (opened(), opened());
        second.wake();
        for _ in 0..2 {
            assert!(first.follow(&second, 2));
            assert_eq!(take(&first).into_iter().find_map(followed_of), Some(2));
            assert!(take(&first).is_empty(), "the kernel calls once");
        }
    }

    #[test]
    fn a_reactor_that_cannot_follow_says_so() {
        let three = [opened(), opened(), opened()];
        assert!(three[0].follow(&three[1], 1));
        assert!(three[1].follow(&three[2], 2));
        assert!(!three[2].follow(&three[0], 0), "a circle of three");
        assert!(!three[0].follow(&Reactor::new(), 3), "it is closed");
        assert!(!three[0].follow(&three[0], 0));
    }
}
