//! `Compat` around one future.

use std::{
    future::{Future, pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    task::Poll,
    time::Duration,
};

use tokio::runtime::Handle;
use tourbillon::{Runtime, tokio::Compat};

use crate::with_companion;

#[test]
fn a_future_in_compat_uses_tokio_and_code_around_it_does_not() {
    let runtime = Runtime::new().unwrap();
    let task = runtime.spawn(async {
        let slept = Compat::new(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Handle::try_current().is_ok()
        });
        (slept.await, Handle::try_current().is_ok())
    });
    assert_eq!(runtime.block_on(task).unwrap(), (true, false));
}

#[test]
fn compat_uses_the_companion_that_is_there() {
    let runtime = with_companion();
    let (own, wrapped) = runtime.block_on(async {
        let own = Handle::current().id();
        (own, Compat::new(async { Handle::current().id() }).await)
    });
    assert_eq!(own, wrapped);
}

#[test]
fn all_futures_in_compat_share_one_companion() {
    let runtime = Runtime::new().unwrap();
    let id = || Compat::new(async { Handle::current().id() });
    let tasks: Vec<_> = (0..8).map(|_| runtime.spawn(id())).collect();
    let first = runtime.block_on(id());
    for task in tasks {
        assert_eq!(runtime.block_on(task).unwrap(), first);
    }
}

#[test]
fn the_future_is_dropped_in_the_context_of_tokio() {
    struct Report(mpsc::Sender<bool>);
    impl Drop for Report {
        fn drop(&mut self) {
            let _ = self.0.send(Handle::try_current().is_ok());
        }
    }
    let runtime = Runtime::new().unwrap();
    let (sender, receiver) = mpsc::channel();
    let report = Report(sender);
    let mut waiting = Box::pin(Compat::new(async move {
        let _report = report;
        pending::<()>().await;
    }));
    runtime.block_on(poll_fn(|cx| {
        assert!(waiting.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    drop(waiting);
    assert_eq!(receiver.recv(), Ok(true));
}

#[test]
fn a_poll_outside_of_a_runtime_panics() {
    let mut lost = std::pin::pin!(Compat::new(async {}));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let poll = AssertUnwindSafe(|| lost.as_mut().poll(&mut cx));
    let panic = catch_unwind(poll).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("no Tourbillon runtime"), "{message}");
}

#[test]
fn a_poll_after_the_shutdown_panics() {
    let runtime = Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    drop(runtime);
    let poll = AssertUnwindSafe(|| handle.block_on(Compat::new(async {})));
    let panic = catch_unwind(poll).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("has been shut down"), "{message}");
}
