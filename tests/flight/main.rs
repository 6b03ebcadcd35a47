//! What the flight recorder records, and what it keeps.

use std::{sync::mpsc, thread, time::Duration};

use tourbillon::{
    flight::{Event, Recording, Snapshot, Thread},
    runtime::Builder,
    time,
};

use tourbillon_support::{PATIENCE, eventually};

const MS: Duration = Duration::from_millis(1);

/// Returns whether a timer was taken or ran at least this long after its deadline.
fn has_late(snapshot: &Snapshot, at_least: Duration) -> bool {
    let is_late = |event: &Event| match event {
        Event::Taken { late, .. } | Event::TimerRan { late, .. } => {
            Duration::from_nanos(*late) >= at_least
        }
        _ => false,
    };
    let mut events = snapshot.tracks.iter().flat_map(|track| &track.events);
    events.any(|(_, event)| is_late(event))
}

#[test]
fn full_records_each_timer_and_off_records_nothing() {
    let mut builder = Builder::new();
    builder.worker_threads(1);
    let runtime = builder.flight_recorder(Recording::Off).build().unwrap();
    let recorder = runtime.flight_recorder();
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
        has_late(&recorder.snapshot(), Duration::ZERO)
    });
    recorder.set_recording(Recording::Light);
    eventually("a late sleep is listed", || {
        late_timer();
        has_late(&recorder.snapshot(), MS)
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
    let mut builder = Builder::new();
    builder.worker_threads(1);
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
    let events = runtime.flight_recorder().snapshot().num_events();
    assert!((1..=2 * 127).contains(&events), "{events}");
}

#[test]
fn the_last_events_are_those_of_a_whole_snapshot() {
    let runtime = Builder::new()
        .worker_threads(1)
        .flight_recorder(Recording::Full)
        .build()
        .unwrap();
    let recorder = runtime.flight_recorder();
    let counts = recorder.event_counts();
    let worker = counts.iter().find(|(it, _)| *it == Thread::Worker(0));
    let before = worker.unwrap().1;
    for _ in 0..50 {
        runtime
            .block_on(runtime.spawn(time::sleep(Duration::ZERO)))
            .unwrap();
    }
    // From here on the worker records nothing more.
    recorder.set_recording(Recording::Off);
    runtime.block_on(runtime.spawn(time::sleep(MS))).unwrap();
    let all = recorder.snapshot();
    let last = recorder.snapshot_last(20);
    let [all, last] = [&all, &last].map(|snapshot| &snapshot.tracks[0]);
    assert_eq!([all.thread, last.thread], [Thread::Worker(0); 2]);
    let number = last.events.len();
    assert!((1..=20).contains(&number), "{number}");
    assert_eq!(all.events.last(), last.events.last());
    assert!(last.events.iter().all(|event| all.events.contains(event)));
    let after = recorder.event_counts()[0];
    assert_eq!(after.0, Thread::Worker(0));
    assert!(after.1 >= before + number as u64, "{after:?}");
}

#[test]
fn a_copy_is_kept_when_a_timer_is_very_late() {
    let mut builder = Builder::new();
    builder.worker_threads(1).stall_threshold(Duration::MAX);
    let runtime = builder.late_threshold(10 * MS).build().unwrap();
    let recorder = runtime.flight_recorder();
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
    assert!(has_late(&kept[0], 10 * MS), "{kept:?}");
    assert_eq!(recorder.kept_at()[0], kept[0].taken_at);
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
    assert_eq!(runtime.flight_recorder().kept().len(), 1);
}
