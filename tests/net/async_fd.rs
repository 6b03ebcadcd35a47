//! Descriptors of other kinds: pipes and eventfds, and those that epoll refuses.

use std::{
    cell::Cell,
    fs::{File, OpenOptions},
    future::{Future, poll_fn},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    panic::catch_unwind,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_lite::future::block_on;
use tourbillon::{
    io::{AsyncFd, Interest, NotPollable, Ready},
    time::{sleep, timeout},
};

use crate::common::{PATIENCE, alarm, on_worker, runtime};

const BRIEF: Duration = Duration::from_millis(5);

/// Returns the reading end and the writing end of a pipe.
fn pipe() -> (File, File) {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    let result = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
    assert_eq!(result, 0);
    // SAFETY: fresh descriptors without another owner.
    fds.map(|fd| unsafe { File::from_raw_fd(fd) }).into()
}

fn eventfd() -> File {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: a fresh descriptor without another owner.
    unsafe { File::from_raw_fd(fd) }
}

async fn read(fd: &AsyncFd<File>, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut guard = fd.readable().await?;
        if let Ok(result) = guard.try_io(|fd| fd.get_ref().read(buf)) {
            return result;
        }
    }
}

async fn write_all(fd: &AsyncFd<File>, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        let mut guard = fd.writable().await?;
        if let Ok(result) = guard.try_io(|fd| fd.get_ref().write(buf)) {
            buf = &buf[result?..];
        }
    }
    Ok(())
}

#[test]
fn megabytes_pass_through_a_pipe() {
    let _alarm = alarm();
    const LEN: usize = 4 << 20;
    let runtime = runtime(2);
    let (reader, writer) = pipe();
    let (reader, writer) = runtime.block_on(async {
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        let writer = AsyncFd::with_interest(writer, Interest::WRITABLE).unwrap();
        (reader, writer)
    });
    let writing = runtime.spawn(async move {
        write_all(&writer, &crate::common::net::pattern(LEN, 5))
            .await
            .unwrap();
    });
    let reading = runtime.spawn(async move {
        let mut received = Vec::new();
        let mut buf = [0; 5000];
        loop {
            match read(&reader, &mut buf).await.unwrap() {
                0 => return received,
                n => received.extend_from_slice(&buf[..n]),
            }
        }
    });
    runtime.block_on(writing).unwrap();
    let received = runtime
        .block_on(timeout(PATIENCE, reading))
        .unwrap()
        .unwrap();
    assert!(
        received == crate::common::net::pattern(LEN, 5),
        "bytes differ"
    );
}

#[test]
fn an_eventfd_wakes_a_waiting_task() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let mut outside = eventfd();
    let inner = outside.try_clone().unwrap();
    let waiting = runtime.spawn(async move {
        let counter = AsyncFd::new(inner).unwrap();
        let mut sum = 0;
        while sum < 100 {
            let mut bytes = [0; 8];
            let add = counter.async_io(Interest::READABLE, |mut fd| fd.read(&mut bytes));
            assert_eq!(add.await.unwrap(), 8);
            sum += u64::from_ne_bytes(bytes);
        }
        sum
    });
    for _ in 0..100 {
        outside.write_all(&1_u64.to_ne_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    let sum = runtime.block_on(timeout(PATIENCE, waiting));
    assert_eq!(sum.unwrap().unwrap(), 100);
}

#[test]
fn readiness_stays_until_it_is_cleared() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (reader, mut writer) = pipe();
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        assert!(timeout(BRIEF, reader.readable()).await.is_err());
        writer.write_all(b"abc").unwrap();
        for _ in 0..3 {
            // The readiness stays if the guard is dropped, or is told to retain it.
            let guard = timeout(PATIENCE, reader.readable()).await.unwrap().unwrap();
            drop(guard);
            let mut guard = timeout(PATIENCE, reader.readable()).await.unwrap().unwrap();
            assert_eq!(guard.ready(), Ready::READABLE);
            assert_eq!(guard.get_inner().as_raw_fd(), guard.get_ref().as_raw_fd());
            guard.retain_ready();
        }
        let mut guard = reader.readable().await.unwrap();
        guard.clear_ready_matching(Ready::WRITABLE);
        let mut guard = reader.readable().await.unwrap();
        // Clear the readiness although there is data. Only new data is reported again.
        guard.clear_ready();
        assert!(timeout(BRIEF, reader.readable()).await.is_err());
        writer.write_all(b"d").unwrap();
        let mut guard = timeout(PATIENCE, reader.readable()).await.unwrap().unwrap();
        let mut buf = [0; 10];
        let result = guard.try_io(|fd| fd.get_ref().read(&mut buf)).unwrap();
        assert_eq!(result.unwrap(), 4);
        let error = guard.try_io(|fd| fd.get_ref().read(&mut buf)).unwrap_err();
        assert!(error.to_string().contains("would block"));
        assert!(timeout(BRIEF, reader.readable()).await.is_err());
    });
}

#[test]
fn an_event_before_readiness_is_cleared_is_not_lost() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (reader, mut writer) = pipe();
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        writer.write_all(b"a").unwrap();
        let mut guard = reader.readable().await.unwrap();
        let mut buf = [0; 10];
        assert_eq!(reader.get_ref().read(&mut buf).unwrap(), 1);
        let blocked = reader.get_ref().read(&mut buf).unwrap_err();
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        writer.write_all(b"b").unwrap();
        // This is long enough for the other worker to see the event. If the worker did not see it,
        // the test would check nothing.
        sleep(4 * BRIEF).await;
        guard.clear_ready();
        let again = timeout(PATIENCE, reader.readable()).await;
        drop(again.expect("the second event stands").unwrap());
    });
}

#[test]
fn either_direction_ends_a_wait_for_both() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let one = AsyncFd::new(one).unwrap();
        let both = Interest::READABLE | Interest::WRITABLE;
        let mut guard = timeout(PATIENCE, one.ready(both)).await.unwrap().unwrap();
        assert_eq!(guard.ready(), Ready::WRITABLE);
        guard.clear_ready();
        assert!(timeout(BRIEF, one.ready(both)).await.is_err());
        other.write_all(b"x").unwrap();
        // Each event reports everything that is ready.
        let guard = timeout(PATIENCE, one.ready(both)).await.unwrap().unwrap();
        assert!(guard.ready().is_readable());
        drop(other);
        let closed = async {
            while !one.ready(both).await.unwrap().ready().is_write_closed() {
                sleep(BRIEF).await;
            }
        };
        timeout(PATIENCE, closed).await.unwrap();
    });
}

#[test]
fn several_tasks_wait_and_a_dropped_wait_takes_nothing() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (reader, mut writer) = pipe();
    let reader = runtime.block_on(async { Arc::new(AsyncFd::new(reader).unwrap()) });
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let reader = reader.clone();
            runtime.spawn(async move {
                let mut byte = [0];
                assert_eq!(read(&reader, &mut byte).await.unwrap(), 1);
                byte[0]
            })
        })
        .collect();
    runtime.block_on(async {
        for _ in 0..5 {
            let mut dropped = pin!(reader.readable());
            poll_fn(|cx| {
                assert!(dropped.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        for i in 0..10 {
            writer.write_all(&[i]).unwrap();
        }
        let mut got = Vec::new();
        for task in waiting {
            got.push(timeout(PATIENCE, task).await.unwrap().unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn poll_methods_wait_and_complete() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (reader, writer) = pipe();
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        let writer = AsyncFd::with_interest(writer, Interest::WRITABLE).unwrap();
        let mut waiting = poll_fn(|cx| Poll::Ready(reader.poll_read_ready(cx).is_pending()));
        assert!((&mut waiting).await);
        let mut guard = poll_fn(|cx| writer.poll_write_ready(cx)).await.unwrap();
        guard
            .try_io(|fd| fd.get_ref().write(b"x"))
            .unwrap()
            .unwrap();
        let guard = poll_fn(|cx| reader.poll_read_ready(cx)).await.unwrap();
        assert!(guard.ready().is_readable());
    });
}

#[test]
fn a_closed_writer_ends_reads_and_a_closed_reader_fails_writes() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (reader, writer) = pipe();
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        let reading = tourbillon::spawn(async move { read(&reader, &mut [0]).await });
        sleep(BRIEF).await;
        drop(writer);
        let n = timeout(PATIENCE, reading).await.unwrap().unwrap();
        assert_eq!(n.unwrap(), 0);

        let (reader, writer) = pipe();
        let writer = AsyncFd::with_interest(writer, Interest::WRITABLE).unwrap();
        let writing = tourbillon::spawn(async move { write_all(&writer, &[0; 1 << 20]).await });
        sleep(BRIEF).await;
        drop(reader);
        let error = timeout(PATIENCE, writing).await.unwrap().unwrap();
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn files_that_epoll_refuses_are_returned_with_an_explanation() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        for path in ["/proc/self/exe", "/"] {
            let file = File::open(path).unwrap();
            let fd = file.as_raw_fd();
            let (file, error) = AsyncFd::try_new(file).unwrap_err().into_parts();
            assert_eq!(file.as_raw_fd(), fd);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.get_ref().is_some_and(|it| it.is::<NotPollable>()));
            assert!(error.to_string().contains("spawn_blocking"));
            let error = AsyncFd::new(file).unwrap_err();
            assert!(error.get_ref().is_some_and(|it| it.is::<NotPollable>()));
        }
        let (reader, _writer) = pipe();
        let reader = Arc::new(OwnedFd::from(reader));
        let watched = AsyncFd::new(reader.clone()).unwrap();
        let error = AsyncFd::new(reader.clone()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        // A descriptor that was given back can be watched again.
        let reader = watched.into_inner();
        AsyncFd::new(reader).unwrap();
    });
}

#[test]
fn waiting_for_an_unwatched_direction_is_an_error() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (reader, _writer) = pipe();
        let mut reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        let error = timeout(PATIENCE, reader.writable()).await.unwrap();
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let io = reader.async_io(Interest::READABLE | Interest::WRITABLE, |_| Ok(()));
        let error = timeout(PATIENCE, io).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("READABLE alone"), "{error}");
        let mut byte = [0];
        let error = reader.try_io(Interest::READABLE, |mut fd| fd.read(&mut byte));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(reader.get_mut().metadata().is_ok());
    });
}

#[test]
fn descriptors_without_a_running_runtime_are_errors() {
    let _alarm = alarm();
    let error = AsyncFd::new(eventfd()).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
    let runtime = runtime(1);
    // A callback creates the descriptor. A task of another runtime waits for it when this one
    // ends.
    let fd = on_worker(&runtime, || Arc::new(AsyncFd::new(eventfd()).unwrap()));
    let away = crate::common::runtime(1);
    let waiting = away.spawn({
        let fd = fd.clone();
        async move { fd.readable().await.map(drop) }
    });
    std::thread::sleep(BRIEF);
    assert!(!waiting.is_finished());
    drop(runtime);
    let waited = away.block_on(timeout(PATIENCE, waiting)).unwrap().unwrap();
    let tried = fd.try_io(Interest::READABLE, |mut fd| fd.read(&mut [0; 8]));
    for error in [
        waited.unwrap_err(),
        block_on(fd.writable()).map(drop).unwrap_err(),
        tried.map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("shut down"), "{error}");
    }
}

/// A FIFO is no longer at its end when the next writer opens it. A read then waits and does not
/// spin.
#[test]
fn a_fifo_can_be_read_again_after_its_writer_closed() {
    let _alarm = alarm();
    let path = std::env::temp_dir().join(format!("tourbillon-fifo-{}", std::process::id()));
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the name is a string that ends in a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let open = |options: &mut OpenOptions| {
        let options = options.custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        options.open(&path).unwrap()
    };
    let runtime = runtime(1);
    runtime.block_on(async {
        let reader = open(OpenOptions::new().read(true));
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        drop(open(OpenOptions::new().write(true)));
        let guard = timeout(PATIENCE, reader.readable()).await.unwrap().unwrap();
        assert!(guard.ready().is_read_closed());
        drop(guard);
        let mut writer = open(OpenOptions::new().write(true));
        let mut buf = [0; 4];
        let read = |mut file: &File| file.read(&mut buf);
        let reading = reader.async_io(Interest::READABLE, read);
        assert!(timeout(BRIEF, reading).await.is_err());
        writer.write_all(b"more").unwrap();
        let reading = reader.async_io(Interest::READABLE, |mut file| file.read(&mut buf));
        assert_eq!(timeout(PATIENCE, reading).await.unwrap().unwrap(), 4);
        assert_eq!(&buf, b"more");
    });
    std::fs::remove_file(&path).unwrap();
}

/// Lends a descriptor until it is taken, and panics then.
struct Lender(Option<File>);

impl AsFd for Lender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it was taken").as_fd()
    }
}

#[test]
fn a_value_that_has_lost_its_descriptor_is_dropped_and_returned() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        // The first descriptor stays open elsewhere, and epoll keeps it. The second one is closed.
        for is_open in [true, false] {
            for into_inner in [false, true] {
                let (reader, mut writer) = pipe();
                let other = is_open.then(|| reader.try_clone().unwrap());
                let mut fd = AsyncFd::new(Lender(Some(reader))).unwrap();
                drop(fd.get_mut().0.take());
                if into_inner {
                    assert!(fd.into_inner().0.is_none());
                } else {
                    drop(fd);
                }
                // The slot in the reactor has its next user. An event of the old descriptor does
                // not reach it.
                let (next, mut next_writer) = pipe();
                let next = AsyncFd::new(next).unwrap();
                writer
                    .write_all(b"1")
                    .unwrap_or_else(|_| assert!(other.is_none()));
                let brief = timeout(BRIEF, read(&next, &mut [0; 2])).await;
                assert!(brief.is_err(), "nothing was written");
                next_writer.write_all(b"2").unwrap();
                let read = timeout(PATIENCE, read(&next, &mut [0; 2])).await;
                assert_eq!(read.expect("it arrives").unwrap(), 1);
            }
        }
        // A value that panics at once was never watched.
        let refused = catch_unwind(|| AsyncFd::new(Lender(None)).map(drop));
        assert!(refused.is_err());
    });
}

/// A task of several threads may wait for a value that it has alone, as on tokio.
#[test]
fn waits_for_a_value_of_one_task_are_send() {
    struct Alone(File, Cell<u8>);
    impl AsFd for Alone {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
    let _alarm = alarm();
    runtime(1).block_on(async {
        let counter = eventfd();
        (&counter).write_all(&1_u64.to_ne_bytes()).unwrap();
        let mut ours = AsyncFd::new(Alone(counter, Cell::new(1))).unwrap();
        let waits = tourbillon::spawn(async move {
            ours.readable_mut().await.unwrap().retain_ready();
            ours.writable_mut().await.unwrap().retain_ready();
            ours.ready_mut(Interest::READABLE)
                .await
                .unwrap()
                .retain_ready();
            ours.get_ref().1.get()
        });
        assert_eq!(waits.await.unwrap(), 1);
    });
}

#[test]
fn the_last_known_readiness_is_told_without_a_wait() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let fd = runtime.block_on(async {
        let (reader, mut writer) = pipe();
        let reader = AsyncFd::with_interest(reader, Interest::READABLE).unwrap();
        let now = || reader.last_readiness(Interest::READABLE).unwrap();
        assert!(now().is_empty());
        writer.write_all(b"x").unwrap();
        drop(reader.readable().await.unwrap());
        assert_eq!(now(), Ready::READABLE);
        // Only an operation that would block clears it.
        assert_eq!(reader.get_ref().read(&mut [0; 8]).unwrap(), 1);
        assert_eq!(now(), Ready::READABLE);
        let again = reader.try_io(Interest::READABLE, |mut reader| reader.read(&mut [0; 8]));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(now().is_empty());
        let error = reader.last_readiness(Interest::WRITABLE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        reader
    });
    drop(runtime);
    assert!(fd.last_readiness(Interest::READABLE).is_err());
}
