//! Values that live on one thread, and count each time they are met on another.

use std::{
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
    thread::{self, ThreadId},
};

use super::eventually;

/// Counts [residents](Resident).
#[derive(Clone, Debug, Default)]
pub struct Homes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
    strayed: AtomicUsize,
}

impl Homes {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a resident whose home is the calling thread.
    pub fn resident(&self) -> Resident {
        self.0.made.fetch_add(1, SeqCst);
        Resident {
            home: thread::current().id(),
            homes: self.clone(),
            _not_send: Rc::new(()),
        }
    }

    pub fn made(&self) -> usize {
        self.0.made.load(SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.0.dropped.load(SeqCst)
    }

    /// Checks that all were dropped, and that none was ever met away from its home.
    #[track_caller]
    pub fn assert_all_dropped_at_home(&self) {
        assert_eq!(self.dropped(), self.made(), "all are dropped");
        assert_eq!(self.0.strayed.load(SeqCst), 0, "on their own threads");
    }
}

/// A value that is not `Send`, and counts each time it is met on another thread.
#[derive(Debug)]
pub struct Resident {
    home: ThreadId,
    homes: Homes,
    _not_send: Rc<()>,
}

impl Resident {
    /// Checks that the calling thread is its home.
    pub fn look(&self) {
        if thread::current().id() != self.home {
            self.homes.0.strayed.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.look();
        self.homes.0.dropped.fetch_add(1, SeqCst);
    }
}

/// Wakers of tasks, for other threads.
#[derive(Clone, Default)]
pub struct Wakers(Arc<Mutex<Vec<Waker>>>);

impl Wakers {
    pub fn add(&self, waker: &Waker) {
        self.0.lock().unwrap().push(waker.clone());
    }

    pub fn all(&self) -> Vec<Waker> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Runs `body` while four threads wake all tasks over and over.
    pub fn storm(&self, body: impl FnOnce()) {
        const THREADS: usize = 4;
        let wakers = self.all();
        let (over, started) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    started.fetch_add(1, SeqCst);
                    while !over.load(SeqCst) {
                        wakers.iter().for_each(Waker::wake_by_ref);
                    }
                });
            }
            eventually("the storm has begun", || started.load(SeqCst) == THREADS);
            body();
            over.store(true, SeqCst);
        });
    }
}
