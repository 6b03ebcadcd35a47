//! Wakers are user code: they may panic, and no lock is held while they run.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, mpsc},
    task::{Context, RawWaker, RawWakerVTable, Wake, Waker},
    thread,
    time::Duration,
};

use futures_lite::{AsyncRead, Future};
use tourbillon::{Runtime, io::Interest, net::UnixStream};

use crate::common::{HOUR, PATIENCE, woken::Woken};

struct Panics;
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

#[test]
fn a_panicking_waker_does_not_keep_others_from_a_new_timeout() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.handle().enter();
    let (stream, _peer) = UnixStream::pair().unwrap();
    let blocks = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
    let (mut one, mut other) = (
        pin!(stream.async_io(Interest::READABLE, blocks)),
        pin!(stream.async_io(Interest::READABLE, blocks)),
    );
    let panics = Waker::from(Arc::new(Panics));
    let (woken, waker) = Woken::new();
    assert!(
        one.as_mut()
            .poll(&mut Context::from_waker(&panics))
            .is_pending()
    );
    assert!(
        other
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let limit = Some(Duration::from_millis(1));
    let _ = catch_unwind(AssertUnwindSafe(|| stream.set_read_timeout(limit)));
    assert!(woken.count() > 0, "it is told");
}

/// The functions of a waker that reads the timeout of its socket when it is cloned.
static TABLE: RawWakerVTable = RawWakerVTable::new(clone, drop_it, drop_it, drop_it);
fn clone(data: *const ()) -> RawWaker {
    // SAFETY: in this test, the stream outlives all wakers.
    let stream = unsafe { &*data.cast::<UnixStream>() };
    let _ = stream.read_timeout();
    RawWaker::new(data, &TABLE)
}
fn drop_it(_: *const ()) {}

#[test]
fn no_lock_is_held_while_a_waker_is_cloned() {
    let (through, told) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        let _entered = runtime.handle().enter();
        let (stream, _peer) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(HOUR)).unwrap();
        let data: *const UnixStream = &stream;
        // SAFETY: see `clone`.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data.cast(), &TABLE)) };
        let mut cx = Context::from_waker(&waker);
        assert!(
            Pin::new(&mut &stream)
                .poll_read(&mut cx, &mut [0])
                .is_pending()
        );
        through.send(()).unwrap();
    });
    assert!(told.recv_timeout(PATIENCE).is_ok());
}
