//! dial9, unmodified, traces the polls of this runtime.

use std::{collections::HashMap, fs};

use dial9_tokio_telemetry::telemetry::{
    Dial9HandleTokioExt, DiskBuffer, TokioAttachOptions, analysis::TraceReader,
    analysis_events::Dial9Event, recorder,
};
use tokio::{runtime::Builder, task::yield_now};

#[test]
fn each_poll_is_in_the_trace() {
    let directory = std::env::temp_dir().join(format!("dial9-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let recorder = recorder(DiskBuffer::single_file(directory.join("trace.bin")).unwrap()).build();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    let options = TokioAttachOptions::builder()
        .task_tracking_enabled(true)
        .build();
    let runtime = recorder
        .handle()
        .attach_tokio_runtime(builder, options)
        .unwrap();
    let ids = runtime.block_on(async {
        let tasks = (0..20).map(|_| {
            tokio::spawn(async {
                for _ in 0..10 {
                    yield_now().await;
                }
                tokio::task::id()
            })
        });
        let mut ids = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            ids.push(task.await.unwrap().to_string().parse::<u64>().unwrap());
        }
        ids
    });
    drop(runtime);
    drop(recorder);
    let path = directory.join("trace.0.bin");
    let trace = TraceReader::new(path.to_str().unwrap()).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let mut polls = HashMap::new();
    let (mut ends, mut spawned, mut ended) = (0, 0, 0);
    for event in &trace.all_events {
        match event {
            Dial9Event::PollStartEvent(poll) => {
                assert!(poll.worker_id.as_u64() < 2);
                *polls.entry(poll.task_id).or_insert(0) += 1;
            }
            Dial9Event::PollEndEvent(_) => ends += 1,
            Dial9Event::TaskSpawnEvent(task) => {
                spawned +=
                    u32::from(ids.contains(&task.task_id) && task.spawn_loc.contains("dial9.rs"));
            }
            Dial9Event::TaskTerminateEvent(task) => ended += u32::from(ids.contains(&task.task_id)),
            _ => {}
        }
    }
    assert_eq!(polls.values().sum::<i32>(), ends);
    assert_eq!((spawned, ended), (20, 20));
    // Ten yields, and the end.
    assert!(ids.iter().all(|id| polls.get(id) == Some(&11)), "{polls:?}");
}
