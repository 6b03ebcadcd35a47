//! The local runtime, signals and raw descriptors, on Tourbillon under tokio's name.

use std::{
    cell::Cell,
    future::poll_fn,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    rc::Rc,
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    io::unix::AsyncFd,
    runtime::{Builder, LocalOptions, LocalRuntime},
    signal::unix::{SignalKind, signal},
    task::{spawn_local, yield_now},
    time::timeout,
};

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_local_runtime_runs_tasks_that_are_not_send() {
    let runtime = LocalRuntime::new().unwrap();
    let count = Rc::new(Cell::new(0));
    let counting = || {
        let count = count.clone();
        async move {
            yield_now().await;
            count.set(count.get() + 1);
        }
    };
    let first = runtime.spawn_local(counting());
    let second = {
        let _guard = runtime.enter();
        spawn_local(counting())
    };
    runtime.block_on(async {
        first.await.unwrap();
        second.await.unwrap();
        spawn_local(counting()).await.unwrap();
    });
    assert_eq!(count.get(), 3);
    runtime.shutdown_background();

    let mut builder = Builder::new_current_thread();
    let built = builder.build_local(LocalOptions::default()).unwrap();
    assert_eq!(built.block_on(async { 1 }), 1);
}

#[tokio::test]
async fn signals_are_polled() {
    let mut signals = signal(SignalKind::user_defined1()).unwrap();
    for _ in 0..2 {
        kill_process(getpid(), Signal::USR1).unwrap();
        let received = timeout(PATIENCE, poll_fn(|cx| signals.poll_recv(cx)));
        assert_eq!(received.await, Ok(Some(())));
    }
}

/// A type that names its descriptor, and does not lend it.
#[derive(Debug)]
struct Old(UnixStream);

impl AsRawFd for Old {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[tokio::test]
async fn a_raw_descriptor_is_awaited() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    // SAFETY: the descriptor is that of the stream, which keeps it open.
    let mut fd = unsafe { AsyncFd::register(Old(ours)) }.unwrap();
    theirs.write_all(b"1").unwrap();
    let mut guard = timeout(PATIENCE, fd.readable()).await.unwrap().unwrap();
    let read = guard.try_io(|fd| (&fd.get_ref().0).read(&mut [0; 8]));
    assert_eq!(read.unwrap().unwrap(), 1);
    let nothing = guard.try_io(|fd| (&fd.get_ref().0).read(&mut [0; 8]));
    assert!(
        nothing.is_err(),
        "it would block, and is not ready any more"
    );
    theirs.write_all(b"23").unwrap();
    let mut guard = timeout(PATIENCE, fd.readable_mut()).await.unwrap().unwrap();
    let read = guard.try_io(|fd| fd.get_mut().0.read(&mut [0; 8]));
    assert_eq!(read.unwrap().unwrap(), 2);
    assert!(fd.into_inner().0.peer_addr().is_ok());

    let file = std::fs::File::open("/proc/self/exe").unwrap();
    // SAFETY: as above.
    let error = unsafe { AsyncFd::register(file) }.unwrap_err();
    assert!(error.into_parts().0.metadata().is_ok());
}
