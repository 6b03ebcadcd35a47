//! The model by examples, without any code that it is to judge.

use super::*;

#[test]
fn a_delay_counts_from_the_start() {
    let mut timer = Timer::idle(false, false, 10, None);
    assert_eq!(timer.status(), Status::NotStarted);
    assert_eq!(timer.reset_at(5), Reset::NotStarted);
    assert_eq!(timer.start(7, &mut exact), Started::Pending);
    assert_eq!(
        (timer.deadline(), timer.begun, timer.wait),
        (Some(17), 7, 10)
    );
    assert_eq!(timer.start(8, &mut exact), Started::AlreadyStarted);
    assert_eq!(timer.refresh(9), Reset::Pending);
    assert_eq!(timer.reset_from_start(3), Reset::Pending);
    assert_eq!(
        (timer.deadline(), timer.begun, timer.wait),
        (Some(12), 9, 3)
    );
    // A move to a moment moves the start as well.
    assert_eq!(timer.reset_at(1), Reset::Pending);
    assert_eq!(timer.begun, -2);
    assert_eq!(timer.reset_from_start(10), Reset::Pending);
    assert_eq!(timer.deadline(), Some(8));
}

#[test]
fn a_deadline_that_has_passed_leaves_no_wait() {
    let mut timer = Timer::idle(false, false, 0, Some(0));
    assert_eq!(timer.start(7, &mut exact), Started::Pending);
    assert_eq!((timer.deadline(), timer.begun, timer.wait), (Some(1), 1, 0));
}

#[test]
fn who_is_told_of_a_cancel_before_the_start() {
    for (told, after, started) in [
        (false, State::Over(Outcome::Cancelled), Started::Cancelled),
        (true, State::Barred, Started::Cancelled),
    ] {
        let mut timer = Timer::idle(false, told, 10, None);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(timer.state, after);
        assert_eq!(timer.cancel(), Cancel::Over);
        assert_eq!(timer.reset_after(1, 1), Reset::TooLate);
        assert_eq!(timer.start(1, &mut exact), started);
        assert_eq!(timer.tell(), told.then_some(Outcome::Cancelled));
        assert!(timer.is_over());
    }
}

#[test]
fn a_recurring_timer_keeps_its_grid_and_draws_jitter_anew() {
    let mut timer = Timer::idle(true, false, 10, None);
    timer.start(5, &mut |at| at + 3);
    assert_eq!((timer.deadline(), timer.begun), (Some(18), 5));
    timer.take();
    timer.run();
    assert_eq!(timer.begun, 15);
    assert_eq!(timer.status(), Status::Running { last: false });
    // 25 and 35 have passed.
    timer.has_run(35, &mut |at| at + 1);
    assert_eq!((timer.deadline(), timer.begun), (Some(46), 35));
}

#[test]
fn a_run_decides_what_a_move_and_a_cancel_answer() {
    let mut once = Timer::pending(false, 10, 10);
    once.take();
    assert_eq!(once.reset_at(20), Reset::Pending);
    once.take();
    once.run();
    assert_eq!(once.cancel(), Cancel::Running);
    assert_eq!(once.reset_at(30), Reset::TooLate);
    once.has_run(20, &mut exact);
    assert_eq!(once.status(), Status::Over(Outcome::Fired));

    let mut often = Timer::pending(true, 10, 10);
    often.take();
    often.run();
    assert_eq!(often.reset_at(12), Reset::AfterRun);
    assert_eq!(often.deadline(), Some(12));
    assert_eq!(often.cancel(), Cancel::AfterRun);
    assert_eq!(often.refresh(11), Reset::TooLate);
    assert_eq!(often.cancel(), Cancel::Over);
    often.has_run(20, &mut exact);
    assert_eq!(often.status(), Status::Over(Outcome::Cancelled));
}

#[test]
fn nothing_lies_beyond_the_end_of_time() {
    let mut timer = Timer::idle(true, false, u64::MAX, None);
    timer.start(5, &mut |at| at + 1);
    assert_eq!((timer.deadline(), timer.wait), (Some(NEVER), NEVER - 5));
    timer.reset_after(NEVER - 1, 10);
    assert_eq!((timer.deadline(), timer.wait), (Some(NEVER), 1));
}
