//! Each thread has the context of the runtime that it works for, has entered, or blocks on.

use std::{cell::Cell, sync::mpsc, thread, time::Duration};

use crate::common::{PATIENCE, alarm, eventually, message, on_worker, runtime};
use tourbillon::{Handle, NoRuntime, Runtime, runtime::Builder, task::yield_now};

/// Builds a runtime whose threads all have this name.
fn named(name: &str, workers: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .thread_name(name)
        .build()
        .unwrap()
}

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn tasks_run_on_workers_and_block_on_runs_on_its_caller() {
    let _alarm = alarm();
    let runtime = named("workers", 2);
    let here = thread::current().id();
    runtime.block_on(async {
        assert_eq!(thread::current().id(), here);
        let name = tourbillon::spawn(async { thread_name() });
        assert_eq!(name.await.unwrap(), "workers");
        assert_eq!(thread::current().id(), here);
    });
}

#[test]
fn block_on_accepts_futures_that_borrow_or_are_not_send() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let cell = Cell::new(1);
    let text = String::from("borrowed");
    let answer = runtime.block_on(async {
        yield_now().await;
        cell.set(2);
        &text
    });
    assert_eq!((answer.as_str(), cell.get()), ("borrowed", 2));
}

#[test]
fn block_on_propagates_the_panic_of_its_future() {
    let runtime = runtime(1);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async { panic!("mine") })
    }))
    .unwrap_err();
    assert_eq!(message(&*panic), "mine");
    assert!(Handle::try_current().is_err(), "the context is left");
    assert_eq!(runtime.block_on(async { 3 }), 3);
}

#[test]
fn block_on_in_a_worker_panics_and_the_worker_lives_on() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let inner = handle.clone();
    let task = handle.spawn(async move { inner.block_on(async { 1 }) });
    let error = runtime.block_on(task).unwrap_err();
    assert!(error.to_string().contains("block_on"), "{error}");

    let inner = handle.clone();
    handle.after(Duration::ZERO, move || inner.block_on(async {}));
    eventually("both panics are counted", || {
        runtime.metrics().total().panics() == 2
    });

    // `block_on` panics on a worker of another runtime, too, because that worker has its own work.
    let other = crate::common::runtime(1);
    let task = other.spawn(async move { handle.block_on(async { 1 }) });
    assert!(other.block_on(task).unwrap_err().is_panic());
    assert_eq!(runtime.block_on(runtime.spawn(async { 2 })).unwrap(), 2);
    assert_eq!(other.block_on(other.spawn(async { 3 })).unwrap(), 3);
}

#[test]
fn block_on_can_be_nested_outside_of_workers() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    let names = a.block_on(async {
        let first = tourbillon::spawn(async { thread_name() }).await.unwrap();
        let second = b.block_on(async {
            tourbillon::time::sleep(Duration::from_millis(1)).await;
            tourbillon::spawn(async { thread_name() }).await.unwrap()
        });
        let third = tourbillon::spawn(async { thread_name() }).await.unwrap();
        [first, second, third]
    });
    assert_eq!(names, ["a", "b", "a"]);
}

#[test]
fn runtimes_can_spawn_and_arm_on_each_other() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    let to = b.handle().clone();
    let names = a.block_on(a.spawn(async move {
        let on_b = to.spawn(async { thread_name() }).await.unwrap();
        let entered = {
            let _entered = to.enter();
            tourbillon::spawn(async { thread_name() })
        };
        let (sender, receiver) = mpsc::channel();
        let timer = {
            let _entered = to.enter();
            tourbillon::after(Duration::ZERO, move || sender.send(thread_name()).unwrap())
        };
        let timed = receiver.recv_timeout(PATIENCE).unwrap();
        drop(timer);
        let here = tourbillon::spawn(async { thread_name() }).await.unwrap();
        [on_b, entered.await.unwrap(), timed, here]
    }));
    assert_eq!(names.unwrap(), ["b", "b", "b", "a"]);
}

/// Returns the thread name of the runtime that the calling thread is in.
fn current() -> Option<String> {
    let handle = Handle::try_current().ok()?;
    let (sender, receiver) = mpsc::channel();
    handle.after(Duration::ZERO, move || sender.send(thread_name()).unwrap());
    Some(receiver.recv_timeout(PATIENCE).unwrap())
}

#[test]
fn entered_runtimes_nest() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    {
        let _a = a.enter();
        assert_eq!(current().as_deref(), Some("a"));
        {
            let _b = b.enter();
            assert_eq!(current().as_deref(), Some("b"));
            let _again = a.handle().enter();
            assert_eq!(current().as_deref(), Some("a"));
            b.block_on(async { assert_eq!(current().as_deref(), Some("b")) });
            assert_eq!(current().as_deref(), Some("a"));
        }
        assert_eq!(current().as_deref(), Some("a"));
    }
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
}

/// As in tokio, a guard does not borrow the runtime, so an entered runtime can be moved.
#[test]
fn a_runtime_can_be_shut_down_while_it_is_entered() {
    let _alarm = alarm();
    {
        let theirs = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let _entered = theirs.enter();
        theirs.shutdown_timeout(PATIENCE);
    }

    type End = fn(Runtime);
    let ends: [End; 4] = [
        |runtime| assert!(runtime.shutdown_timeout(PATIENCE)),
        |runtime| assert!(runtime.shutdown_graceful(PATIENCE)),
        |runtime| runtime.shutdown_background(),
        |runtime| drop(runtime),
    ];
    for (way, end) in ends.into_iter().enumerate() {
        {
            let ours = runtime(1);
            let _entered = ours.enter();
            end(ours);
            // The thread is still in the context of that runtime.
            assert!(Handle::try_current().is_ok());
            if way != 2 {
                let refused = futures_lite::future::block_on(tourbillon::spawn(async {}));
                assert!(refused.unwrap_err().is_cancelled());
            }
        }
        assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    }
}

#[test]
fn guards_can_be_dropped_out_of_order() {
    let _alarm = alarm();
    let (a, b) = (named("a", 1), named("b", 1));
    let outer = a.enter();
    let inner = b.enter();
    drop(outer);
    assert_eq!(
        current().as_deref(),
        Some("b"),
        "the inner guard still stands"
    );
    drop(inner);
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    // A guard that is dropped late ends only its own context.
    let first = a.enter();
    let second = b.enter();
    drop(first);
    let third = a.enter();
    drop(second);
    assert_eq!(current().as_deref(), Some("a"));
    drop(third);
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
}

#[test]
fn outside_of_a_runtime_there_is_no_current_handle() {
    assert_eq!(Handle::try_current().err(), Some(NoRuntime));
    let error = NoRuntime.to_string();
    assert!(error.contains("in no Tourbillon runtime"), "{error}");
    let panic = std::panic::catch_unwind(|| drop(Handle::current())).unwrap_err();
    assert!(message(&*panic).contains("in no Tourbillon runtime"));
    let panic = std::panic::catch_unwind(|| drop(tourbillon::spawn(async {}))).unwrap_err();
    assert!(message(&*panic).contains("in no Tourbillon runtime"));
}

#[test]
fn tasks_and_callbacks_have_the_context_of_their_runtime() {
    let _alarm = alarm();
    let runtime = named("mine", 1);
    assert_eq!(
        on_worker(&runtime, || Handle::try_current().is_ok()),
        Handle::try_current().is_err()
    );
    let task = runtime.spawn(async { tourbillon::spawn(async { thread_name() }).await.unwrap() });
    assert_eq!(runtime.block_on(task).unwrap(), "mine");
}
