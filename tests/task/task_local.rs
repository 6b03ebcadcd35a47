//! `task_local!`: each test runs with tokio's macro and with ours, and both do the same.

use std::{
    future::{Future, pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use crate::common::{alarm, runtime};
use tourbillon::task::yield_now;

/// The texts that a test has logged.
type Log = Arc<Mutex<Vec<String>>>;

/// Logs a text when it is dropped.
struct Notes(Log, Box<dyn Fn() -> String + Send>);

impl Drop for Notes {
    fn drop(&mut self) {
        let text = (self.1)();
        self.0.lock().unwrap().push(text);
    }
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

macro_rules! programs {
    ($name:ident, $krate:ident) => {
        mod $name {
            use super::*;

            $krate::task_local! {
                /// A key with an attribute and a visibility.
                #[allow(unused)]
                pub static NUMBER: u32;
                static TEXT: String;
            }

            fn number() -> String {
                format!("{:?}", NUMBER.try_get().ok())
            }

            /// Scopes nest, and return to the outer value also across waits.
            pub async fn nested(log: Log) {
                let note = |text: String| log.lock().unwrap().push(text);
                note(number());
                NUMBER
                    .scope(1, async {
                        note(number());
                        yield_now().await;
                        NUMBER
                            .scope(
                                2,
                                TEXT.scope("inner".to_owned(), async {
                                    yield_now().await;
                                    note(number());
                                    note(TEXT.with(String::clone));
                                    NUMBER.sync_scope(3, || note(number()));
                                    note(number());
                                }),
                            )
                            .await;
                        note(number());
                        note(format!("{}", TEXT.try_with(String::len).is_err()));
                        let spawned = tourbillon::spawn(async { number() });
                        note(spawned.await.unwrap());
                    })
                    .await;
                note(number());
            }

            /// Futures are dropped in their scope: ready, pending and never polled ones.
            pub fn drops(log: &Log) {
                let notes = || Notes(log.clone(), Box::new(number));
                let mut cx = Context::from_waker(Waker::noop());
                for (value, polls) in [(1, 0), (2, 1)] {
                    let notes = notes();
                    let mut scope = Box::pin(NUMBER.scope(value, async move {
                        let _notes = notes;
                        pending::<()>().await
                    }));
                    for _ in 0..polls {
                        assert!(scope.as_mut().poll(&mut cx).is_pending());
                    }
                }
                let owned = notes();
                let mut scope = Box::pin(NUMBER.scope(3, async move { drop(owned) }));
                assert!(scope.as_mut().poll(&mut cx).is_ready());
                log.lock()
                    .unwrap()
                    .push(format!("{:?}", scope.as_mut().take_value()));
                log.lock()
                    .unwrap()
                    .push(format!("{:?}", scope.as_mut().take_value()));
                // The scope has completed, so another poll panics.
                assert!(panics(|| scope.as_mut().poll(&mut cx)));
            }

            /// A value can be taken while the future waits.
            pub fn takes(log: &Log) {
                let mut cx = Context::from_waker(Waker::noop());
                let mut scope = pin!(NUMBER.scope(
                    1,
                    poll_fn(|_| {
                        log.lock().unwrap().push(number());
                        Poll::<()>::Pending
                    })
                ));
                assert!(scope.as_mut().poll(&mut cx).is_pending());
                log.lock()
                    .unwrap()
                    .push(format!("{:?}", scope.as_mut().take_value()));
                assert!(scope.as_mut().poll(&mut cx).is_pending());
            }

            /// A scope inside `with` panics and leaves the value unchanged.
            pub fn fails(log: &Log) {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(panics(|| NUMBER.get()));
                assert!(panics(|| NUMBER.with(|_| ())));
                let notes = || Notes(log.clone(), Box::new(number));
                NUMBER.sync_scope(1, || {
                    NUMBER.with(|_| {
                        assert!(panics(|| NUMBER.sync_scope(2, || ())));
                        let owned = notes();
                        let mut scope = Box::pin(NUMBER.scope(3, async move { drop(owned) }));
                        assert!(panics(|| scope.as_mut().poll(&mut cx)));
                    });
                    log.lock().unwrap().push(number());
                    assert!(panics(|| NUMBER.sync_scope(4, || panic!("inside"))));
                    log.lock().unwrap().push(number());
                });
                log.lock().unwrap().push(number());
            }
        }
    };
}

programs!(ours, tourbillon);
programs!(theirs, tokio);

#[track_caller]
fn same(ours: impl FnOnce(&Log), theirs: impl FnOnce(&Log), expected: &[&str]) {
    let logs = [Log::default(), Log::default()];
    ours(&logs[0]);
    theirs(&logs[1]);
    for log in logs {
        assert_eq!(*log.lock().unwrap(), expected);
    }
}

#[test]
fn scopes_nest() {
    let _alarm = alarm();
    let runtime = runtime(2);
    same(
        |log| {
            runtime
                .block_on(runtime.spawn(ours::nested(log.clone())))
                .unwrap()
        },
        |log| {
            runtime
                .block_on(runtime.spawn(theirs::nested(log.clone())))
                .unwrap()
        },
        &[
            "None", "Some(1)", "Some(2)", "inner", "Some(3)", "Some(2)", "Some(1)", "true", "None",
            "None",
        ],
    );
}

#[test]
fn a_future_is_dropped_in_its_scope() {
    let expected = ["Some(1)", "Some(2)", "Some(3)", "Some(3)", "None"];
    same(ours::drops, theirs::drops, &expected);
}

#[test]
fn a_value_can_be_taken() {
    let expected = ["Some(1)", "Some(1)", "None"];
    same(ours::takes, theirs::takes, &expected);
}

#[test]
fn wrong_uses_panic() {
    // The future whose scope is refused is dropped inside `with`, in the outer scope.
    let expected = ["Some(1)", "Some(1)", "Some(1)", "None"];
    same(ours::fails, theirs::fails, &expected);
}
