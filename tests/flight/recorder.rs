//! What is recorded, and what is kept.

use std::{sync::mpsc, thread, time::Duration};

use tourbillon::{flight::Recording, runtime::Builder, time};

use super::common::{PATIENCE, eventually};

const MS: Duration = Duration::from_millis(1);

#[test]
fn full_records_each_timer_and_off_records_nothing() {
    let builder = Builder::new().worker_threads(1);
    let runtime = builder.flight_recorder(Recording::Off).build().unwrap();
    let recorder = runtime.handle().flight_recorder();
    let late_timer = || {
        let sleeper = runtime.spawn(time::sleep(MS));
        runtime
            .block_on(runtime.spawn(async { thread::sleep(5 * MS) }))
            .unwrap();
        runtime.block_on(sleeper).unwrap();
    };
    late_timer();
    assert_eq!(recorder.recording(), Recording::Off);
    assert_eq!(recorder.snapshot().num_events(), 0);
    recorder.set_recording(Recording::Full);
    eventually("a sleep in time is listed", || {
        runtime.block_on(runtime.spawn(time::sleep(MS))).unwrap();
        !recorder.snapshot().late_timers(Duration::ZERO).is_empty()
    });
    recorder.set_recording(Recording::Light);
    eventually("a late sleep is listed", || {
        late_timer();
        !recorder.snapshot().late_timers(MS).is_empty()
    });
    recorder.set_recording(Recording::Off);
    // After its next job, the worker has recorded all that happened before.
    runtime.block_on(runtime.spawn(time::sleep(MS))).unwrap();
    let before = recorder.snapshot().num_events();
    late_timer();
    assert_eq!(recorder.snapshot().num_events(), before);
}

#[test]
fn a_ring_keeps_the_last_events() {
    let builder = Builder::new().worker_threads(1);
    let runtime = builder
        .flight_recorder(Recording::Full)
        .flight_recorder_events(100)
        .build()
        .unwrap();
    for _ in 0..200 {
        runtime
            .block_on(runtime.spawn(time::sleep(Duration::ZERO)))
            .unwrap();
    }
    // One ring of the worker and one of all other threads.
    let events = runtime.handle().flight_recorder().snapshot().num_events();
    assert!((1..=2 * 127).contains(&events), "{events}");
}

#[test]
fn a_copy_is_kept_when_a_timer_is_very_late() {
    let builder = Builder::new()
        .worker_threads(1)
        .stall_threshold(Duration::MAX);
    let runtime = builder.late_threshold(10 * MS).build().unwrap();
    let recorder = runtime.handle().flight_recorder();
    assert!(recorder.kept().is_empty());
    eventually("a copy is kept", || {
        let sleeper = runtime.spawn(time::sleep(MS));
        runtime
            .block_on(runtime.spawn(async { thread::sleep(20 * MS) }))
            .unwrap();
        runtime.block_on(sleeper).unwrap();
        !recorder.kept().is_empty()
    });
    let kept = recorder.kept();
    assert!(!kept[0].late_timers(10 * MS).is_empty(), "{kept:?}");
}

#[test]
fn a_copy_is_kept_when_a_job_stalls() {
    let (sender, stalls) = mpsc::channel();
    let runtime = Builder::new()
        .worker_threads(1)
        .late_threshold(Duration::MAX)
        .stall_threshold(10 * MS)
        .on_stall(move |stall| sender.send(stall.clone()).unwrap())
        .build()
        .unwrap();
    runtime.spawn(async { thread::sleep(20 * MS) });
    stalls.recv_timeout(PATIENCE).unwrap();
    // The recorder keeps its copy before it calls the hook.
    assert_eq!(runtime.handle().flight_recorder().kept().len(), 1);
}
