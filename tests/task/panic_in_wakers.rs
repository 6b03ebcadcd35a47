//! Lists of wakers, several of which panic: as they are woken, as they are dropped, or as the
//! payload of their panic is dropped. The others are woken and dropped all the same.

use std::{
    fs::File,
    future::Future,
    mem,
    os::{fd::OwnedFd, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind, panic_any},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::common::{alarm, message, runtime};
use tourbillon::{
    io::AsyncFd,
    sync::{Notified, Notify},
    task::LocalSet,
};

/// Counts its wake-ups and its drops.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicUsize; 2]>);

impl Counts {
    /// Returns a waker that counts.
    fn waker(&self) -> Waker {
        Waker::from(Arc::new(Good(self.clone())))
    }

    /// Returns a waker that panics when the last reference to it is dropped.
    fn bomb(&self) -> Waker {
        Waker::from(Arc::new(Bomb(self.clone())))
    }

    fn woken(&self) -> usize {
        self.0[0].load(SeqCst)
    }

    fn dropped(&self) -> usize {
        self.0[1].load(SeqCst)
    }
}

struct Good(Counts);

impl Wake for Good {
    fn wake(self: Arc<Self>) {
        self.0.0[0].fetch_add(1, SeqCst);
    }
}

struct Bomb(Counts);

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        self.0.0[0].fetch_add(1, SeqCst);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.0[1].fetch_add(1, SeqCst);
        panic!("by the destructor");
    }
}

/// A waker whose panic has a payload that panics when it is dropped.
struct Twice;

impl Wake for Twice {
    fn wake(self: Arc<Self>) {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                panic!("by the payload");
            }
        }
        panic_any(Payload);
    }
}

/// Begins to wait, to be woken by `waker`.
fn waits<'a>(notify: &'a Notify, waker: &Waker) -> Pin<Box<Notified<'a>>> {
    let mut notified = Box::pin(notify.notified());
    let poll = notified.as_mut().poll(&mut Context::from_waker(waker));
    assert!(poll.is_pending());
    notified
}

/// Calls `f`, which panics, and returns the payload's text.
fn panic_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    message(&*panic).to_owned()
}

#[test]
fn all_waiters_are_woken_although_payloads_panic() {
    let (notify, counts) = (Notify::new(), Counts::default());
    let (twice, good) = (Waker::from(Arc::new(Twice)), counts.waker());
    let _all = [&twice, &twice, &twice, &good].map(|waker| waits(&notify, waker));
    let first = catch_unwind(AssertUnwindSafe(|| notify.notify_waiters())).unwrap_err();
    // Its destructor panics.
    mem::forget(first);
    assert_eq!(counts.woken(), 1);
}

#[test]
fn wakers_of_forgotten_waits_are_dropped_with_their_notify() {
    let counts = Counts::default();
    let notify = Notify::new();
    for _ in 0..3 {
        mem::forget(waits(&notify, &counts.bomb()));
    }
    assert_eq!(panic_of(|| drop(notify)), "by the destructor");
    assert_eq!((counts.woken(), counts.dropped()), (0, 3));
}

/// Several waits for one set, which is dropped before them.
#[test]
fn wakers_that_wait_for_a_local_set_are_dropped_with_it() {
    let counts = Counts::default();
    let set = Box::new(LocalSet::new());
    set.spawn_local(std::future::pending::<()>());
    for _ in 0..3 {
        let mut wait = Box::pin(set.run_until(std::future::pending::<()>()));
        let bomb = counts.bomb();
        assert!(
            wait.as_mut()
                .poll(&mut Context::from_waker(&bomb))
                .is_pending()
        );
        drop(bomb);
        mem::forget(wait);
    }
    drop(set);
    assert_eq!(counts.dropped(), 3);
}

/// A task that polls a socket for both directions, and drops it.
#[test]
fn wakers_that_wait_for_a_descriptor_are_dropped_with_it() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let counts = Counts::default();
    let (socket, _peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let fd = AsyncFd::new(File::from(OwnedFd::from(socket))).unwrap();
    // It can be written to at once: forget that.
    runtime.block_on(async { fd.writable().await.unwrap().clear_ready() });
    let (reads, writes) = (counts.bomb(), counts.bomb());
    assert!(
        fd.poll_read_ready(&mut Context::from_waker(&reads))
            .is_pending()
    );
    assert!(
        fd.poll_write_ready(&mut Context::from_waker(&writes))
            .is_pending()
    );
    // The descriptor has the last references to them.
    drop((reads, writes));
    let waits = [(); 2].map(|()| {
        let mut wait = Box::pin(fd.readable());
        let bomb = counts.bomb();
        match wait.as_mut().poll(&mut Context::from_waker(&bomb)) {
            Poll::Pending => {}
            Poll::Ready(_) => panic!("it is not readable"),
        }
        wait
    });
    mem::forget(waits);
    assert_eq!(counts.dropped(), 0);
    assert_eq!(panic_of(|| drop(fd)), "by the destructor");
    assert_eq!(counts.dropped(), 4);
}
