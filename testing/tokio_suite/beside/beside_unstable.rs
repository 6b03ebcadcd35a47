//! What needs `tokio_unstable`, where tokio's own tests do not look.

use std::{
    cell::Cell,
    future::{pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    task::Poll,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{Builder, LocalOptions, RngSeed, Runtime, UnhandledPanic},
    task::{LocalSet, spawn_local, yield_now},
};

/// Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn runtimes() -> [Runtime; 2] {
    let mut multi = Builder::new_multi_thread();
    let current = Builder::new_current_thread().enable_all().build().unwrap();
    [current, multi.worker_threads(2).enable_all().build().unwrap()]
}

fn eventually(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn blocking_threads_and_their_queue_are_counted() {
    let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.num_blocking_threads(), 0);
    let (sender, receiver) = mpsc::channel();
    let first = runtime.spawn_blocking(move || receiver.recv().unwrap());
    let second = runtime.spawn_blocking(|| ());
    eventually(|| metrics.blocking_queue_depth() == 1);
    assert_eq!(metrics.num_blocking_threads(), 1);
    assert_eq!(metrics.num_idle_blocking_threads(), 0);
    sender.send(()).unwrap();
    runtime.block_on(first).unwrap();
    runtime.block_on(second).unwrap();
    eventually(|| metrics.num_idle_blocking_threads() == 1);
    assert_eq!(metrics.blocking_queue_depth(), 0);
    drop(runtime);
    assert_eq!(metrics.num_idle_blocking_threads(), 0);
}

#[test]
fn tasks_and_polls_are_counted() {
    for runtime in runtimes() {
        let metrics = runtime.metrics();
        assert_eq!(metrics.spawned_tasks_count(), 0);
        runtime.block_on(async {
            for _ in 0..5 {
                tokio::spawn(tokio::task::yield_now()).await.unwrap();
            }
        });
        assert_eq!(metrics.spawned_tasks_count(), 5);
        drop(runtime);
        let workers = 0..metrics.num_workers();
        let polls: u64 = workers.map(|worker| metrics.worker_poll_count(worker)).sum();
        assert_eq!(polls, 10);
    }
}

#[test]
fn queued_tasks_are_counted() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let metrics = runtime.metrics();
    runtime.block_on(async {
        (0..100).for_each(|_| drop(tokio::spawn(async {})));
        assert_eq!(metrics.worker_local_queue_depth(0), 100);
    });
    drop(runtime);
    assert_eq!(metrics.worker_local_queue_depth(0), 0);
}

/// A worker that is blocked by a task has others in its queue, which its peer takes.
#[test]
fn steals_are_counted() {
    let [_, runtime] = runtimes();
    let metrics = runtime.metrics();
    let task = runtime.spawn(async {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..8 {
            let sender = sender.clone();
            drop(tokio::spawn(async move { sender.send(()).unwrap() }));
        }
        // All but one, which may be the next of this worker alone.
        (0..7).for_each(|_| receiver.recv_timeout(PATIENCE).unwrap());
    });
    runtime.block_on(task).unwrap();
    drop(runtime);
    let sum = |of: fn(&tokio::runtime::RuntimeMetrics, usize) -> u64| -> u64 {
        (0..2).map(|worker| of(&metrics, worker)).sum()
    };
    let jobs = sum(tokio::runtime::RuntimeMetrics::worker_steal_count);
    let operations = sum(tokio::runtime::RuntimeMetrics::worker_steal_operations);
    assert!((1..=jobs).contains(&operations), "{operations} steals of {jobs} jobs");
}

#[test]
fn descriptors_and_their_events_are_counted() {
    for runtime in runtimes() {
        let metrics = runtime.metrics();
        assert_eq!(metrics.io_driver_fd_registered_count(), 0);
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let connecting = TcpStream::connect(listener.local_addr().unwrap());
            let (accepted, connected) = tokio::join!(listener.accept(), connecting);
            assert_eq!(metrics.io_driver_fd_registered_count(), 3);
            assert_eq!(metrics.io_driver_fd_deregistered_count(), 0);
            let before = metrics.io_driver_ready_count();
            let (mut accepted, mut connected) = (accepted.unwrap().0, connected.unwrap());
            // The reader waits before the byte is written, so it needs an event.
            let writing = async {
                yield_now().await;
                connected.write_u8(42).await.unwrap();
            };
            let (byte, ()) = tokio::join!(accepted.read_u8(), writing);
            assert_eq!(byte.unwrap(), 42);
            // tokio counts an event after it has woken the task.
            eventually(|| metrics.io_driver_ready_count() > before);
        });
        assert_eq!(metrics.io_driver_fd_deregistered_count(), 3);
    }
}

/// Counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_panic_cancels_all_tasks_before_block_on_panics() {
    let runtime = Builder::new_current_thread()
        .unhandled_panic(UnhandledPanic::ShutdownRuntime)
        .build()
        .unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let waits = |name: &'static str| {
        let mine = Dropped(dropped.clone());
        async move {
            let _mine = mine;
            assert_eq!(name, "waits", "this task must not run");
            pending::<()>().await;
        }
    };
    let run = || {
        runtime.block_on(async {
            let waiting = tokio::spawn(waits("waits"));
            yield_now().await;
            let panics = tokio::spawn(async { panic!("on purpose") });
            let queued = tokio::spawn(waits("is queued behind"));
            let _ = (waiting, panics, queued);
            pending::<()>().await;
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast_ref::<&str>().copied().map(String::from);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains("shut down on unhandled panic"), "{text}");
    assert_eq!(dropped.load(Relaxed), 2);
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    // The next one panics as soon as its future waits, and no task is taken.
    assert_eq!(runtime.block_on(async { 42 }), 42);
    let late = runtime.spawn(async {});
    let waits = || runtime.block_on(pending::<()>());
    assert!(catch_unwind(AssertUnwindSafe(waits)).is_err());
    assert!(runtime.block_on(late).unwrap_err().is_cancelled());
}

#[test]
fn a_panic_is_ignored_unless_the_builder_says_otherwise() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let other = tokio::spawn(yield_now());
        assert!(tokio::spawn(async { panic!("on purpose") }).await.unwrap_err().is_panic());
        other.await.unwrap();
    });
    let multi = || {
        drop(Builder::new_multi_thread().unhandled_panic(UnhandledPanic::ShutdownRuntime).build());
    };
    assert!(catch_unwind(multi).is_err());
}

#[test]
fn a_panic_on_a_blocking_thread_cancels_nothing() {
    let runtime = Builder::new_current_thread()
        .unhandled_panic(UnhandledPanic::ShutdownRuntime)
        .build()
        .unwrap();
    let job = runtime.spawn_blocking(|| panic!("on purpose"));
    assert!(runtime.block_on(job).unwrap_err().is_panic());
    let task = runtime.spawn(async { 42 });
    assert_eq!(runtime.block_on(task).unwrap(), 42);
}

/// Panics in its destructor.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_panic_of_a_destructor_after_an_abort_cancels_nothing() {
    let runtime = Builder::new_current_thread()
        .unhandled_panic(UnhandledPanic::ShutdownRuntime)
        .build()
        .unwrap();
    runtime.block_on(async {
        let bomb = Bomb;
        let task = tokio::spawn(async move {
            let _bomb = bomb;
            pending::<()>().await;
        });
        yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_panic());
        yield_now().await;
        tokio::spawn(async {}).await.unwrap();
    });
}

#[test]
fn a_panic_cancels_tasks_whose_destructors_panic() {
    let run = || {
        let runtime = Builder::new_current_thread()
            .unhandled_panic(UnhandledPanic::ShutdownRuntime)
            .build()
            .unwrap();
        runtime.block_on(async {
            // More than the stack has room for, if each destructor ran within another.
            for _ in 0..20_000 {
                let bomb = Bomb;
                drop(tokio::spawn(async move {
                    let _bomb = bomb;
                    pending::<()>().await;
                }));
            }
            yield_now().await;
            drop(tokio::spawn(async { panic!("on purpose") }));
            pending::<()>().await;
        });
    };
    std::panic::set_hook(Box::new(|_| ()));
    let panic = catch_unwind(AssertUnwindSafe(run));
    drop(std::panic::take_hook());
    assert!(panic.is_err());
}

/// A set polls 61 tasks at once.
#[test]
fn a_local_set_panics_wherever_the_task_that_panics_is_in_its_queue() {
    let runtime = Builder::new_current_thread().build().unwrap();
    for tasks in [1, 60, 61, 62, 122] {
        let mut set = LocalSet::new();
        set.unhandled_panic(UnhandledPanic::ShutdownRuntime);
        for task in 1..=tasks {
            drop(set.spawn_local(async move { assert_ne!(task, tasks, "on purpose") }));
        }
        let run = || runtime.block_on(set.run_until(pending::<()>()));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }
}

#[test]
fn hooks_are_called_with_the_tasks_of_a_local_runtime() {
    let counts: [Arc<AtomicUsize>; 4] = Default::default();
    let [spawned, begun, over, ended] = counts.clone().map(|count| {
        move |_: &tokio::runtime::TaskMeta<'_>| {
            count.fetch_add(1, Relaxed);
        }
    });
    let runtime = Builder::new_current_thread()
        .on_task_spawn(spawned)
        .on_before_task_poll(begun)
        .on_after_task_poll(over)
        .on_task_terminate(ended)
        .build_local(LocalOptions::default())
        .unwrap();
    let here = Rc::new(Cell::new(0));
    let first = runtime.spawn_local({
        let here = here.clone();
        async move {
            yield_now().await;
            here.set(here.get() + 1);
        }
    });
    runtime.block_on(async {
        first.await.unwrap();
        let here = here.clone();
        // A task that could run anywhere may spawn one that stays here.
        let other = tokio::spawn(async { spawn_local(async {}).await.unwrap() });
        spawn_local(async move { here.set(here.get() + 1) }).await.unwrap();
        other.await.unwrap();
    });
    assert_eq!(here.get(), 2);
    assert_eq!(runtime.metrics().spawned_tasks_count(), 4);
    let counts = counts.map(|count| count.load(Relaxed));
    // The first one yields, and the one that waits for another is polled twice.
    assert_eq!(counts, [4, 6, 6, 4]);
    drop(runtime.spawn_local(async move { here.set(1) }));
    drop(runtime);
}

#[test]
fn a_local_runtime_starts_local_tasks_where_it_is_entered() {
    let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
    let task = {
        let _entered: tokio::runtime::EnterGuard<'_> = runtime.enter();
        spawn_local(async { Rc::new(42) })
    };
    assert_eq!(*runtime.block_on(task).unwrap(), 42);
    // Its handle enters it, too.
    let _entered = runtime.handle().enter();
    let task = spawn_local(async { Rc::new(42) });
    assert_eq!(*runtime.block_on(task).unwrap(), 42);
    let handle = runtime.handle().clone();
    let elsewhere = std::thread::spawn(move || {
        let _entered = handle.enter();
        spawn_local(async {});
    });
    assert!(elsewhere.join().is_err());
}

#[test]
fn a_local_task_of_a_local_runtime_that_has_ended_is_cancelled() {
    let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
    let handle = runtime.handle().clone();
    let task = {
        let _entered = handle.enter();
        drop(runtime);
        spawn_local(async {})
    };
    let other = Builder::new_current_thread().build().unwrap();
    assert!(other.block_on(task).unwrap_err().is_cancelled());
}

/// Returns in which order `select!` polls first.
fn first_branches(seed: Option<&[u8]>) -> Vec<u32> {
    let mut builder = Builder::new_current_thread();
    if let Some(seed) = seed {
        builder.rng_seed(RngSeed::from_bytes(seed));
    }
    let runtime = builder.build().unwrap();
    let mut all = Vec::new();
    for _ in 0..2 {
        all.extend(runtime.block_on(async {
            let mut firsts = Vec::new();
            for _ in 0..32 {
                firsts.push(tokio::select! {
                    _ = poll_fn(|_| Poll::Ready(())) => 0,
                    _ = async {} => 1,
                    _ = async {} => 2,
                    else => 3,
                });
            }
            firsts
        }));
    }
    all
}

#[test]
fn a_seed_decides_the_order_of_branches() {
    let first = first_branches(Some(b"seed"));
    assert_eq!(first, first_branches(Some(b"seed")));
    assert_ne!(first, first_branches(Some(b"other")));
    assert_ne!(first_branches(None), first_branches(None));
    // Each branch is first now and then, and both calls of `block_on` have seeds of their own.
    assert!((0..3).all(|branch| first.contains(&branch)), "{first:?}");
    assert_ne!(first[..32], first[32..]);
}
