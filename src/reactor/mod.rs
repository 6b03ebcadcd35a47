//! The reactor of one worker: its epoll instance, and what is registered there.
//!
//! Descriptors are watched edge-triggered from registration to the end, sockets for both directions;
//! what was seen is kept in each [`Readiness`] until an operation finds that it is used up.

pub(crate) mod readiness;
pub(crate) mod registration;
pub(crate) mod timeouts;

use std::{
    io,
    os::fd::RawFd,
    sync::{Arc, PoisonError},
    task::Waker,
};

use slab::Slab;

pub(crate) use self::{
    readiness::{Direction, Directions, Readiness, Ready},
    registration::Registration,
};
use crate::sys::{
    epoll::{Epoll, Events, Timeout},
    sync::Mutex,
};

/// The token of the worker's eventfd.
pub(crate) const WAKE_TOKEN: u64 = u64::MAX - 1;

/// The tokens of the timerfds of the other clocks.
pub(crate) const CLOCK_TOKENS: [u64; 2] = [u64::MAX - 2, u64::MAX - 3];

/// In the place of the generation, in the tokens of the workers' alarms.
const ALARM: u32 = u32::MAX - 1;

/// The token of the alarm of a worker.
pub(crate) fn alarm_token(worker: usize) -> u64 {
    Token {
        index: worker as u32,
        generation: ALARM,
    }
    .pack()
}

/// Which worker's alarm it is that has this token, if it is one.
pub(crate) fn alarm_of(token: u64) -> Option<usize> {
    let token = Token::unpack(token);
    (token.generation == ALARM).then_some(token.index as usize)
}

/// An epoll instance with its registrations.
pub(crate) struct Reactor {
    epoll: Epoll,
    sources: Mutex<Sources>,
}

struct Sources {
    slab: Slab<Source>,
    generation: u32,
    closed: bool,
}

struct Source {
    /// Tells this registration from others that had or will have its place: an event that was
    /// harvested before a descriptor was deregistered must not reach its successor.
    generation: u32,
    readiness: Arc<Readiness>,
}

/// Where a source stands in a reactor: slab index and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    index: u32,
    generation: u32,
}

impl Token {
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
    pub(crate) fn new(pwait2: bool) -> io::Result<Self> {
        let sources = Sources {
            slab: Slab::new(),
            generation: 0,
            closed: false,
        };
        Ok(Self {
            epoll: Epoll::new(pwait2)?,
            sources: Mutex::new(sources),
        })
    }

    pub(crate) fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn sources(&self) -> crate::sys::sync::MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches `fd` from now on.
    fn register(&self, fd: RawFd, directions: Directions) -> io::Result<(Token, Arc<Readiness>)> {
        let readiness = Arc::new(Readiness::new());
        let token = {
            let mut sources = self.sources();
            if sources.closed {
                return Err(shut_down());
            }
            // The largest stands in the tokens of the eventfd and of the timerfds, the one below in those
            // of the alarms.
            sources.generation = (sources.generation + 1) % ALARM;
            let generation = sources.generation;
            let index = sources.slab.insert(Source {
                generation,
                readiness: readiness.clone(),
            });
            Token {
                index: index as u32,
                generation,
            }
        };
        if let Err(error) = self.epoll.add(fd, token.pack(), directions.conditions()) {
            self.forget(token);
            return Err(error);
        }
        Ok((token, readiness))
    }

    /// Watches `fd`, which is still open, no more.
    fn deregister(&self, token: Token, fd: RawFd) {
        self.forget(token);
        // Fails only if the descriptor is not there, which is as well.
        let _ = self.epoll.remove(fd);
    }

    fn forget(&self, token: Token) {
        let mut sources = self.sources();
        let index = token.index as usize;
        if sources
            .slab
            .get(index)
            .is_some_and(|source| source.generation == token.generation)
        {
            sources.slab.remove(index);
        }
    }

    /// Waits for events, for `timeout` at most.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Timeout) {
        // Whatever is wrong with the instance, the worker has to go on; there is nobody to tell.
        if self.epoll.wait(events, timeout).is_err() {
            events.clear();
        }
    }

    /// Takes events in the place of the worker, without waiting; true if it has to be woken, because
    /// what would have woken it is among them.
    pub(crate) fn take(&self, events: &mut Events) -> bool {
        match self.epoll.take(events) {
            Ok(has_timer) => has_timer || events.iter().any(|it| it.token() == WAKE_TOKEN),
            Err(_) => {
                events.clear();
                false
            }
        }
    }

    /// Notes what happened, and collects who waited for it. The caller wakes them, under no lock.
    pub(crate) fn dispatch(&self, events: &Events, wakers: &mut Vec<Waker>) {
        let mut harvest = events
            .iter()
            .filter(|event| event.token() != WAKE_TOKEN)
            .peekable();
        if harvest.peek().is_none() {
            return;
        }
        // One lock for all of them.
        let sources = self.sources();
        for event in harvest {
            let token = Token::unpack(event.token());
            match sources.slab.get(token.index as usize) {
                Some(source) if source.generation == token.generation => {
                    source.readiness.set(event, wakers);
                }
                _ => {}
            }
        }
    }

    /// Fails all that wait here, and all that will. The caller wakes those that wait, under no lock.
    #[must_use]
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut sources = self.sources();
        sources.closed = true;
        for (_, source) in &sources.slab {
            source.readiness.close(&mut wakers);
        }
        wakers
    }
}

/// What operations find whose runtime has ended.
pub(crate) fn shut_down() -> io::Error {
    io::Error::other("the runtime that watched this descriptor has been shut down")
}
