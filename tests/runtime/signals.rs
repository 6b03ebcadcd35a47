//! Unix signals. Each test has a process of its own, because a signal reaches the whole process and
//! interrupts system calls of other threads.

use crate::common::{PATIENCE, process::alone, runtime};
use tourbillon::{
    signal::{SignalKind, signal},
    time::timeout,
};

/// Sends a signal to this process.
fn raise(kind: SignalKind) {
    // SAFETY: it has no conditions; somebody listens, so that it does not end the process.
    assert_eq!(unsafe { libc::raise(kind.as_raw_value()) }, 0);
}

#[test]
fn each_listener_hears_of_a_signal_by_its_kind_or_its_number() {
    alone(|| {
        let runtime = runtime(2);
        runtime.block_on(async {
            let kind = SignalKind::user_defined1();
            assert_eq!(kind, SignalKind::from_raw(libc::SIGUSR1));
            let mut by_kind = signal(kind).unwrap();
            let mut by_number = signal(libc::SIGUSR1).unwrap();
            let mut other = signal(SignalKind::window_change()).unwrap();
            for _ in 0..3 {
                raise(kind);
                timeout(PATIENCE, by_kind.recv()).await.unwrap().unwrap();
                timeout(PATIENCE, by_number.recv()).await.unwrap().unwrap();
            }
            let others = timeout(std::time::Duration::from_millis(20), other.recv());
            assert!(others.await.is_err(), "nobody sent that one");
        });
    });
}

#[test]
fn signals_that_came_while_nobody_waited_are_told_once() {
    alone(|| {
        let runtime = runtime(1);
        runtime.block_on(async {
            let kind = SignalKind::user_defined2();
            let mut signals = signal(kind).unwrap();
            for _ in 0..5 {
                raise(kind);
            }
            timeout(PATIENCE, signals.recv()).await.unwrap().unwrap();
            let again = timeout(std::time::Duration::from_millis(20), signals.recv());
            assert!(again.await.is_err());
            raise(kind);
            timeout(PATIENCE, signals.recv()).await.unwrap().unwrap();
        });
    });
}

#[test]
fn a_listener_is_told_that_the_runtime_has_ended() {
    alone(|| {
        let runtime = runtime(1);
        let mut signals = runtime.block_on(async { signal(SignalKind::hangup()).unwrap() });
        drop(runtime);
        assert!(futures_lite::future::block_on(signals.recv()).is_err());
    });
}
