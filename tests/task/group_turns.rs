//! When the workers of a runtime with groups look at sockets, and how reports name the groups.

use std::{
    io::Write,
    os::unix::net::UnixStream as Peer,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use crate::common::{skip, spin};
use futures_lite::AsyncReadExt;
use tourbillon::{
    Handle, Runtime,
    flight::Event,
    net::UnixStream,
    runtime::Builder,
    task::{Group, yield_now},
};

/// Longer than anything here takes, but for a hang.
const LONG: Duration = Duration::from_secs(300);

/// Longer than the turn of a group.
const LONG_POLL: Duration = Duration::from_micros(200);
/// Less than a third of the turn of a group.
const SHORT_POLL: Duration = Duration::from_micros(30);

/// Makes a byte ready for a task of the default group while a task of another one has the worker,
/// after some polls of that task. Returns the most polls of it until the byte is read, which take
/// `poll` or longer.
///
/// The runtime must have no rescue: on a busy machine, a helper could take the event, and then wait
/// for a core itself.
fn polls_until_read(runtime: &Runtime, poll: Duration) -> usize {
    let batch = Group::builder("batch").shares(1);
    let batch = batch.build_on(runtime.handle()).unwrap();
    let (mut ours, theirs) = Peer::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let read = Arc::new(AtomicUsize::new(0));
    let count = read.clone();
    let reader = runtime.spawn(async move {
        let mut theirs = UnixStream::from_std(theirs).unwrap();
        while theirs.read(&mut [0]).await.unwrap() > 0 {
            count.fetch_add(1, SeqCst);
        }
    });
    let default = runtime.handle().clone();
    let long = batch.spawn(async move {
        let mut most = 0;
        for byte in 1..=100 {
            // Many short jobs: by their length alone, the worker would look after many jobs.
            let short = async {
                for _ in 0..100 {
                    yield_now().await;
                }
            };
            default.spawn(short).await.unwrap();
            for _ in 0..byte % 5 {
                spin(poll);
                yield_now().await;
            }
            ours.write_all(&[0]).unwrap();
            let mut polls = 0;
            while read.load(SeqCst) < byte {
                spin(poll);
                yield_now().await;
                polls += 1;
            }
            most = most.max(polls);
        }
        most
    });
    let most = runtime.block_on(long).unwrap();
    runtime.block_on(reader).unwrap();
    most
}

#[test]
fn a_worker_looks_at_sockets_after_a_long_job_of_a_group() {
    let mut multi_thread = Builder::new();
    multi_thread.worker_threads(1);
    for mut builder in [multi_thread, Builder::new_current_thread()] {
        // With such shares the default group is always next.
        let default = Group::builder("default").shares(10_000);
        builder.default_group(default).rescue_latency(Duration::MAX);
        let runtime = builder.build().unwrap();
        let polls = polls_until_read(&runtime, LONG_POLL);
        assert!(polls <= 2, "{polls} polls before a look");
    }
}

/// The look ends the turn, whose length is counted from another moment.
#[test]
fn what_a_look_brings_does_not_wait_for_the_rest_of_a_turn() {
    let default = Group::builder("default").shares(10_000);
    let mut builder = Builder::new();
    let builder = builder.worker_threads(1).default_group(default);
    let runtime = builder.rescue_latency(Duration::MAX).build().unwrap();
    let polls = polls_until_read(&runtime, SHORT_POLL);
    assert!(polls <= 4, "{polls} polls, and a turn has four at most");
}

/// Makes the worker time each of its jobs, by a stall whose job nobody knows. A task calls this. It
/// returns how often the task was polled, or `None` if the worker looks at sockets after each job,
/// as under a sanitizer: then no job is unknown.
async fn jobs_are_timed(handle: &Handle) -> Option<u64> {
    let mut polls = 1;
    // A long job right after a short one: nobody sees which of both takes the time.
    let is_unknown = || {
        let stalls = handle.recent_stalls();
        stalls.iter().any(|recent| recent.stall.job.is_none())
    };
    let mut rounds = 0;
    while !is_unknown() {
        if rounds == 300 {
            return None;
        }
        rounds += 1;
        yield_now().await;
        yield_now().await;
        spin(Duration::from_millis(10));
        yield_now().await;
        polls += 3;
    }
    Some(polls)
}

const NONE_IS_UNKNOWN: &str = "the shortest job takes two thirds of a turn";

#[test]
fn a_worker_that_times_its_jobs_looks_at_sockets_as_often() {
    let default = Group::builder("default").shares(10_000);
    let mut builder = Builder::new();
    let builder = builder.worker_threads(1).default_group(default);
    let builder = builder.stall_threshold(Duration::from_millis(5));
    let runtime = builder.rescue_latency(Duration::MAX).build().unwrap();
    let stalls = Group::builder("stalls").build_on(runtime.handle()).unwrap();
    let handle = runtime.handle().clone();
    let timed = stalls.spawn(async move { jobs_are_timed(&handle).await });
    if runtime.block_on(timed).unwrap().is_none() {
        return skip(NONE_IS_UNKNOWN);
    }
    let polls = polls_until_read(&runtime, SHORT_POLL);
    assert!(polls <= 4, "{polls} polls, and a turn has four at most");
}

/// After a stall whose job is not known, the worker reads the clock before it runs each job. By
/// then it has taken the job.
#[test]
fn jobs_that_are_timed_after_a_stall_count_for_their_group() {
    let runtime = Builder::new()
        .worker_threads(1)
        .rescue_latency(Duration::MAX)
        .stall_threshold(Duration::from_millis(5))
        .build()
        .unwrap();
    let batch = Group::builder("batch").build_on(runtime.handle()).unwrap();
    let handle = runtime.handle().clone();
    let polls = runtime.block_on(batch.spawn(async move {
        let mut polls = jobs_are_timed(&handle).await?;
        for _ in 0..20 {
            spin(Duration::from_millis(2));
            yield_now().await;
            polls += 1;
        }
        Some(polls)
    }));
    let Some(polls) = polls.unwrap() else {
        return skip(NONE_IS_UNKNOWN);
    };
    // The last job is counted when the worker takes the next one.
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let metrics = runtime.metrics();
    let group = &metrics.groups()[1];
    assert_eq!((group.name(), group.jobs()), ("batch", polls));
    assert!(group.busy() >= Duration::from_millis(50), "{group:?}");
}

#[test]
fn reports_name_the_group_of_a_job() {
    let (reports, reported) = mpsc::channel();
    let runtime = Builder::new()
        .worker_threads(2)
        .stall_threshold(Duration::from_millis(20))
        .on_stall(move |stall| reports.send(stall.job.and_then(|job| job.group)).unwrap())
        .build()
        .unwrap();
    let batch = Group::builder("batch").build_on(runtime.handle()).unwrap();
    let long = || async { spin(Duration::from_millis(50)) };
    let next = || reported.recv_timeout(LONG).unwrap();
    runtime.block_on(batch.spawn(long())).unwrap();
    assert_eq!(next(), Some("batch"));
    runtime.block_on(runtime.spawn(long())).unwrap();
    // The stall of the first job may be reported a second time, for its end.
    let groups = std::iter::repeat_with(next).find(|group| group.is_none());
    assert_eq!(groups, Some(None));
    // The flight recorder names it, too.
    let snapshot = runtime.handle().flight_recorder().snapshot();
    let events = snapshot.tracks.iter().flat_map(|track| &track.events);
    let last = events.filter_map(|(_, event)| match event {
        Event::Turn { last, .. } => *last,
        _ => None,
    });
    let groups: Vec<_> = last.map(|job| job.group).collect();
    assert!(groups.contains(&Some("batch")), "{groups:?}");
    // So does a worker while it runs the job.
    let (begun, began) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let runs = batch.spawn(async move {
        begun.send(()).unwrap();
        waits.recv_timeout(LONG).unwrap();
    });
    began.recv_timeout(LONG).unwrap();
    let metrics = runtime.metrics();
    let mut jobs = metrics.workers().iter().filter_map(|worker| worker.job());
    assert!(
        jobs.any(|job| job.group == Some("batch") && job.to_string().contains("of group batch"))
    );
    go_on.send(()).unwrap();
    runtime.block_on(runs).unwrap();
}
