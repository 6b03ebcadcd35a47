//! Tasks of one worker in a group: they are in the group that spawned them, and run by its shares.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use crate::common::{Drops, eventually, spin};
use tourbillon::{
    Runtime,
    runtime::{Builder, worker_index},
    sync::Notify,
    task::{Group, block_in_place, spawn_local, spawn_pinned, spawn_pinned_by_idx, yield_now},
    time::sleep,
};

/// Longer than anything here takes, but for a hang.
const LONG: Duration = Duration::from_secs(300);
const MS: Duration = Duration::from_millis(1);

fn runtime(workers: usize) -> Runtime {
    Builder::new().worker_threads(workers).build().unwrap()
}

fn group(runtime: &Runtime, name: &str) -> Group {
    Group::builder(name).build_on(runtime.handle()).unwrap()
}

fn name_here() -> String {
    Group::current().unwrap().name().to_owned()
}

#[test]
fn a_pinned_task_is_in_the_group_that_spawned_it() {
    let runtime = runtime(2);
    let batch = group(&runtime, "batch");
    let other = group(&runtime, "other");
    let names = move || async move {
        let (here, home) = (name_here(), worker_index());
        sleep(MS).await;
        let mut names = vec![here, name_here()];
        assert_eq!(worker_index(), home);
        let local = async move { (name_here(), worker_index()) };
        let (name, worker) = spawn_local(local).await.unwrap();
        names.push(name);
        assert_eq!(worker, home);
        names.push(tourbillon::spawn(async { name_here() }).await.unwrap());
        // A scope moves what it spawns, and not the task.
        let moved = other.sync_scope(|| spawn_local(async { name_here() }));
        assert_eq!(moved.await.unwrap(), "other");
        names.push(name_here());
        names
    };
    let spawn = names.clone();
    let task = batch.spawn(async move { spawn_pinned(spawn).await.unwrap() });
    assert_eq!(runtime.block_on(task).unwrap(), ["batch"; 5]);
    for worker in 0..2 {
        let here = |names| runtime.handle().spawn_pinned_by_idx(names, worker).unwrap();
        let task = batch.sync_scope(|| here(names.clone()));
        assert_eq!(runtime.block_on(task).unwrap(), ["batch"; 5]);
        let task = here(names.clone());
        assert_eq!(runtime.block_on(task).unwrap(), ["default"; 5]);
    }
}

/// A group of few shares has pinned tasks that are always ready. A task of the default group
/// yields: without shares, each time behind one of them.
#[test]
fn pinned_tasks_take_no_more_than_the_shares_of_their_group() {
    const POLLS: usize = 50;
    let default = Group::builder("default").shares(10_000);
    let mut builder = Builder::new();
    let runtime = builder.worker_threads(1).default_group(default).build();
    let runtime = runtime.unwrap();
    let batch = Group::builder("batch").shares(1);
    let batch = batch.build_on(runtime.handle()).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    for _ in 0..8 {
        let count = count.clone();
        let busy = || async move {
            loop {
                spin(MS / 5);
                count.fetch_add(1, SeqCst);
                yield_now().await;
            }
        };
        batch.sync_scope(|| drop(runtime.handle().spawn_pinned(busy)));
    }
    eventually("they run", || ran.load(SeqCst) > 0);
    let polled = runtime.spawn(async move {
        let before = ran.load(SeqCst);
        for _ in 0..POLLS {
            spin(MS / 5);
            yield_now().await;
        }
        ran.load(SeqCst) - before
    });
    let ran = runtime.block_on(polled).unwrap();
    assert!(ran <= POLLS / 10, "{ran} pinned polls during {POLLS} polls");
}

#[test]
fn pinned_tasks_count_for_their_group() {
    let runtime = runtime(1);
    let batch = group(&runtime, "batch");
    let task = batch.sync_scope(|| runtime.handle().spawn_pinned(|| async { spin(10 * MS) }));
    runtime.block_on(task).unwrap();
    // The last job is counted when the worker takes its next one.
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let metrics = runtime.metrics();
    let group = &metrics.groups()[1];
    assert_eq!((group.name(), group.jobs()), ("batch", 1));
    assert!(group.busy() >= 10 * MS, "{group:?}");
}

/// Each job is longer than a turn, so each turn has one job. In each group, pinned tasks and those
/// of any worker are always ready.
#[test]
fn neither_pinned_nor_other_tasks_of_a_group_starve() {
    let runtime = runtime(1);
    let counts: [_; 4] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
    let busy = |count: &Arc<AtomicUsize>| {
        let count = count.clone();
        || async move {
            loop {
                spin(MS / 4);
                count.fetch_add(1, SeqCst);
                yield_now().await;
            }
        }
    };
    let groups = [group(&runtime, "one"), group(&runtime, "two")];
    for (group, counts) in groups.iter().zip(counts.chunks(2)) {
        for _ in 0..2 {
            group.spawn(busy(&counts[0])());
            group.sync_scope(|| runtime.handle().spawn_pinned(busy(&counts[1])));
        }
    }
    for count in &counts {
        eventually("it goes on", || count.load(SeqCst) >= 20);
    }
}

/// Other threads wake the tasks while the worker sleeps, or is about to.
#[test]
fn no_wake_up_of_a_pinned_task_is_lost() {
    let runtime = runtime(1);
    let (sender, woken) = mpsc::channel();
    let groups = ["one", "two"].map(|name| group(&runtime, name));
    let notifies: Vec<_> = groups
        .iter()
        .map(|group| {
            let (notify, sender) = (Arc::new(Notify::new()), sender.clone());
            let notified = notify.clone();
            let waits = move || async move {
                loop {
                    notified.notified().await;
                    sender.send(name_here()).unwrap();
                }
            };
            group.sync_scope(|| drop(runtime.handle().spawn_pinned(waits)));
            notify
        })
        .collect();
    for round in 0..2_000 {
        let notify = &notifies[round % 2];
        notify.notify_one();
        let name = woken.recv_timeout(LONG).expect("the task was woken");
        assert_eq!(name, groups[round % 2].name());
    }
}

#[test]
fn pinned_tasks_of_a_group_wait_for_their_worker_and_end_on_it() {
    /// Is not Send, and asserts on which worker it is dropped.
    struct Stays(Rc<Cell<usize>>);
    impl Drop for Stays {
        fn drop(&mut self) {
            assert_eq!(worker_index(), Some(self.0.get()));
        }
    }
    let runtime = runtime(2);
    let batch = group(&runtime, "batch");
    let drops = Drops::new();
    let (sender, ran) = mpsc::channel();
    for worker in 0..2 {
        let (token, sender) = (drops.token(), sender.clone());
        let waits = move || async move {
            let _stays = (Stays(Rc::new(Cell::new(worker))), token);
            // The worker blocks. No other thread runs this task meanwhile.
            let own = || async move { worker_index() };
            let own = spawn_pinned_by_idx(own, worker).unwrap();
            block_in_place(|| spin(MS));
            assert!(!own.is_finished());
            sender.send((worker, own.await.unwrap())).unwrap();
            std::future::pending::<()>().await;
        };
        let here = || runtime.handle().spawn_pinned_by_idx(waits, worker);
        drop(batch.sync_scope(here).unwrap());
    }
    for _ in 0..2 {
        let (worker, ran) = ran.recv_timeout(LONG).unwrap();
        assert_eq!(ran, Some(worker));
    }
    drop(runtime);
    assert_eq!(drops.count(), 2);
}

#[test]
fn a_paused_clock_waits_for_pinned_tasks_of_groups() {
    let runtime = Builder::new().worker_threads(2).start_paused(true).build();
    let runtime = runtime.unwrap();
    let batch = group(&runtime, "batch");
    runtime.block_on(async {
        let begin = tourbillon::time::Instant::now();
        let yields = move || async move {
            for _ in 0..100 {
                yield_now().await;
            }
            begin.elapsed()
        };
        let tasks: Vec<_> = (0..10)
            .map(|at| batch.sync_scope(|| spawn_pinned_by_idx(yields, at % 2).unwrap()))
            .collect();
        let hour = tourbillon::spawn(sleep(Duration::from_secs(3600)));
        for task in tasks {
            assert_eq!(task.await.unwrap(), Duration::ZERO);
        }
        hour.await.unwrap();
    });
}
