//! Each cause, on snapshots that are made by hand.

use tourbillon::flight::{Lost, Rescue, Track};

use super::*;
use crate::{Stage, late_timers};

const MS: u64 = 1_000_000;

fn job(name: &'static str) -> Option<JobName> {
    Some(JobName::new(name, None))
}

fn lost(preempted: u64, stolen: u64, throttled: u64) -> Lost {
    let mut lost = Lost::default();
    lost.preempted = preempted;
    lost.stolen = stolen;
    lost.throttled = throttled;
    lost
}

/// Returns a snapshot at 1 s of the given workers.
fn snapshot(workers: &[&[(u64, Event)]]) -> Snapshot {
    let tracks = workers
        .iter()
        .enumerate()
        .map(|(number, events)| Track::new(Thread::Worker(number), events.to_vec()));
    let mut snapshot = Snapshot::default();
    snapshot.at = 1_000 * MS;
    snapshot.tracks = tracks.collect();
    snapshot
}

fn ran(late: u64, taken: u64, home: Option<usize>) -> Event {
    Event::TimerRan {
        late,
        taken,
        home,
        tolerance: 0,
        timer: job("idle"),
    }
}

fn taken(late: u64) -> Event {
    Event::Taken {
        late,
        tolerance: 0,
        count: 1,
        left: None,
        rescue: None,
        stuck_in: None,
    }
}

fn turn(took: u64, jobs: u64, last: &'static str) -> Event {
    Event::Turn {
        took,
        jobs,
        last: job(last),
        lost: Lost::default(),
    }
}

/// Returns the causes of the only late timer, with their lengths in ms.
fn causes(snapshot: &Snapshot) -> Vec<(Cause, u64)> {
    let late = late_timers(snapshot, Duration::from_micros(200));
    assert_eq!(late.len(), 1, "{late:?}");
    let sum: Duration = late[0].spans.iter().map(|span| span.length).sum();
    assert_eq!(sum, late[0].late, "the spans add up");
    let spans = late[0].spans.iter();
    spans
        .map(|span| (span.cause, nanos(span.length) / MS))
        .collect()
}

#[test]
fn a_timer_behind_one_job_names_it() {
    let events = [
        (134 * MS, turn(34 * MS, 1, "parse")),
        (134 * MS, taken(31 * MS)),
        (136 * MS, ran(33 * MS, 134 * MS, Some(0))),
    ];
    let snapshot = snapshot(&[&events]);
    let queued = Cause::QueuedBehindOthers { last: None };
    let expected = [(Cause::StuckInJob(job("parse")), 31), (queued, 2)];
    assert_eq!(causes(&snapshot), expected);
    let late = late_timers(&snapshot, Duration::ZERO).remove(0);
    assert_eq!(late.spans[0].not_taken, Some(NotTaken::OnlyWorker));
    let text = "callback idle was 33.0ms late: 31.0ms behind callback parse on worker 0, and \
                there is no other worker; 2.0ms behind other jobs on worker 0";
    assert_eq!(late.to_string(), text);
}

#[test]
fn a_timer_does_not_wait_for_itself() {
    let events = [
        (101 * MS, turn(2 * MS, 1, "idle")),
        (100 * MS, ran(MS, 99 * MS + MS / 2, Some(0))),
    ];
    let queued = Cause::QueuedBehindOthers { last: None };
    assert_eq!(causes(&snapshot(&[&events])), [(queued, 1)]);
}

#[test]
fn several_jobs_of_unknown_length_are_a_queue() {
    let events = [
        (134 * MS, turn(34 * MS, 9, "parse")),
        (134 * MS, taken(31 * MS)),
        (134 * MS, ran(31 * MS, 134 * MS, Some(0))),
    ];
    let queued = Cause::QueuedBehindOthers { last: job("parse") };
    assert_eq!(causes(&snapshot(&[&events])), [(queued, 31)]);
}

#[test]
fn a_peer_that_saw_the_job_names_it_among_several() {
    let stalled = Event::Stalled {
        number: 1,
        worker: 0,
        is_running: true,
        elapsed: 10 * MS,
        job: job("slow"),
    };
    let events = [
        (134 * MS, turn(34 * MS, 9, "parse")),
        (134 * MS, ran(31 * MS, 134 * MS, Some(0))),
    ];
    let snapshot = snapshot(&[&events, &[(120 * MS, stalled)]]);
    let expected = [(Cause::StuckInJob(job("slow")), 31)];
    assert_eq!(causes(&snapshot), expected);
}

#[test]
fn in_full_mode_the_long_job_is_told_from_the_short_ones() {
    let run = |name| Event::JobBegan {
        number: 1,
        job: job(name),
    };
    let events = [
        (100 * MS, run("short")),
        (100 * MS + 100_000, run("long")),
        (130 * MS, run("short")),
        (130 * MS + 50_000, turn(30 * MS + 50_000, 3, "short")),
        (131 * MS, ran(31 * MS, 131 * MS, Some(0))),
    ];
    let causes = causes(&snapshot(&[&events]));
    let queued = Cause::QueuedBehindOthers { last: None };
    let expected = [
        (queued, 0),
        (Cause::StuckInJob(job("long")), 29),
        (queued, 0),
        (Cause::Unexplained, 0),
    ];
    assert_eq!(causes, expected);
}

#[test]
fn a_late_wake_up_is_the_kernels_unless_the_worker_had_no_core() {
    let woken = Event::Resumed {
        until: Some(100 * MS),
        lost: lost(2 * MS, 3 * MS, 0),
    };
    let events = [
        (109 * MS, woken),
        (109 * MS, taken(9 * MS)),
        (109 * MS, ran(9 * MS, 109 * MS, Some(0))),
    ];
    let expected = [
        (Cause::Stolen, 3),
        (Cause::Preempted, 2),
        (Cause::KernelWokeLate, 4),
    ];
    assert_eq!(causes(&snapshot(&[&events])), expected);
}

#[test]
fn a_worker_without_a_core_in_a_job_is_not_stuck_in_it() {
    let turn = Event::Turn {
        took: 20 * MS,
        jobs: 1,
        last: job("parse"),
        lost: lost(15 * MS, 0, 0),
    };
    let events = [
        (120 * MS, turn),
        (120 * MS, ran(18 * MS, 120 * MS, Some(0))),
    ];
    let expected = [(Cause::Preempted, 13), (Cause::StuckInJob(job("parse")), 4)];
    assert_eq!(causes(&snapshot(&[&events])), expected);
}

#[test]
fn a_quota_that_is_used_up_in_the_loop_is_named() {
    let woken = Event::Resumed {
        until: Some(100 * MS),
        lost: Lost::default(),
    };
    let looped = Event::Looped {
        took: 50 * MS,
        lost: lost(MS, 0, 45 * MS),
    };
    let events = [
        (101 * MS, woken),
        (151 * MS, looped),
        (151 * MS, taken(51 * MS)),
        (151 * MS, ran(51 * MS, 151 * MS, Some(0))),
    ];
    let expected = [
        (Cause::KernelWokeLate, 1),
        (Cause::Throttled, 45),
        (Cause::Preempted, 1),
        (Cause::Unexplained, 4),
    ];
    assert_eq!(causes(&snapshot(&[&events])), expected);
}

#[test]
fn a_sleep_within_the_tolerance_is_meant() {
    let woken = Event::Resumed {
        until: Some(105 * MS),
        lost: Lost::default(),
    };
    let ran = Event::TimerRan {
        late: 8 * MS,
        taken: 108 * MS,
        home: Some(0),
        tolerance: 5 * MS,
        timer: None,
    };
    let expected = [(Cause::Tolerance, 5), (Cause::KernelWokeLate, 3)];
    let events = [(108 * MS, woken), (108 * MS, ran)];
    assert_eq!(causes(&snapshot(&[&events])), expected);
}

#[test]
fn a_sleep_that_the_budget_made_longer_is_meant() {
    let woken = |until| Event::Resumed {
        until: Some(until),
        lost: Lost::default(),
    };
    let ran = Event::TimerRan {
        late: 8 * MS,
        taken: 108 * MS,
        home: Some(0),
        tolerance: 0,
        timer: None,
    };
    let expected = [(Cause::Budget, 1), (Cause::KernelWokeLate, 7)];
    let events = [(108 * MS, woken(101 * MS)), (108 * MS, ran)];
    assert_eq!(causes(&snapshot(&[&events])), expected);
    // Another thread ended the sleep: it armed the timer.
    let events = [(108 * MS, woken(500 * MS)), (108 * MS, ran)];
    assert_eq!(causes(&snapshot(&[&events])), [(Cause::KernelWokeLate, 8)]);
}

/// The first timer of a batch need not run: it may be cancelled before.
#[test]
fn a_batch_is_late_beyond_the_tolerance_of_its_first_timer() {
    let woken = Event::Resumed {
        until: Some(105 * MS),
        lost: Lost::default(),
    };
    let taken = |tolerance| Event::Taken {
        late: 8 * MS,
        tolerance,
        count: 1,
        left: None,
        rescue: None,
        stuck_in: None,
    };
    let events = [(108 * MS, woken), (108 * MS, taken(5 * MS))];
    let expected = [(Cause::Tolerance, 5), (Cause::KernelWokeLate, 3)];
    assert_eq!(causes(&snapshot(&[&events])), expected);
    let events = [(108 * MS, woken), (108 * MS, taken(8 * MS))];
    assert!(late_timers(&snapshot(&[&events]), Duration::from_nanos(1)).is_empty());
}

#[test]
fn timers_that_an_earlier_batch_left_wait_for_theirs() {
    let taken = Event::Taken {
        late: 6 * MS,
        tolerance: 0,
        count: 16,
        left: Some(102 * MS),
        rescue: None,
        stuck_in: None,
    };
    let events = [
        (106 * MS, taken),
        (106 * MS, ran(6 * MS, 106 * MS, Some(0))),
    ];
    let expected = [(Cause::Unexplained, 2), (Cause::Batch, 4)];
    assert_eq!(causes(&snapshot(&[&events])), expected);
    // A long job in between is the cause, and not the batch.
    let events = [
        (106 * MS, turn(3 * MS, 1, "parse")),
        (106 * MS, taken),
        (106 * MS, ran(6 * MS, 106 * MS, Some(0))),
    ];
    let expected = [
        (Cause::Unexplained, 2),
        (Cause::Batch, 1),
        (Cause::StuckInJob(job("parse")), 3),
    ];
    assert_eq!(causes(&snapshot(&[&events])), expected);
}

#[test]
fn a_rescued_timer_waited_for_the_stuck_worker_and_for_the_peer() {
    let taken = Event::Taken {
        late: 5 * MS,
        tolerance: 0,
        count: 1,
        left: None,
        rescue: Some(Rescue::new(0, 103 * MS)),
        stuck_in: job("parse"),
    };
    let peer = [
        (105 * MS, taken),
        (106 * MS, ran(6 * MS, 105 * MS, Some(0))),
    ];
    // The stuck worker is still at it.
    let expected = [
        (Cause::StuckInJob(job("parse")), 3),
        (Cause::Rescue, 2),
        (Cause::QueuedBehindOthers { last: None }, 1),
    ];
    assert_eq!(causes(&snapshot(&[&[], &peer])), expected);
    // It has come back.
    let stuck = [(120 * MS, turn(30 * MS, 4, "other"))];
    assert_eq!(causes(&snapshot(&[&stuck, &peer])), expected);
}

#[test]
fn timers_of_other_clocks_are_late_by_steps_and_suspensions() {
    let events = [
        (100 * MS, Event::Suspended { length: 50 * MS }),
        (100 * MS, Event::Stepped { by: 20 * MS as i64 }),
        (100 * MS, ran(75 * MS, 100 * MS, None)),
    ];
    let expected = [
        (Cause::Suspended, 50),
        (Cause::ClockStep, 20),
        (Cause::Unexplained, 5),
    ];
    assert_eq!(causes(&snapshot(&[&events])), expected);
}

#[test]
fn a_stolen_job_waited_on_its_first_worker_until_then() {
    let thief = [
        (110 * MS, Event::Stole { from: 0, jobs: 1 }),
        (112 * MS, ran(12 * MS, 100 * MS, Some(0))),
    ];
    let owner = [(100 * MS, taken(0)), (130 * MS, turn(30 * MS, 1, "parse"))];
    let expected = [
        (Cause::StuckInJob(job("parse")), 10),
        (Cause::QueuedBehindOthers { last: None }, 2),
    ];
    assert_eq!(causes(&snapshot(&[&owner, &thief])), expected);
}

#[test]
fn peers_that_are_all_busy_take_nothing() {
    let owner = [
        (130 * MS, turn(30 * MS, 1, "parse")),
        (130 * MS, ran(29 * MS, 130 * MS, Some(0))),
    ];
    let busy = [(128 * MS, turn(27 * MS, 1, "other"))];
    let idle = [(103 * MS, turn(2 * MS, 1, "other"))];
    let why = |peer: &[(u64, Event)], rescues| {
        let mut snapshot = snapshot(&[&owner, peer]);
        snapshot.rescues = rescues;
        late_timers(&snapshot, Duration::ZERO)[0].spans[0].not_taken
    };
    assert_eq!(why(&busy, true), Some(NotTaken::PeersBusy));
    assert_eq!(why(&idle, true), None);
    assert_eq!(why(&idle, false), Some(NotTaken::RescueIsOff));
}

#[test]
fn a_timer_that_was_taken_and_not_seen_to_run_is_listed_once() {
    let snapshot = snapshot(&[&[(130 * MS, taken(29 * MS))]]);
    let late = late_timers(&snapshot, Duration::ZERO);
    assert_eq!(late.len(), 1);
    assert!(!late[0].has_run && late[0].timer.is_none());
    assert_eq!(causes(&snapshot), [(Cause::Unexplained, 29)]);
}

#[test]
fn a_late_timer_is_placed_in_both_stages() {
    let (due, took, ran_at) = (100 * MS, 120 * MS, 125 * MS);
    let taken_only = snapshot(&[&[(took, taken(20 * MS))]]);
    // The recorded moment of taking is rounded.
    let both = snapshot(&[&[
        (took, taken(20 * MS)),
        (ran_at, ran(25 * MS, took - 500, Some(0))),
    ]]);
    let only = |snapshot: &Snapshot| {
        let found = Analysis::new(snapshot).find(Duration::from_millis(1));
        assert_eq!(found.len(), 1);
        found[0]
    };
    let [first, second] = [&taken_only, &both].map(only);
    let stage = |at, late| Stage {
        thread: Thread::Worker(0),
        at,
        late,
    };
    for found in [first, second] {
        assert_eq!(found.wake, stage(took, took - due));
        assert!(!found.is_rescued);
    }
    assert_eq!(first.queue, None);
    assert_eq!(second.queue, Some(stage(ran_at, 5 * MS)));
    assert_eq!((first.late(), second.late()), (20 * MS, 25 * MS));
    // The second one is the first, seen later.
    assert!(second.key().completes(first.key()) && !first.key().completes(second.key()));
}
