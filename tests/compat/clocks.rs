//! The clock of a runtime with a companion cannot be paused, and each way to try says so.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Barrier,
    thread,
};

use tourbillon::{BuildError, Runtime, time::pause, tokio::Compat};

use crate::with_companion;

/// Returns the message with which `f` panics.
fn panic_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn start_paused_is_refused() {
    let builder = Runtime::builder().start_paused(true).enable_tokio();
    let error = builder.build().unwrap_err();
    assert!(matches!(error, BuildError::PausedTokio));
    assert!(
        error.to_string().contains("leave one of them out"),
        "{error}"
    );
}

#[test]
fn a_pause_panics() {
    let runtime = with_companion();
    assert!(panic_of(|| runtime.pause()).contains("cannot be paused"));
    assert!(panic_of(|| runtime.block_on(async { pause() })).contains("cannot be paused"));
    // The clock runs.
    runtime.block_on(tourbillon::time::sleep(std::time::Duration::from_millis(1)));
}

#[test]
fn compat_panics_on_a_paused_clock() {
    let runtime = Runtime::builder().start_paused(true).build().unwrap();
    let panic = panic_of(|| runtime.block_on(Compat::new(async {})));
    assert!(panic.contains("cannot be paused"), "{panic}");
}

/// One of the two panics, whichever comes second.
#[test]
fn of_a_pause_and_the_start_of_a_companion_one_wins() {
    for _ in 0..100 {
        let runtime = Runtime::builder().worker_threads(1).build().unwrap();
        let barrier = Barrier::new(2);
        let pauses = || {
            barrier.wait();
            catch_unwind(AssertUnwindSafe(|| runtime.pause())).is_ok()
        };
        let starts = || {
            barrier.wait();
            let in_companion = Compat::new(async {});
            catch_unwind(AssertUnwindSafe(|| runtime.block_on(in_companion))).is_ok()
        };
        let (started, paused) = thread::scope(|scope| {
            let pausing = scope.spawn(pauses);
            (starts(), pausing.join().unwrap())
        });
        assert!(paused != started, "paused {paused}, started {started}");
    }
}
