//! What a program sees of the runtime, the same on the real tokio and on the package in its place.

use std::{
    any::Any,
    cell::Cell,
    future::{Future, poll_fn},
    io::Write as _,
    mem::MaybeUninit,
    os::unix::net,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::{TcpListener, UdpSocket, UnixListener, UnixStream},
    runtime::{Builder, Handle, Runtime, TryCurrentError},
    sync::{Notify, mpsc},
    task::{LocalSet, coop, spawn_local, yield_now},
    time::{interval, sleep, timeout},
};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Returns the text with which `f` panics.
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let panic: Box<dyn Any + Send> = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => return "no panic".to_string(),
        Err(panic) => panic,
    };
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&'static str>().unwrap().to_string(),
    }
}

#[test]
fn metrics_are_live_and_outlive_the_runtime() {
    for runtime in [current_thread(), multi_thread()] {
        let (kept, gate) = (runtime.metrics(), std::sync::Arc::new(Notify::new()));
        assert_eq!(kept.num_workers(), 1);
        assert_eq!(kept.num_alive_tasks(), 0);
        runtime.block_on(async {
            let of_handle = Handle::current().metrics();
            let wait = |gate: std::sync::Arc<Notify>| async move { gate.notified().await };
            let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(wait(gate.clone()))).collect();
            assert_eq!((kept.num_alive_tasks(), of_handle.num_alive_tasks()), (3, 3));
            let parks = kept.worker_park_count(0);
            while kept.worker_park_count(0) == parks {
                sleep(Duration::from_millis(5)).await;
            }
            while kept.worker_total_busy_duration(0).is_zero() {
                sleep(Duration::from_millis(5)).await;
            }
            gate.notify_waiters();
            for task in tasks {
                task.abort();
                let _ = task.await;
            }
            while kept.num_alive_tasks() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        });
        drop(runtime);
        assert_eq!(kept.num_workers(), 1);
        assert!(kept.worker_park_count(0) > 0);
        // It does not sleep any more.
        assert_eq!(kept.worker_park_unpark_count(0) % 2, 0);
        assert!(kept.worker_park_unpark_count(0) >= 2 * kept.worker_park_count(0));
    }
}

#[test]
fn a_worker_that_sleeps_is_seen() {
    let runtime = multi_thread();
    let metrics = runtime.metrics();
    while metrics.worker_park_unpark_count(0) % 2 == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns how often the caller yields until another task has read what is in its socket.
async fn yields_until_read<F: Future + 'static>(
    spawn: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()>>>) -> F,
) -> usize {
    let (mut ours, theirs) = net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut theirs = UnixStream::from_std(theirs).unwrap();
    let seen = Rc::new(Cell::new(false));
    let flag = seen.clone();
    let _task = spawn(Box::pin(async move {
        theirs.read_exact(&mut [0]).await.unwrap();
        flag.set(true);
    }));
    // The task waits from now on.
    for _ in 0..3 {
        yield_now().await;
    }
    ours.write_all(b"x").unwrap();
    let mut yields = 0;
    while !seen.get() {
        yield_now().await;
        yields += 1;
    }
    yields
}

#[test]
fn a_current_thread_runtime_looks_at_its_sockets_between_yields() {
    let runtime = current_thread();
    // The future of `block_on` yields, and so does a task of a set.
    let yields = LocalSet::new().block_on(&runtime, yields_until_read(|f| spawn_local(f)));
    assert!(yields <= 2, "{yields} yields");
    let set = LocalSet::new();
    let task = set.spawn_local(yields_until_read(|f| spawn_local(f)));
    let yields = runtime.block_on(set.run_until(task)).unwrap();
    assert!(yields <= 2, "{yields} yields");
}

#[test]
fn tasks_that_yield_run_in_turn_and_see_their_sockets() {
    current_thread().block_on(async {
        let (mut ours, theirs) = net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = UnixStream::from_std(theirs).unwrap();
        let (send, read) = mpsc::unbounded_channel();
        let reader = tokio::spawn(async move {
            theirs.readable().await.unwrap();
            send.send(()).unwrap();
        });
        yield_now().await;
        ours.write_all(b"x").unwrap();
        let yielding = (0..3).map(|_| {
            tokio::spawn(async {
                for _ in 0..1000 {
                    yield_now().await;
                }
            })
        });
        let yielding: Vec<_> = yielding.collect();
        let mut yields = 0;
        while read.is_empty() {
            yield_now().await;
            yields += 1;
        }
        assert!(yields <= 3, "{yields} yields");
        reader.await.unwrap();
        for task in yielding {
            task.await.unwrap();
        }
    });
}

/// Returns how many units of the budget this poll has.
fn units(cx: &mut Context<'_>) -> usize {
    let mut units = 0;
    while let Poll::Ready(unit) = coop::poll_proceed(cx) {
        unit.made_progress();
        units += 1;
        assert!(units < 1000, "there is no budget");
    }
    assert!(!coop::has_budget_remaining());
    units
}

/// Returns how many values this poll takes from a channel that has more.
fn values(cx: &mut Context<'_>) -> usize {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    (0..1000).for_each(|n| sender.send(n).unwrap());
    let mut values = 0;
    while pin!(receiver.recv()).poll(cx).is_ready() {
        values += 1;
        assert!(values < 1000, "there is no budget");
    }
    values
}

#[test]
fn a_poll_has_a_budget_of_128() {
    async fn spent() -> [usize; 4] {
        let first = poll_fn(|cx| Poll::Ready(units(cx))).await;
        let again = poll_fn(|cx| Poll::Ready(units(cx))).await;
        yield_now().await;
        let next = poll_fn(|cx| Poll::Ready(units(cx))).await;
        yield_now().await;
        let values = poll_fn(|cx| Poll::Ready(values(cx))).await;
        [first, again, next, values]
    }
    for runtime in [current_thread(), multi_thread()] {
        assert_eq!(runtime.block_on(spent()), [128, 0, 128, 128]);
        let task = runtime.spawn(spent());
        assert_eq!(runtime.block_on(task).unwrap(), [128, 0, 128, 128]);
    }
}

#[test]
fn a_bind_outside_of_a_runtime_panics_after_the_systems_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    assert!(panic_of(|| UnixListener::bind(&path)).contains("there is no reactor running"));
    let error = UnixListener::bind(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let bind = || futures::executor::block_on(UdpSocket::bind("127.0.0.1:0"));
    assert!(panic_of(bind).contains("there is no reactor running"));
}

#[test]
fn what_the_builder_has_not_enabled_panics() {
    for flavor in 0..2 {
        let builder = || match flavor {
            0 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let (io, time) = ("IO is disabled", "timers are disabled");
        let limit = Duration::from_secs(60);

        let runtime = builder().build().unwrap();
        let _entered = runtime.enter();
        assert!(panic_of(|| UdpSocket::from_std(std_socket())).contains(io));
        assert!(panic_of(|| UnixStream::pair()).contains(io));
        assert!(panic_of(|| tokio::net::unix::pipe::pipe()).contains(io));
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        assert!(panic_of(bind).contains(io));
        // The system's error comes first, and a file that was bound stays.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = runtime.block_on(TcpListener::bind(address)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(panic_of(|| UnixListener::bind(&path)).contains(io));
        let error = UnixListener::bind(&path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(panic_of(|| drop(sleep(limit))).contains(time));
        assert!(panic_of(|| drop(interval(limit))).contains(time));
        assert!(panic_of(|| drop(timeout(limit, async {}))).contains(time));

        let runtime = builder().enable_io().build().unwrap();
        let _entered = runtime.enter();
        runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        assert!(panic_of(|| drop(sleep(limit))).contains(time));

        let runtime = builder().enable_time().build().unwrap();
        let _entered = runtime.enter();
        runtime.block_on(async { sleep(Duration::from_millis(1)).await });
        assert!(panic_of(|| UdpSocket::from_std(std_socket())).contains(io));
    }
}

fn std_socket() -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn outside_of_a_runtime_there_is_nothing() {
    let text = "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
    assert_eq!(panic_of(|| drop(sleep(Duration::ZERO))), text);
    assert_eq!(panic_of(|| UdpSocket::from_std(std_socket())), text);
    assert_eq!(panic_of(Handle::current), text);
    let error = Handle::try_current().unwrap_err();
    assert!(error.is_missing_context() && !error.is_thread_local_destroyed());
    assert_eq!(error.to_string(), text);
    let text = "`spawn_local` called from outside of a `task::LocalSet` or `runtime::LocalRuntime`";
    assert!(panic_of(|| spawn_local(async {})).contains(text));
    let outside = async { panic_of(|| spawn_local(async {})) };
    assert!(current_thread().block_on(outside).contains(text));
}

/// Uses the runtime when it is dropped, and notes what came of it.
struct Uses<'a>(&'a Runtime, &'a Cell<Option<String>>);

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        let uses = || {
            assert_eq!(Handle::current().id(), self.0.handle().id());
            let (slept, spawned) = (sleep(Duration::from_millis(1)), tokio::spawn(async { 7 }));
            let output = self.0.block_on(async {
                slept.await;
                spawned.await.unwrap()
            });
            assert_eq!(output, 7);
        };
        self.1.set(Some(panic_of(uses)));
    }
}

#[test]
fn the_future_of_block_on_is_dropped_in_its_runtime_and_may_block() {
    let uses = |poll: fn(&mut Context<'_>) -> Poll<()>, text: &str| {
        let (runtime, other, noted) = (current_thread(), multi_thread(), Cell::new(None));
        // A runtime that the thread has entered is not that of the future.
        for enters in [false, true] {
            let _entered = enters.then(|| other.enter());
            let uses = Uses(&runtime, &noted);
            let future = poll_fn(move |cx| {
                _ = &uses;
                poll(cx)
            });
            assert_eq!(panic_of(|| runtime.block_on(future)), text);
            assert_eq!(noted.take().as_deref(), Some("no panic"));
            assert_eq!(Handle::try_current().is_ok(), enters);
        }
    };
    uses(|_| Poll::Ready(()), "no panic");
    uses(|_| panic!("the future panics"), "the future panics");
}

/// A waker of the first call is woken by the second future, and by another thread while it waits.
#[test]
fn the_waker_of_a_block_on_that_is_over_neither_ends_nor_hinders_the_next_one() {
    let poll = |cx: &mut Context<'_>| Poll::Ready(cx.waker().clone());
    for runtime in [current_thread(), multi_thread()] {
        // The first waker is woken already, or not, before the second call begins.
        for round in 0..100 {
            let first = runtime.block_on(poll_fn(poll));
            if round % 2 == 0 {
                first.wake_by_ref();
            }
            let (sender, mut receiver) = tokio::sync::oneshot::channel();
            let mut stale = Some((first, sender));
            let mut thread = None;
            let second = poll_fn(|cx| {
                let it = Pin::new(&mut receiver).poll(cx);
                if let Some((first, sender)) = stale.take() {
                    first.wake_by_ref();
                    thread = Some(std::thread::spawn(move || {
                        (0..100).for_each(|_| first.wake_by_ref());
                        sender.send(round).unwrap();
                        first.wake();
                    }));
                }
                it
            });
            let limit = Duration::from_secs(60);
            assert_eq!(runtime.block_on(async { timeout(limit, second).await }), Ok(Ok(round)));
            thread.unwrap().join().unwrap();
        }
    }
}

/// Asks for the runtime when it is dropped, and sends the error.
struct Ask(std::sync::mpsc::Sender<Option<TryCurrentError>>);

impl Drop for Ask {
    fn drop(&mut self) {
        self.0.send(Handle::try_current().err()).unwrap();
    }
}

/// Runs a thread that has a variable which asks, before `f` or after it. Returns whether the
/// thread's variables were gone, or `None` if there was a runtime.
fn asked(is_before: bool, f: impl FnOnce() + Send + 'static) -> Option<bool> {
    thread_local!(static ASK: Cell<Option<Ask>> = const { Cell::new(None) });
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let ask = || ASK.set(Some(Ask(sender)));
        if is_before {
            ask();
            f();
        } else {
            f();
            ask();
        }
    });
    thread.join().unwrap();
    let error = receiver.recv().unwrap()?;
    let is_gone = error.is_thread_local_destroyed();
    assert_ne!(error.is_missing_context(), is_gone);
    assert_eq!(error.to_string().contains("destroyed"), is_gone);
    Some(is_gone)
}

#[test]
fn a_destructor_of_a_thread_learns_that_the_runtime_is_gone_with_its_variables() {
    // What was created last is dropped first.
    assert_eq!(asked(true, || {}), Some(false));
    assert_eq!(asked(true, || drop(Handle::try_current())), Some(true));
    for make in [current_thread, multi_thread] {
        assert_eq!(asked(true, move || drop(make().enter())), Some(true));
        assert_eq!(asked(true, move || drop(make().handle().enter())), Some(true));
        assert_eq!(asked(true, move || make().block_on(async {})), Some(true));
        assert_eq!(asked(false, move || drop(make().enter())), Some(false));
        assert_eq!(asked(false, move || make().block_on(async {})), Some(false));
    }
    // A guard that nobody drops keeps the runtime entered, until the variables are gone.
    let runtime: &'static Runtime = Box::leak(Box::new(multi_thread()));
    assert_eq!(asked(false, || std::mem::forget(runtime.enter())), None);
    assert_eq!(asked(true, || std::mem::forget(runtime.enter())), Some(true));
}

/// Returns the cores that a new thread may run on, as a list of the system.
fn cores_of_new_thread() -> String {
    let read = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let status = std::thread::spawn(read).join().unwrap();
    let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:"));
    line.unwrap().to_string()
}

#[test]
fn what_a_task_starts_may_run_on_all_cores() {
    let all = cores_of_new_thread();
    let runtime = Runtime::new().unwrap();
    let task = runtime.spawn(async { cores_of_new_thread() });
    assert_eq!(runtime.block_on(task).unwrap(), all);
}

#[test]
fn the_environment_sets_the_number_of_workers() {
    const NAME: &str = "TOKIO_WORKER_THREADS";
    const THIS: &str = "the_environment_sets_the_number_of_workers";
    // The variable is set for a process that runs this test alone.
    let Ok(value) = std::env::var(NAME) else {
        for value in ["3", "0", "many"] {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let done = command.args(["--exact", THIS]).env(NAME, value).output();
            assert!(done.unwrap().status.success(), "{value}");
        }
        return;
    };
    // The variable is read when the runtime is built.
    let mut builder = Builder::new_multi_thread();
    let mut built = move || builder.build().unwrap();
    match value.as_str() {
        "3" => assert_eq!(built().metrics().num_workers(), 3),
        "0" => assert_eq!(panic_of(built), format!("\"{NAME}\" cannot be set to 0")),
        _ => assert!(panic_of(built).starts_with(&format!("\"{NAME}\" must be usize"))),
    }
    // What the program asks for comes first.
    assert_eq!(multi_thread().metrics().num_workers(), 1);
}

/// To fill a large buffer with zeros before each short read would take longer than the read.
#[test]
fn a_read_leaves_the_rest_of_its_buffer_uninitialized() {
    current_thread().block_on(async {
        let (mut end, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"short").await.unwrap();
        let mut room = [MaybeUninit::uninit(); 8_192];
        let mut buf = ReadBuf::uninit(&mut room);
        let read = poll_fn(|cx| Pin::new(&mut end).poll_read(cx, &mut buf));
        read.await.unwrap();
        assert_eq!(buf.filled(), b"short");
        assert_eq!(buf.initialized().len(), 5);
    });
}
