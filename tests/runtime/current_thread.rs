//! Runtimes without threads of their own: the thread in `block_on` runs everything.

use std::{
    future::{Future, pending, poll_fn},
    io::{Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::Poll,
    thread,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Runtime, SpawnError, Timer,
    net::{TcpListener, UnixStream},
    runtime::{Builder, RuntimeFlavor, worker_index},
    sync::Notify,
    task::{LocalSet, block_in_place, spawn_blocking, spawn_local, yield_now},
    time::{self, Instant, sleep, timeout},
    timer::Outcome,
};

use crate::common::PATIENCE;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

#[test]
fn tasks_and_callbacks_run_on_the_thread_of_block_on() {
    let runtime = runtime();
    assert_eq!(runtime.runtime_flavor(), RuntimeFlavor::CurrentThread);
    let here = thread::current().id();
    let task = runtime.spawn(async {
        sleep(Duration::from_millis(1)).await;
        tourbillon::spawn(async { thread::current().id() })
            .await
            .unwrap()
    });
    let (sender, receiver) = mpsc::channel();
    let fired = Arc::new(Notify::new());
    let firing = fired.clone();
    let _timer = runtime.handle().after(Duration::from_millis(1), move || {
        sender.send(thread::current().id()).unwrap();
        firing.notify_one();
    });
    runtime.block_on(async {
        assert_eq!(task.await.unwrap(), here);
        fired.notified().await;
    });
    assert_eq!(receiver.try_recv(), Ok(here));
}

#[test]
fn nothing_runs_between_two_calls_of_block_on() {
    let runtime = runtime();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let task = runtime.spawn(async move {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let counted = runs.clone();
    let timer = runtime.handle().after(Duration::ZERO, move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    thread::sleep(Duration::from_millis(20));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    runtime.block_on(async {
        task.await.unwrap();
        while timer.is_pending() {
            yield_now().await;
        }
    });
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[test]
fn a_future_that_wakes_itself_does_not_starve_tasks_timers_and_sockets() {
    let runtime = runtime();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = tourbillon::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            sleep(Duration::from_millis(1)).await;
            stream.write_all(&bytes).await.unwrap();
        });
        let client = thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(addr).unwrap();
            stream.write_all(b"ping").unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).unwrap();
            bytes
        });
        while !echo.is_finished() {
            yield_now().await;
        }
        assert_eq!(&client.join().unwrap(), b"ping");
    });
}

/// Returns how often the caller yields until a task of `spawn` has read what is in its socket.
async fn yields_until_read(spawn: impl FnOnce(LocalReader)) -> usize {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut theirs = UnixStream::from_std(theirs).unwrap();
    let seen = Arc::new(AtomicBool::new(false));
    let flag = seen.clone();
    spawn(Box::pin(async move {
        theirs.read_exact(&mut [0]).await.unwrap();
        flag.store(true, Ordering::Relaxed);
    }));
    // The task waits from now on.
    for _ in 0..3 {
        yield_now().await;
    }
    ours.write_all(b"x").unwrap();
    let mut yields = 0;
    while !seen.load(Ordering::Relaxed) {
        yield_now().await;
        yields += 1;
    }
    yields
}

type LocalReader = Pin<Box<dyn Future<Output = ()> + Send>>;

// tokio's runtime does so, too. Otherwise a task that yields until it sees something waits 61 times
// as long as it need.
#[test]
fn the_sockets_come_before_a_task_that_yields() {
    let runtime = runtime();
    let spawn = |reader| drop(tourbillon::spawn(reader));
    assert!(runtime.block_on(yields_until_read(spawn)) <= 2);
    let task = runtime.spawn(yields_until_read(spawn));
    assert!(runtime.block_on(task).unwrap() <= 2);
    let spawn = |reader| drop(spawn_local(reader));
    let set = LocalSet::new();
    let yields = runtime.block_on(set.run_until(yields_until_read(spawn)));
    assert!(yields <= 2);
    let task = set.spawn_local(yields_until_read(spawn));
    assert!(runtime.block_on(set.run_until(task)).unwrap() <= 2);
}

#[test]
fn a_yield_of_the_future_lets_tasks_from_outside_run_first() {
    let runtime = runtime();
    runtime.block_on(yield_now());
    let polls = Arc::new(AtomicUsize::new(0));
    for n in 1..=5 {
        let counted = polls.clone();
        // This thread is not in `block_on`, so the task goes to the queue for remote threads.
        runtime.spawn(async move { counted.fetch_add(1, Ordering::Relaxed) });
        assert_eq!(polls.load(Ordering::Relaxed), n - 1);
        runtime.block_on(yield_now());
        assert_eq!(polls.load(Ordering::Relaxed), n);
    }
}

#[test]
fn each_worker_has_an_index() {
    assert_eq!(worker_index(), None);
    let current = runtime();
    assert_eq!(current.block_on(async { worker_index() }), Some(0));
    // A thread that waits for its turn in `block_on` is no worker.
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    thread::scope(|scope| {
        let (current, entered, release) = (&current, &entered, &release);
        let first = scope.spawn(move || {
            current.block_on(async {
                entered.notify_one();
                release.notified().await;
                worker_index()
            })
        });
        Runtime::new().unwrap().block_on(entered.notified());
        assert_eq!(current.block_on(async { worker_index() }), None);
        release.notify_one();
        assert_eq!(first.join().unwrap(), Some(0));
    });
    let two = Builder::new().worker_threads(2).build().unwrap();
    two.block_on(async {
        assert_eq!(worker_index(), None);
        assert_eq!(spawn_blocking(worker_index).await.unwrap(), None);
        let index = tourbillon::spawn(async { worker_index() }).await.unwrap();
        assert!(index.is_some_and(|index| index < 2));
    });
}

#[test]
fn another_thread_wakes_the_future_and_spawns_while_the_worker_sleeps() {
    let runtime = runtime();
    for _ in 0..200 {
        let notify = Arc::new(Notify::new());
        let (handle, waking) = (runtime.handle().clone(), notify.clone());
        let other = thread::spawn(move || {
            let task = handle.spawn(async { 1 });
            waking.notify_one();
            task
        });
        runtime.block_on(notify.notified());
        assert_eq!(runtime.block_on(other.join().unwrap()).unwrap(), 1);
    }
}

#[test]
fn several_threads_in_block_on_take_turns() {
    let runtime = Arc::new(runtime());
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let runtime = runtime.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    let sum = runtime.block_on(async move {
                        let task = tourbillon::spawn(async move {
                            sleep(Duration::from_micros(200)).await;
                            number
                        });
                        task.await.unwrap() + round
                    });
                    assert_eq!(sum, number + round);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_waiting_thread_takes_over_when_the_worker_leaves() {
    let runtime = Arc::new(runtime());
    let leave = Arc::new(Notify::new());
    let (leaving, first) = (leave.clone(), runtime.clone());
    let (sender, is_worker) = mpsc::channel();
    let first = thread::spawn(move || {
        first.block_on(async {
            sender.send(()).unwrap();
            leaving.notified().await;
        });
    });
    is_worker.recv_timeout(PATIENCE).unwrap();
    let (sender, polled) = mpsc::channel();
    let second = runtime.clone();
    let second = thread::spawn(move || {
        second.block_on(async move {
            sender.send(()).unwrap();
            // Only a worker fires this sleep, so the second thread must become the worker.
            sleep(Duration::from_millis(20)).await;
        });
    });
    polled.recv_timeout(PATIENCE).unwrap();
    leave.notify_one();
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_paused_clock_advances_while_the_future_waits() {
    let runtime = Builder::new_current_thread()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let task = tourbillon::spawn(sleep(Duration::from_secs(1800)));
        sleep(Duration::from_secs(3600)).await;
        assert!(task.is_finished());
        assert_eq!(start.elapsed(), Duration::from_secs(3600));
        time::advance(Duration::from_secs(60)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(3660));
        let waited = spawn_blocking(|| thread::sleep(Duration::from_millis(20)));
        assert!(timeout(Duration::from_secs(1), waited).await.is_ok());
    });
}

#[test]
fn a_panic_goes_to_the_caller_and_leaves_the_runtime_usable() {
    let runtime = runtime();
    let panics = || runtime.block_on(async { panic!("of the future") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let task = runtime.spawn(async { panic!("of a task") });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    assert_eq!(
        runtime.block_on(async { tourbillon::spawn(async { 7 }).await.unwrap() }),
        7
    );
}

#[test]
fn shutdown_drops_tasks_and_tells_timers_on_the_calling_thread() {
    struct Drops(mpsc::Sender<thread::ThreadId>);
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    for polls in [false, true] {
        let runtime = runtime();
        let (sender, dropped) = mpsc::channel();
        let drops = Drops(sender);
        let task = runtime.spawn(async move {
            let _drops = drops;
            pending::<()>().await;
        });
        let (sender, outcome) = mpsc::channel();
        let _timer = Timer::after(Duration::from_secs(3600))
            .on(runtime.handle())
            .start_with(move |how| sender.send(how).unwrap());
        if polls {
            runtime.block_on(yield_now());
        }
        drop(runtime);
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
        assert_eq!(outcome.try_recv(), Ok(Outcome::Shutdown));
        assert!(task.is_finished());
    }
}

#[test]
fn a_graceful_shutdown_runs_the_tasks() {
    let runtime = runtime();
    let ended = Arc::new(AtomicBool::new(false));
    let ending = ended.clone();
    drop(runtime.spawn(async move {
        sleep(Duration::from_millis(5)).await;
        spawn_blocking(move || ending.store(true, Ordering::Relaxed))
            .await
            .unwrap();
    }));
    assert!(runtime.shutdown_graceful(PATIENCE));
    assert!(ended.load(Ordering::Relaxed));
}

#[test]
fn accepted_blocking_jobs_run_before_the_drop_returns() {
    let runtime = runtime();
    let (sender, receiver) = mpsc::channel();
    drop(runtime.spawn_blocking(move || sender.send(1).unwrap()));
    drop(runtime);
    assert_eq!(receiver.try_recv(), Ok(1));
}

#[test]
fn local_sets_work_and_pinned_tasks_are_refused() {
    let runtime = runtime();
    let set = LocalSet::new();
    let number = set.block_on(&runtime, async { spawn_local(async { 3 }).await.unwrap() });
    assert_eq!(number, 3);
    let refused = runtime.handle().spawn_pinned_by_idx(|| async {}, 0);
    assert_eq!(refused.unwrap_err(), SpawnError::CurrentThread);
    let cancelled = runtime.handle().spawn_pinned(|| async {});
    assert!(runtime.block_on(cancelled).unwrap_err().is_cancelled());
}

#[test]
fn block_on_within_block_on_panics() {
    let runtime = runtime();
    let nested = || runtime.block_on(async { runtime.block_on(async {}) });
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    let nested = || runtime.block_on(async { block_in_place(|| runtime.block_on(async {})) });
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    assert_eq!(runtime.block_on(async { block_in_place(|| 5) }), 5);
}

#[test]
fn block_on_works_in_the_context_of_another_runtime() {
    let (outer, inner) = (Runtime::new().unwrap(), runtime());
    let id = inner.handle().id();
    let found = outer.block_on(async {
        inner.block_on(async {
            let task = tourbillon::spawn(async { tourbillon::Handle::current().id() });
            task.await.unwrap()
        })
    });
    assert_eq!(found, id);
    // On a worker of the other runtime, the drop ends `inner` without waiting.
    outer
        .block_on(outer.spawn(async move { drop(inner) }))
        .unwrap();
}

#[test]
fn the_future_is_dropped_in_the_context_of_its_runtime() {
    struct Spawns;
    impl Drop for Spawns {
        fn drop(&mut self) {
            drop(tourbillon::spawn(async {}));
        }
    }
    let spawns = Spawns;
    runtime().block_on(poll_fn(move |_| {
        let _ = &spawns;
        Poll::Ready(())
    }));
}

#[cfg(feature = "macros")]
#[tourbillon::test(flavor = "current_thread", start_paused = true)]
async fn a_test_can_have_this_flavor() {
    let here = thread::current().id();
    let task = tourbillon::spawn(async move {
        sleep(Duration::from_secs(60)).await;
        thread::current().id()
    });
    assert_eq!(task.await.unwrap(), here);
}
