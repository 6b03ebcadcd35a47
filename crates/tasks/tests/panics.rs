//! A panic of a future or of a destructor becomes the task's output or is contained, and no part of
//! the task is left.

mod common;

use std::{
    future::{self, Future},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker},
    thread,
};

use common::{Drops, Executor, Token};
use tourbillon_tasks::Panic;

/// A future that panics when it is polled or dropped, as the test says. It notes whether it is
/// dropped during a panic.
struct Bomb {
    poll: Option<&'static str>,
    drop: Option<&'static str>,
    dropped: Arc<Mutex<Option<bool>>>,
    _token: Token,
}

impl Future for Bomb {
    type Output = i32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<i32> {
        match self.poll {
            Some(why) => panic!("{why}"),
            None => Poll::Ready(5),
        }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        *self.dropped.lock().unwrap() = Some(thread::panicking());
        if let Some(why) = self.drop {
            panic!("{why}");
        }
    }
}

/// Runs a bomb. Returns the output, whether the bomb was dropped during a panic, and how many
/// panics were reported.
fn explode(
    poll: Option<&'static str>,
    drop: Option<&'static str>,
    cancel: bool,
) -> (Option<Result<i32, String>>, bool, usize) {
    let (executor, drops) = (Executor::new(), Drops::default());
    let dropped = Arc::<Mutex<Option<bool>>>::default();
    let (in_bomb, _token) = (dropped.clone(), drops.token());
    let join = executor.spawn(Bomb {
        poll,
        drop,
        dropped: in_bomb,
        _token,
    });
    if cancel {
        join.cancel();
    }
    executor.run();
    assert_eq!(drops.count(), 1, "all of it is dropped, and once");
    let output = join
        .into_output()
        .map(|it| it.map_err(|panic| message(&panic)));
    let in_panic = dropped.lock().unwrap().expect("it was dropped");
    assert_eq!(Arc::strong_count(&executor), 1);
    (output, in_panic, executor.panics())
}

fn message(panic: &Panic) -> String {
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_panic_is_the_output_and_the_future_is_dropped_while_it_unwinds() {
    let (output, in_panic, panics) = explode(Some("in poll"), None, false);
    assert_eq!(output, Some(Err("in poll".to_owned())));
    assert!(in_panic);
    assert_eq!(panics, 1);
}

#[test]
fn a_second_panic_in_the_destructor_is_contained() {
    let (output, in_panic, panics) = explode(Some("in poll"), Some("in drop"), false);
    assert_eq!(output, Some(Err("in poll".to_owned())), "the first");
    assert!(in_panic);
    assert_eq!(panics, 2);
}

#[test]
fn a_panic_of_a_ready_futures_destructor_is_the_output() {
    let (output, in_panic, panics) = explode(None, Some("in drop"), false);
    assert_eq!(output, Some(Err("in drop".to_owned())));
    assert!(!in_panic);
    assert_eq!(panics, 1);
}

#[test]
fn a_panic_of_a_cancelled_futures_destructor_is_the_output() {
    let (output, in_panic, panics) = explode(None, Some("in drop"), true);
    assert_eq!(output, Some(Err("in drop".to_owned())));
    assert!(!in_panic);
    assert_eq!(panics, 1);
    let (output, ..) = explode(None, None, true);
    assert_eq!(output, None);
}

/// A value that panics whenever it is dropped.
struct DropBomb;

impl Drop for DropBomb {
    fn drop(&mut self) {
        panic!("an output panics");
    }
}

#[test]
fn a_panic_of_an_unclaimed_output_is_reported() {
    // Detach the task before its end, or after it.
    for ends_first in [false, true] {
        let executor = Executor::new();
        let join = executor.spawn(async { DropBomb });
        if ends_first {
            executor.run();
        }
        drop(join);
        executor.run();
        assert_eq!(executor.panics(), 1);
        assert_eq!(Arc::strong_count(&executor), 1);
    }
}

#[test]
fn a_panic_of_an_unclaimed_panic_payload_is_contained() {
    let executor = Executor::new();
    drop(executor.spawn(async { std::panic::panic_any(DropBomb) }));
    executor.run();
    assert_eq!(executor.panics(), 2);
    assert_eq!(Arc::strong_count(&executor), 1);
}

#[test]
fn an_output_is_dropped_if_the_futures_destructor_panics() {
    struct Ready {
        output: Option<DropBomb>,
        _token: Token,
    }
    impl Future for Ready {
        type Output = (DropBomb, &'static str);
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready((self.output.take().unwrap(), "lost"))
        }
    }
    impl Drop for Ready {
        fn drop(&mut self) {
            panic!("the future panics");
        }
    }
    let (executor, drops) = (Executor::new(), Drops::default());
    let join = executor.spawn(Ready {
        output: Some(DropBomb),
        _token: drops.token(),
    });
    executor.run();
    assert!(join.into_output().unwrap().is_err());
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_waker_that_panics_does_not_stop_the_end_of_a_task() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }
    let executor = Executor::new();
    let mut join = executor.spawn(async { 5 });
    let waker = Waker::from(Arc::new(Panics));
    let cx = &mut Context::from_waker(&waker);
    assert!(join.poll_ended(cx).is_pending());
    executor.run();
    assert_eq!(join.into_output().unwrap().unwrap(), 5);
    assert_eq!(Arc::strong_count(&executor), 1);
}

#[test]
fn a_waker_that_panics_in_clone_leaves_the_join_unchanged() {
    fn clone(_: *const ()) -> RawWaker {
        panic!("a waker panics");
    }
    const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| (), |_| (), |_| ());
    // SAFETY: no function of the vtable uses the pointer.
    let panics = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    let executor = Executor::new();
    let mut join = executor.spawn(future::ready(5));
    let (wakes, waker) = common::Wakes::new();
    for _ in 0..2 {
        let cx = &mut Context::from_waker(&panics);
        let poll = catch_unwind(AssertUnwindSafe(|| join.poll_ended(cx)));
        assert!(poll.is_err());
        assert!(
            join.poll_ended(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    executor.run();
    assert_eq!(wakes.count(), 1);
    assert_eq!(join.into_output().unwrap().unwrap(), 5);
}
