//! What lives on one thread, and says so if it is met on another.

use std::{
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
    thread::{self, ThreadId},
};

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

    /// One whose home is the calling thread.
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

    /// All have been dropped, and none was ever met elsewhere than at home.
    #[track_caller]
    pub fn assert_all_dropped_at_home(&self) {
        assert_eq!(self.dropped(), self.made(), "all are dropped");
        assert_eq!(self.0.strayed.load(SeqCst), 0, "on their own threads");
    }
}

/// What is not `Send`, and counts if it finds itself on another thread.
#[derive(Debug)]
pub struct Resident {
    home: ThreadId,
    homes: Homes,
    _not_send: Rc<()>,
}

impl Resident {
    /// Looks where it is.
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

/// Wakers of tasks, for whoever wants to wake them.
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
}
