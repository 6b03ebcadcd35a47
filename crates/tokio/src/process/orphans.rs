//! Processes that were dropped while they ran. The kernel keeps the status of each until it is
//! read, so somebody has to read it.
//!
//! While the runtime of an orphan runs, its reactor watches the orphan: the end of the process
//! wakes a waker that reads the status. No task and no thread is needed. When the runtime ends, and
//! where the kernel has no descriptors of processes, a thread waits for the orphan, and nothing of
//! the runtime stays.
//!
//! The next orphan and the next process that is started look after all orphans, too: a
//! current-thread runtime may be there and not run, and the system may refuse a thread.

use std::{
    future::poll_fn,
    os::fd::OwnedFd,
    pin::pin,
    process::Child,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker, ready},
    thread,
};

use tourbillon::{io::AsyncFd, task::unconstrained};

use super::exit::Exit;

static ORPHANS: Mutex<Vec<Arc<Orphan>>> = Mutex::new(Vec::new());

/// The stack of a thread that waits for a process.
const STACK: usize = 64 * 1024;

struct Orphan(Mutex<Watched>);

struct Watched {
    /// `None` once its status was read, or a thread waits for it.
    child: Option<Child>,
    /// By which the runtime of the process watches it. The reactor holds the orphan by its waker,
    /// so this is taken out when it is of no more use.
    descriptor: Option<AsyncFd<OwnedFd>>,
}

impl Watched {
    /// Returns whether the status was read, or reads it if the process has ended.
    fn is_reaped(&mut self) -> bool {
        // An error means that something else has read the status.
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        self.child.take_if(|child| !running(child));
        self.child.is_none()
    }

    /// Waits for the end of the process, or of the runtime. Returns whether the status was read.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while let Some(descriptor) = &self.descriptor {
            let Ok(mut ready) = ready!(descriptor.poll_read_ready(cx)) else {
                // The runtime is shut down.
                break;
            };
            // A tracer may keep the status. There is another event when it lets the process go.
            ready.clear_ready();
            if self.is_reaped() {
                break;
            }
        }
        Poll::Ready(self.is_reaped())
    }
}

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

impl Orphan {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the status if the process has ended. Otherwise asks to be woken at its end.
    fn look(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut watched = self.lock();
        // The budget is that of a task that happens to run on this thread.
        let end = pin!(unconstrained(poll_fn(|cx| watched.poll_end(cx))));
        let Poll::Ready(is_reaped) = end.poll(&mut Context::from_waker(&waker)) else {
            return;
        };
        let descriptor = watched.descriptor.take();
        drop(watched);
        // It drops wakers, so no lock is held.
        drop(descriptor);
        if is_reaped {
            self.forget();
        } else {
            self.wait_by_thread();
        }
    }

    /// Starts a thread that waits for the end of the process.
    fn wait_by_thread(self: &Arc<Self>) {
        let orphan = self.clone();
        let wait = move || {
            let child = orphan.lock().child.take();
            orphan.forget();
            // An error means that something else has read the status.
            _ = child.map(|mut child| child.wait());
        };
        // Without a thread the orphan stays in the list.
        _ = thread::Builder::new()
            .name("tokio-orphan".to_owned())
            .stack_size(STACK)
            .spawn(wait);
    }

    /// Takes the orphan off the list.
    fn forget(self: &Arc<Self>) {
        orphans().retain(|orphan| !Arc::ptr_eq(orphan, self));
    }
}

fn orphans() -> MutexGuard<'static, Vec<Arc<Orphan>>> {
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a process that runs, and reads its status when it has ended.
pub(crate) fn adopt(child: Child, exit: Exit) {
    reap();
    let descriptor = match exit {
        Exit::Descriptor(descriptor) => Some(descriptor),
        Exit::Signal(_) => None,
    };
    let child = Some(child);
    let orphan = Arc::new(Orphan(Mutex::new(Watched { child, descriptor })));
    // Listed before the look: the end may come at any time.
    orphans().push(orphan.clone());
    orphan.look();
}

/// Reads the status of all orphans that have ended.
pub(crate) fn reap() {
    let mut ended = Vec::new();
    orphans().retain(|orphan| {
        let mut watched = orphan.lock();
        let is_reaped = watched.is_reaped();
        if is_reaped {
            ended.push(watched.descriptor.take());
        }
        !is_reaped
    });
    // They drop wakers, so no lock is held.
    drop(ended);
}
