//! The names of tasks, in each place that shows them.

use std::{
    future::{pending, ready},
    sync::mpsc,
    thread,
    time::Duration,
};

use tourbillon::{
    Handle, Runtime, runtime,
    task::{Builder, JoinHandle, LocalSet, spawn_local, yield_now},
};

use crate::common::{PATIENCE, eventually};

/// Returns the names in a dump of the runtime, in the order of the alphabet.
fn names(handle: &Handle) -> Vec<&'static str> {
    let mut names: Vec<_> = handle.dump().tasks().iter().map(|it| it.name()).collect();
    names.sort_unstable();
    names
}

#[test]
fn each_way_to_spawn_takes_a_name() {
    let runtime = runtime::Builder::new().worker_threads(2).build().unwrap();
    let handle = runtime.handle().clone();
    let outside = Builder::new().name("a").spawn_on(pending::<()>(), &handle);
    let of_worker: Vec<JoinHandle<()>> = runtime.block_on(async {
        tourbillon::spawn(async {
            let local = Builder::new().name("d").spawn_pinned(move || async move {
                let inner = Builder::new().name("e").spawn_local(pending::<()>());
                inner.await.unwrap();
            });
            vec![
                Builder::new().name("b").spawn(pending()),
                Builder::new().spawn(pending()),
                local,
            ]
        })
        .await
        .unwrap()
    });
    // The pinned task spawns the local one when it first runs.
    eventually("all tasks wait", || names(&handle).len() == 5);
    let unnamed = "core::future::pending::Pending<()>";
    assert_eq!(names(&handle), ["a", "b", unnamed, "d", "e"]);
    for task in handle.dump().tasks().iter() {
        assert_eq!(task.spawned_at().file(), file!());
    }
    outside.abort();
    of_worker.iter().for_each(JoinHandle::abort);
    // A blocking job may have a name, but no list contains the job.
    let blocking = Builder::new().name("f").spawn_blocking_on(|| 1, &handle);
    assert_eq!(runtime.block_on(blocking).unwrap(), 1);
}

#[test]
fn tasks_of_a_set_and_local_ones_run_with_names() {
    let runtime = Runtime::new().unwrap();
    let set = LocalSet::new();
    let named = Builder::new().name("on the set");
    let output = set.block_on(&runtime, async {
        let on_set = named.spawn_local_on(ready(1), &set);
        let local = named.spawn_local(ready(2));
        let plain = spawn_local(yield_now());
        plain.await.unwrap();
        on_set.await.unwrap() + local.await.unwrap()
    });
    assert_eq!(output, 3);
}

#[test]
fn a_stall_has_the_name_of_its_task() {
    let (report, reports) = mpsc::channel();
    let runtime = runtime::Builder::new()
        .worker_threads(2)
        .stall_threshold(Duration::from_millis(5))
        .on_stall(move |stall| report.send(stall.job.unwrap().name).unwrap())
        .build()
        .unwrap();
    let named = Builder::new().name("reads a large file");
    let blocks = async { thread::sleep(Duration::from_millis(50)) };
    let task = named.spawn_on(blocks, runtime.handle());
    runtime.block_on(task).unwrap();
    assert_eq!(
        reports.recv_timeout(PATIENCE).unwrap(),
        "reads a large file"
    );
}
