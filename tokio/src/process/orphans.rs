//! Processes that were dropped while they ran. The kernel keeps the status of each until it is
//! read, so somebody has to read it.
//!
//! The end of an orphan wakes a waker that reads the status. No task and no thread is needed. If
//! the kernel has no descriptors of processes, or if the runtime has ended, the next orphan or the
//! next process that is started looks after all of them.

use std::{
    process::Child,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Wake, Waker},
};

use super::exit::Exit;

static ORPHANS: Mutex<Vec<Arc<Orphan>>> = Mutex::new(Vec::new());

struct Orphan {
    child: Mutex<Child>,
    exit: Exit,
}

impl Orphan {
    /// Returns whether the process has ended, and reads its status.
    fn is_reaped(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that something else has read the status.
        !matches!(child.try_wait(), Ok(None))
    }
}

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {
        reap();
    }
}

/// Takes a process that runs, and reads its status when it has ended.
pub(crate) fn adopt(child: Child, exit: Exit) {
    let orphan = Arc::new(Orphan {
        child: Mutex::new(child),
        exit,
    });
    {
        let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.push(orphan.clone());
    }
    // Listed before: the end may come at any time. Once is enough, as the end is the only event.
    let waker = Waker::from(orphan.clone());
    _ = orphan.exit.poll(&mut Context::from_waker(&waker));
    reap();
}

/// Reads the status of all orphans that have ended.
pub(crate) fn reap() {
    let ended: Vec<_> = {
        let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, running) = orphans.drain(..).partition(|orphan| orphan.is_reaped());
        *orphans = running;
        ended
    };
    // Their descriptors are closed outside of the lock.
    drop(ended);
}
