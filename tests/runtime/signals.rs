//! Unix signals. Each test has a process of its own, because a signal reaches the whole process and
//! interrupts system calls of other threads.

use std::io;

use crate::common::{PATIENCE, process::alone, runtime};
use tourbillon::{
    signal::{SignalKind, signal},
    time::timeout,
};

/// Sends a signal to this process.
fn raise(kind: SignalKind) {
    // SAFETY: there are no pointers, and a listener handles the signal.
    assert_eq!(unsafe { libc::raise(kind.as_raw_value()) }, 0);
}

#[test]
fn listeners_by_kind_and_by_number_get_the_signal() {
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
fn signals_between_two_waits_are_merged_into_one() {
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
fn a_listener_gets_an_error_when_the_runtime_has_ended() {
    alone(|| {
        let runtime = runtime(1);
        let mut signals = runtime.block_on(async { signal(SignalKind::hangup()).unwrap() });
        drop(runtime);
        assert!(futures_lite::future::block_on(signals.recv()).is_err());
    });
}

#[test]
fn fault_signals_and_invalid_signals_are_refused() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    for number in [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        0,
        -1,
        65,
        1_000,
    ] {
        let error = tourbillon::signal::signal(number).unwrap_err();
        let kind = error.kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput, "{number}: {error}");
    }
    assert!(tourbillon::signal::signal(libc::SIGKILL).is_err());
}
