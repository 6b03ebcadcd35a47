//! Events are decoded as they were written.

use super::*;

fn decoded(words: &[Words]) -> Vec<(u64, Event)> {
    // SAFETY: the tests make them by the functions of this module.
    unsafe { decode(words) }
}

#[test]
fn a_job_is_decoded_with_its_label_and_group() {
    let (mut reference, mut name) = sample();
    reference.label = Some(Label::new("GET /report"));
    reference.group = Some(Label::new("batch"));
    (name.label, name.group) = (Some("GET /report"), Some("batch"));
    let stalled = [stalled(1, 0, true, 100)].into_iter();
    let written: Vec<_> = stalled.chain(named(Some(reference))).collect();
    let Event::Stalled { job, .. } = decoded(&written)[0].1 else {
        panic!("it is a stall");
    };
    assert_eq!(job, Some(name));
}

fn sample() -> (JobRef, JobName) {
    let (name, spawned) = (TypeName::of::<Words>(), Some(Spawned::here()));
    let job = JobRef::new(name, spawned);
    (job, job.name())
}

#[test]
fn an_event_is_decoded_as_it_was_written() {
    let (reference, name) = sample();
    let lost_time = Lost {
        preempted: 7,
        stolen: 8,
        throttled: 9,
    };
    let without: Vec<_> = lost(lost_time).collect();
    let rescue = Rescue {
        from: 4_095,
        came: 2,
    };
    let written = [
        parked(1, NEVER),
        woken(2, 1),
        without[0],
        without[1],
        turn(3, 1_000, 9),
        without[0],
        without[1],
        job(reference),
        taken(4, 5_000, 256),
        before(4, Some(3), Some(rescue)),
        tolerance(2_000),
        job(reference),
        ran(5, 123_456_789_012),
        from(4, 63, 1_000_000),
        job(reference),
        run(6, 42),
        job(reference),
        woke(7, 3, WakeReason::Update),
        stole(8, 2, 11),
        stalled(9, 4_095, true, 100_000_000),
        numbered(7),
        job(reference),
        stepped(10, -5),
        suspended(11, 6),
        armed(12, 13),
        moved(14),
        looped(15, 1_000),
        without[0],
        without[1],
    ];
    let expected = [
        (1, Event::Parked { until: None }),
        (
            2,
            Event::Resumed {
                until: Some(1),
                lost: lost_time,
            },
        ),
        (
            3,
            Event::Turn {
                took: 1_000,
                jobs: 9,
                last: Some(name),
                lost: lost_time,
            },
        ),
        (
            4,
            Event::Taken {
                late: 5_000,
                tolerance: 2_000,
                count: 256,
                left: Some(3),
                rescue: Some(rescue),
                stuck_in: Some(name),
            },
        ),
        (
            5,
            Event::TimerRan {
                late: 123_456_789_012,
                taken: 4,
                home: Some(63),
                tolerance: 1_000_000,
                timer: Some(name),
            },
        ),
        (
            6,
            Event::JobBegan {
                number: 42,
                job: Some(name),
            },
        ),
        (
            7,
            Event::WokeWorker {
                worker: 3,
                why: WakeReason::Update,
            },
        ),
        (8, Event::Stole { from: 2, jobs: 11 }),
        (
            9,
            Event::Stalled {
                number: 7,
                worker: 4_095,
                is_running: true,
                elapsed: 100_000_000,
                job: Some(name),
            },
        ),
        (10, Event::Stepped { by: -5 }),
        (11, Event::Suspended { length: 6 }),
        (12, Event::Armed { deadline: 13 }),
        (14, Event::Moved),
        (
            15,
            Event::Looped {
                took: 1_000,
                lost: lost_time,
            },
        ),
    ];
    assert_eq!(decoded(&written), expected);
}

#[test]
fn details_without_their_event_are_dropped() {
    let (reference, _) = sample();
    let written = [
        job(reference),
        lost(Lost::default()).next().unwrap(),
        [0, 0],
        moved(3),
        job(reference),
    ];
    assert_eq!(decoded(&written), [(3, Event::Moved)]);
}

#[test]
fn numbers_that_do_not_fit_become_the_largest() {
    let decoded = decoded(&[turn(LOW, u64::MAX, u64::MAX)]);
    let Event::Turn { took, jobs, .. } = decoded[0].1 else {
        panic!("{decoded:?}");
    };
    assert_eq!(
        (decoded[0].0, took, jobs),
        (LOW, (1 << 40) - 1, (1 << 24) - 1)
    );
}

/// Moments are ns since the runtime was built: after four days they need 49 bits.
#[test]
fn a_rescue_keeps_its_moment_after_years_of_uptime() {
    for at in [1 << 50, LOW] {
        let came = at - 5_000_000;
        let rescue = Some(Rescue { from: 1, came });
        let events = decoded(&[taken(at, 6_000_000, 1), before(at, Some(at - 9), rescue)]);
        let (moment, Event::Taken { left, rescue, .. }) = events[0] else {
            panic!("{events:?}");
        };
        assert_eq!((moment, left), (at, Some(at - 9)));
        assert_eq!(rescue.map(|it| (it.from, it.came)), Some((1, came)));
    }
}
