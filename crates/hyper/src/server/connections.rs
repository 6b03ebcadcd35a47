//! A registry of the open connections, which tells them that the server closes.

use std::{
    fmt,
    future::poll_fn,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use slab::Slab;
use tourbillon_sync::foreign::each;

/// The open connections of a server. Clones refer to the same ones.
#[derive(Clone, Default)]
pub struct Connections(Arc<Inner>);

#[derive(Default)]
struct Inner {
    closing: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The connections, each with its waker once its task has looked at its guard.
    tasks: Slab<Option<Waker>>,
    /// The tasks that wait until at most this many connections are open.
    waiting: Vec<(usize, Waker)>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection among a server's [`Connections`]. Dropping it removes the connection.
pub struct ConnectionGuard {
    connections: Connections,
    key: usize,
    /// Whether its waker is among `connections`. A task keeps one waker for life.
    known: AtomicBool,
}

impl Connections {
    /// Adds a connection.
    pub fn add(&self) -> ConnectionGuard {
        ConnectionGuard {
            connections: self.clone(),
            key: self.0.lock().tasks.insert(None),
            known: AtomicBool::new(false),
        }
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// Tells all connections that the server closes, and returns their number. Further calls wake
    /// them again.
    pub fn close(&self) -> usize {
        let mut open = self.0.lock();
        self.0.closing.store(true, Ordering::Release);
        let tasks = open.tasks.iter_mut();
        let wakers: Vec<_> = tasks.filter_map(|(_, waker)| waker.take()).collect();
        let count = open.tasks.len();
        drop(open);
        // Wakers are user code: wake after unlocking.
        each(wakers, Waker::wake);
        count
    }

    /// Waits until at most `count` connections are open. Dropping the future while it waits is
    /// without effect.
    pub async fn at_most(&self, count: usize) {
        poll_fn(|cx| {
            // Wakers are user code: clone before locking, drop after unlocking.
            let mut waker = Some(cx.waker().clone());
            let mut open = self.0.lock();
            if open.tasks.len() <= count {
                return Poll::Ready(());
            }
            // Each task is listed once, however often it is polled.
            let mut waiting = open.waiting.iter();
            if !waiting.any(|(_, known)| known.will_wake(cx.waker())) {
                open.waiting
                    .extend(waker.take().map(|waker| (count, waker)));
            }
            Poll::Pending
        })
        .await;
    }
}

impl ConnectionGuard {
    /// Returns whether the server closes. If not, its close wakes the task of `cx`. A connection
    /// must always pass the context of one task.
    pub fn is_closing(&self, cx: &Context<'_>) -> bool {
        let closing = &self.connections.0.closing;
        // A close takes the waker, so the next close needs it again.
        if !self.known.load(Ordering::Relaxed) || closing.load(Ordering::Relaxed) {
            self.known.store(true, Ordering::Relaxed);
            // Wakers are user code: clone before locking, drop after unlocking.
            let waker = cx.waker().clone();
            // `close` sets the flag under this lock. So either it finds the waker, or the load
            // below sees the flag.
            let before = self.connections.0.lock().tasks[self.key].replace(waker);
            drop(before);
        }
        closing.load(Ordering::Acquire)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut open = self.connections.0.lock();
        let own = open.tasks.remove(self.key);
        let left = open.tasks.len();
        // Those whose limit is reached poll again. The others wait on.
        let waiting = mem::take(&mut open.waiting).into_iter();
        let (woken, waits_on): (Vec<_>, _) = waiting.partition(|(count, _)| left <= *count);
        open.waiting = waits_on;
        drop(open);
        drop(own);
        each(woken, |(_, waker)| waker.wake());
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("open", &self.count())
            .finish()
    }
}

impl fmt::Debug for ConnectionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGuard").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind, panic_any},
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::Wake,
    };

    use super::*;

    /// Counts its calls, and panics if asked to.
    #[derive(Default)]
    struct Told {
        panics: bool,
        times: AtomicUsize,
    }

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.times.fetch_add(1, Relaxed);
            assert!(!self.panics, "as planned");
        }
    }

    #[test]
    fn each_close_wakes_each_connection() {
        let connections = Connections::default();
        let told = Arc::new(Told::default());
        let waker = Waker::from(told.clone());
        let guard = connections.add();
        let is_closing = || guard.is_closing(&Context::from_waker(&waker));
        assert!(!is_closing());
        for times in 1..=2 {
            assert_eq!(connections.close(), 1);
            assert_eq!(told.times.load(Relaxed), times);
            assert!(is_closing());
        }
        drop(guard);
        assert_eq!(connections.close(), 0);
        assert_eq!(told.times.load(Relaxed), 2);
    }

    #[test]
    fn a_waker_that_panics_keeps_no_connection_from_being_woken() {
        let connections = Connections::default();
        let told = [true, false, true, false].map(|panics| {
            let told = Told {
                panics,
                ..Told::default()
            };
            Arc::new(told)
        });
        let guards = told.each_ref().map(|told| {
            let guard = connections.add();
            let waker = Waker::from(told.clone());
            assert!(!guard.is_closing(&Context::from_waker(&waker)));
            guard
        });
        catch_unwind(AssertUnwindSafe(|| connections.close())).unwrap_err();
        assert!(told.iter().all(|told| told.times.load(Relaxed) == 1));
        assert_eq!(connections.count(), guards.len());
    }

    #[test]
    fn a_connection_that_leaves_while_its_thread_unwinds_adds_no_panic() {
        let connections = Connections::default();
        let told = Told {
            panics: true,
            ..Told::default()
        };
        let told = Arc::new(told);
        let guard = connections.add();
        let mut at_most = pin!(connections.at_most(0));
        let waker = Waker::from(told.clone());
        let polled = at_most.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _guard = guard;
            panic_any(7);
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(told.times.load(Relaxed), 1);
    }
}
