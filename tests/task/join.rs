//! A task runs once to its end, joined or not, and its join handle returns the result.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use crate::common::{Drops, Gate, alarm, event::Event, eventually, message, on_worker, runtime};
use tourbillon::task::yield_now;

#[test]
fn a_join_handle_returns_the_result_of_its_task() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let sum = runtime.block_on(async {
        let a = tourbillon::spawn(async { 1 });
        let b = tourbillon::spawn(async {
            let inner = tourbillon::spawn(async { String::from("20") });
            inner.await.unwrap().parse::<i32>().unwrap()
        });
        a.await.unwrap() + b.await.unwrap()
    });
    assert_eq!(sum, 21);
    let task = runtime.handle().spawn(async { vec![1, 2, 3] });
    assert_eq!(runtime.handle().block_on(task).unwrap(), [1, 2, 3]);
}

#[test]
fn a_task_runs_on_when_its_handle_is_dropped() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (event, done) = (Event::default(), Gate::new());
    {
        let (event, done) = (event.clone(), done.clone());
        drop(runtime.spawn(async move {
            event.wait().await;
            done.open();
        }));
    }
    assert!(!done.is_open());
    event.set();
    done.wait();
}

/// Replaces the task id in the text of an error by `N`. Panics if the text does not contain the
/// id.
fn without_id(id: impl std::fmt::Display, written: String) -> String {
    let id = id.to_string();
    assert!(written.contains(&id), "{written} has no {id}");
    written.replace(&id, "N")
}

#[test]
fn join_errors_print_as_in_tokio() {
    let _alarm = alarm();
    let ours = runtime(1);
    let theirs = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    macro_rules! errors {
        ($runtime:expr) => {{
            let aborted = $runtime.spawn(std::future::pending::<()>());
            aborted.abort();
            let literal = $runtime.spawn(async { panic!("a \"literal\"") });
            let number = 7;
            let formatted = $runtime.spawn(async move { panic!("formatted {number}") });
            let other = $runtime.spawn(async { std::panic::panic_any(5) });
            [aborted, literal, formatted, other].map(|task| {
                let error = $runtime.block_on(task).unwrap_err();
                let written = [format!("{error}"), format!("{error:?}")];
                written.map(|written| without_id(error.id(), written))
            })
        }};
    }
    assert_eq!(errors!(ours), errors!(theirs));
}

#[test]
fn a_panic_is_returned_to_the_join_handle_only() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let literal = runtime.block_on(runtime.spawn(async { panic!("literal") }));
    let error: tourbillon::JoinError = literal.map(|(): ()| ()).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    assert!(error.to_string().contains("literal"), "{error}");
    assert!(format!("{error:?}").contains("literal"));
    assert_eq!(message(&*error.into_panic()), "literal");

    let number = 7;
    let formatted = runtime.spawn(async move {
        yield_now().await;
        panic!("formatted {number}")
    });
    let error = runtime.block_on(formatted).map(|(): ()| ()).unwrap_err();
    assert!(error.to_string().contains("formatted 7"), "{error}");
    let error = std::io::Error::from(error);
    assert!(error.to_string().contains("formatted 7"), "{error}");

    // The payload of a panic may have any type.
    let task = runtime.spawn(async { std::panic::panic_any(Cell::new(5)) });
    let error = runtime.block_on(task).map(|(): ()| ()).unwrap_err();
    let id = error.id();
    assert_eq!(error.to_string(), format!("task {id} panicked"));
    let payload = error.try_into_panic().unwrap();
    assert_eq!(payload.downcast::<Cell<i32>>().unwrap().get(), 5);

    assert_eq!(runtime.metrics().total().panics(), 3);
    assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
}

#[test]
fn is_finished_is_true_after_the_end() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let event = Event::default();
    let task = {
        let event = event.clone();
        runtime.spawn(async move { event.wait().await })
    };
    on_worker(&runtime, || ());
    assert!(!task.is_finished());
    assert!(format!("{task:?}").contains("false"));
    event.set();
    eventually("it is finished", || task.is_finished());
    assert!(format!("{task:?}").contains("true"));
}

#[test]
fn a_join_handle_polled_after_its_result_returns_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let mut task = runtime.spawn(async { 1 });
    runtime.block_on(async {
        assert_eq!((&mut task).await.unwrap(), 1);
        assert!((&mut task).await.unwrap_err().is_cancelled());
    });
    assert!(task.is_finished());
}

#[test]
fn a_join_handle_can_move_to_another_task_while_it_is_awaited() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let event = Event::default();
    let mut task = {
        let event = event.clone();
        runtime.spawn(async move {
            event.wait().await;
            11
        })
    };
    // This thread polls the handle first, and then another task does. The result must wake that
    // task.
    let noop = Waker::noop();
    let polled = Pin::new(&mut task).poll(&mut Context::from_waker(noop));
    assert!(polled.is_pending());
    let other = runtime.spawn(async move { task.await.unwrap() });
    on_worker(&runtime, || ());
    event.set();
    assert_eq!(runtime.block_on(other).unwrap(), 11);
}

#[test]
fn a_hundred_thousand_tasks_complete() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let done = Arc::new(AtomicUsize::new(0));
    // Spawn half of the tasks from this thread, and half from a worker.
    for _ in 0..50_000 {
        let done = done.clone();
        runtime.spawn(async move {
            yield_now().await;
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    let inner = done.clone();
    let sum = runtime.spawn(async move {
        let mut tasks = Vec::new();
        for i in 0..50_000_u64 {
            let done = inner.clone();
            tasks.push(tourbillon::spawn(async move {
                done.fetch_add(1, Ordering::SeqCst);
                i
            }));
        }
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        sum
    });
    assert_eq!(runtime.block_on(sum).unwrap(), 50_000 * 49_999 / 2);
    eventually("all have ended", || done.load(Ordering::SeqCst) == 100_000);
}

#[test]
fn a_finished_task_frees_its_future_while_its_handle_lives() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let token = drops.token();
    let task = runtime.spawn(async move {
        let _token = token;
        yield_now().await;
    });
    eventually("it is finished", || task.is_finished());
    eventually("it is dropped", || drops.count() == 1);
    runtime.block_on(task).unwrap();

    // A dropped handle also drops the result.
    let token = drops.token();
    let task = runtime.spawn(async move { token });
    eventually("it is finished", || task.is_finished());
    assert_eq!(drops.count(), 1);
    drop(task);
    assert_eq!(drops.count(), 2);
    let token = drops.token();
    drop(runtime.spawn(async move { token }));
    eventually("the result is dropped", || drops.count() == 3);
}
