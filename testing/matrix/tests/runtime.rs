//! The local runtime, signals and raw descriptors, on Tourbillon under tokio's name.

use std::{
    cell::Cell,
    future::{pending, poll_fn},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    rc::Rc,
    sync::mpsc,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Signal, getpid, kill_process},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Builder, Handle, LocalOptions, LocalRuntime},
    signal::unix::{SignalKind, signal},
    task::{JoinSet, LocalSet, spawn_local, yield_now},
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

/// Looks for a runtime when it is dropped, and tells by a channel.
struct Look(mpsc::Sender<bool>);

impl Drop for Look {
    fn drop(&mut self) {
        let _ = self.0.send(Handle::try_current().is_ok());
    }
}

#[test]
fn destructors_of_tasks_find_the_runtime() {
    let (sender, receiver) = mpsc::channel();
    let look = || Look(sender.clone());
    let task = || {
        let look = look();
        async move {
            pending::<()>().await;
            drop(look);
        }
    };
    let local_set = || {
        let set = LocalSet::new();
        set.spawn_local(task());
        set
    };
    let end: [fn(LocalRuntime); 3] = [
        drop,
        |runtime| runtime.shutdown_timeout(PATIENCE),
        LocalRuntime::shutdown_background,
    ];
    for end in end {
        let runtime = LocalRuntime::new().unwrap();
        runtime.spawn_local(task());
        let in_runtime = task();
        runtime.block_on(async {
            spawn_local(in_runtime);
            // This one has begun, the next one has not.
            yield_now().await;
        });
        runtime.spawn_local(task());
        runtime.spawn_local(local_set());
        runtime.handle().spawn(task());
        end(runtime);
        for _ in 0..5 {
            assert!(receiver.try_recv().expect("the tasks are dropped"));
        }
    }
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().unwrap();
        runtime.spawn(task());
        runtime.block_on(yield_now());
        runtime.spawn(task());
        let mut set = JoinSet::new();
        set.spawn_on(task(), runtime.handle());
        runtime.spawn(async move { set.join_all().await });
        drop(runtime);
        for _ in 0..3 {
            assert!(
                receiver
                    .recv_timeout(PATIENCE)
                    .expect("the tasks are dropped")
            );
        }
    }
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

/// A number of a descriptor, which may be closed.
struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

#[tokio::test]
#[expect(deprecated, reason = "their equals are unsafe")]
async fn what_is_no_descriptor_is_refused() {
    let refused = |error: io::Error| assert_eq!(Errno::from_io_error(&error), Some(Errno::BADF));
    let read = Interest::READABLE;
    refused(AsyncFd::new(-1).unwrap_err());
    refused(AsyncFd::with_interest(-1, read).unwrap_err());
    for error in [
        AsyncFd::try_new(-1).unwrap_err(),
        AsyncFd::try_with_interest(-1, read).unwrap_err(),
        // SAFETY: nothing has this number.
        unsafe { AsyncFd::register(-1) }.unwrap_err(),
        // SAFETY: as above.
        unsafe { AsyncFd::register_with_interest(-1, read) }.unwrap_err(),
    ] {
        let (number, error) = error.into_parts();
        assert_eq!(number, -1);
        refused(error);
    }

    // A descriptor that is closed while it is watched, and which its value no longer names.
    for into_inner in [false, true] {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut fd = AsyncFd::new(Number(ours.as_raw_fd())).unwrap();
        fd.get_mut().0 = -1;
        drop(ours);
        if into_inner {
            assert_eq!(fd.into_inner().0, -1);
        } else {
            drop(fd);
        }
    }
}
