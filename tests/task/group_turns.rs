//! When the workers of a runtime with groups look at sockets.

use std::{
    io::Write,
    os::unix::net::UnixStream as Peer,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::spin;
use futures_lite::AsyncReadExt;
use tourbillon::{
    Runtime,
    net::UnixStream,
    runtime::Builder,
    task::{Group, yield_now},
};

/// Longer than the turn of a group.
const POLL: Duration = Duration::from_micros(200);

/// Makes a byte ready for a task of the default group while a task of another one has the worker.
/// Returns the most polls of that other task until the byte is read.
fn polls_until_read(runtime: &Runtime) -> usize {
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
        for byte in 1..=20 {
            // Many short jobs: by their length alone, the worker would look after many jobs.
            let short = async {
                for _ in 0..100 {
                    yield_now().await;
                }
            };
            default.spawn(short).await.unwrap();
            ours.write_all(&[0]).unwrap();
            let mut polls = 0;
            while read.load(SeqCst) < byte {
                spin(POLL);
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
        let runtime = builder.default_group(default).build().unwrap();
        let polls = polls_until_read(&runtime);
        assert!(polls <= 2, "{polls} polls before a look");
    }
}
