//! Shared set-up of the tests of callback timers.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use tourbillon::{
    Runtime, Timer,
    timer::{Cancel, Outcome, Reset, Status},
};

use super::{Drops, HOUR, PATIENCE};

/// The deadline of a callback, and the time at which it ran.
pub type Report = (Instant, Instant);

pub fn reporter(sender: &mpsc::Sender<Report>, asked: Instant) -> impl FnOnce() + Send + 'static {
    let sender = sender.clone();
    move || {
        let _ = sender.send((asked, Instant::now()));
    }
}

/// Receives `count` reports, none of them early.
#[track_caller]
pub fn none_early(receiver: &mpsc::Receiver<Report>, count: usize) {
    for _ in 0..count {
        let (asked, ran) = receiver.recv_timeout(PATIENCE).expect("all of them run");
        assert!(ran >= asked, "early by {:?}", asked - ran);
    }
}

/// Checks that the timer is over, and refuses each move and cancel.
#[track_caller]
pub fn assert_over(timer: &Timer, how: Outcome) {
    assert_eq!(timer.status(), Status::Over(how));
    assert!(!timer.is_pending());
    assert_eq!(timer.deadline(), None);
    assert_eq!(timer.cancel(), Cancel::Over);
    assert_eq!(timer.refresh(), Reset::TooLate);
    assert_eq!(timer.reset_after(HOUR), Reset::TooLate);
    assert_eq!(timer.reset_at(Instant::now() + HOUR), Reset::TooLate);
    assert_eq!(timer.reset_from_start(HOUR), Reset::TooLate);
    assert_eq!(timer.status(), Status::Over(how), "nothing has changed");
}

/// A recurring timer. Each run reports its start, and then waits for a message.
pub struct Stepped {
    pub timer: Timer,
    pub started: mpsc::Receiver<Instant>,
    pub go_on: mpsc::Sender<()>,
    pub drops: Drops,
}

pub fn stepped(runtime: &Runtime, period: Duration) -> Stepped {
    let (start, started) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let drops = Drops::new();
    let token = drops.token();
    let timer = runtime.handle().every(period, move || {
        let _ = &token;
        let _ = start.send(Instant::now());
        let _ = may_go_on.recv_timeout(PATIENCE);
    });
    Stepped {
        timer,
        started,
        go_on,
        drops,
    }
}
