//! A dump lists the tasks, with what they do and what they wait for.

use std::{
    future::{pending, poll_fn},
    os::fd::AsRawFd,
    sync::{Arc, Mutex, mpsc},
    task::Poll,
    thread,
};

use tourbillon::{
    Runtime,
    net::TcpListener,
    runtime::dump::{Dump, Task, TaskState, Wait},
    task::{LocalSet, yield_now},
};

use super::common::{
    Gate, PATIENCE, alarm, blocked::AllBlocked, eventually, net::ANY_PORT, runtime,
};

/// Waits until a dump has a task for which `is` returns `true`, and returns that task.
#[track_caller]
fn find(runtime: &Runtime, is: impl Fn(&Task) -> bool) -> Task {
    let mut found = None;
    eventually("the task is listed", || {
        let dump = runtime.dump();
        found = dump.tasks().iter().find(|task| is(task)).cloned();
        found.is_some()
    });
    found.unwrap()
}

async fn waits_for_ever() {
    pending().await
}

#[test]
fn a_waiting_task_is_listed_until_it_ends() {
    let _alarm = alarm();
    let runtime = runtime(2);
    assert_eq!(runtime.dump().to_string(), "");
    let line = line!() + 1;
    let task = runtime.spawn(waits_for_ever());
    let seen = find(&runtime, |_| true);
    assert_eq!(seen.id(), task.id());
    assert!(seen.name().contains("dump::waits_for_ever"), "{seen}");
    assert_eq!(
        (seen.spawned_at().file(), seen.spawned_at().line()),
        (file!(), line)
    );
    assert_eq!(seen.state(), TaskState::Waiting);
    assert_eq!((seen.waits_for(), seen.pinned_to()), (&[][..], None));
    let dump = runtime.dump();
    assert_eq!(dump.num_unlisted(), 0);
    let expected = format!(
        "task {} {} (spawned at {}): waiting\n",
        task.id(),
        seen.name(),
        seen.spawned_at()
    );
    assert_eq!(dump.to_string(), expected);
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    assert_eq!(runtime.dump().tasks().iter().count(), 0);
}

#[test]
fn a_dump_of_some_tasks_says_how_many_are_left_out() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let tasks: Vec<_> = (0..5).map(|_| runtime.spawn(waits_for_ever())).collect();
    eventually("all tasks are listed", || runtime.dump().num_listed() == 5);
    let some = runtime.dump_at_most(2);
    assert_eq!(some.tasks().iter().count(), 2);
    assert_eq!((some.num_listed(), some.num_unlisted()), (5, 0));
    let text = some.to_string();
    assert!(
        text.ends_with("\nand 3 more, which the dump leaves out\n"),
        "{text}"
    );
    // The limit is exact: none, and as many as there are.
    for (most, left_out) in [(0, 5), (4, 1), (5, 0), (6, 0)] {
        let some = runtime.handle().dump_at_most(most);
        assert_eq!(some.tasks().iter().count(), 5 - left_out, "at most {most}");
        assert_eq!((some.num_listed(), some.num_unlisted()), (5, 0));
    }
    tasks.iter().for_each(|task| task.abort());
}

#[test]
fn tasks_run_and_are_queued_while_all_workers_are_stuck() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (stuck, release) = (Gate::new(), Gate::new());
    let mut woken = false;
    let (stuck_here, release_here) = (stuck.clone(), release.clone());
    let running = runtime.spawn(async move {
        // A task is not listed before its first wait.
        yield_now().await;
        stuck_here.open();
        release_here.wait();
    });
    stuck.wait();
    let queued = runtime.spawn(poll_fn(move |cx| {
        match std::mem::replace(&mut woken, true) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }));
    let dump = runtime.dump();
    let tasks: Vec<_> = dump.tasks().iter().collect();
    assert_eq!(tasks.len(), 1, "{dump}");
    assert_eq!(
        (tasks[0].id(), tasks[0].state()),
        (running.id(), TaskState::Running)
    );
    // The queued task has not run yet, so it is counted but not listed.
    assert_eq!(dump.num_unlisted(), 1);
    assert!(
        dump.to_string()
            .ends_with("and 1 more, which have not waited yet\n")
    );
    release.open();
    runtime.block_on(async {
        running.await.unwrap();
        queued.await.unwrap();
    });
}

#[test]
fn a_woken_task_of_a_stuck_runtime_is_queued() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let notify = std::sync::Arc::new(tourbillon::sync::Notify::new());
    let notified = notify.clone();
    let task = runtime.spawn(async move { notified.notified().await });
    find(&runtime, |task| task.state() == TaskState::Waiting);
    let stuck = AllBlocked::all(&runtime);
    notify.notify_one();
    let queued = find(&runtime, |task| task.state() == TaskState::Queued);
    assert_eq!(queued.id(), task.id());
    drop(stuck);
    runtime.block_on(task).unwrap();
}

#[test]
fn a_task_waits_for_its_descriptor() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = std::sync::mpsc::channel();
    let task = runtime.spawn(async move {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        sender
            .send((listener.as_raw_fd(), listener.local_addr().unwrap()))
            .unwrap();
        drop(listener.accept().await.unwrap());
        waits_for_ever().await;
    });
    let (fd, addr) = receiver.recv().unwrap();
    let waits = find(&runtime, |task| !task.waits_for().is_empty());
    assert_eq!(waits.waits_for(), [Wait::Readable(fd)]);
    let text = format!(": waiting for descriptor {fd} to be readable");
    assert!(waits.to_string().ends_with(&text), "{waits}");
    // After that, the task waits for nothing that the dump knows.
    drop(std::net::TcpStream::connect(addr).unwrap());
    find(&runtime, |task| {
        task.waits_for().is_empty() && task.state() == TaskState::Waiting
    });
    task.abort();
}

#[test]
fn a_pinned_task_is_listed_with_its_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let task = runtime
        .handle()
        .spawn_pinned_by_idx(waits_for_ever, 1)
        .unwrap();
    let pinned = find(&runtime, |task| task.state() == TaskState::Waiting);
    assert_eq!((pinned.id(), pinned.pinned_to()), (task.id(), Some(1)));
    assert!(
        pinned.to_string().ends_with(": waiting, on worker 1 only"),
        "{pinned}"
    );
    task.abort();
}

#[test]
fn tasks_of_a_local_set_are_not_listed() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let set = LocalSet::new();
    let task = set.spawn_local(waits_for_ever());
    runtime.block_on(set.run_until(yield_now()));
    assert_eq!(runtime.dump().tasks().iter().count(), 0);
    task.abort();
}

#[test]
fn many_tasks_are_all_listed_while_tasks_begin_and_end() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let tasks: Vec<_> = (0..1_000)
        .map(|_| runtime.spawn(waits_for_ever()))
        .collect();
    let listed = |dump: &Dump| {
        let waits = |task: &&Task| task.name().contains("waits_for_ever");
        dump.tasks().iter().filter(waits).count()
    };
    eventually("all wait", || listed(&runtime.dump()) == tasks.len());
    let stop = Gate::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.is_open() {
                runtime.block_on(runtime.spawn(yield_now())).unwrap();
            }
        });
        for _ in 0..50 {
            assert_eq!(listed(&runtime.dump()), tasks.len());
        }
        stop.open();
    });
    tasks.iter().for_each(|task| task.abort());
}

#[test]
fn each_task_is_polled_once_for_a_trace_of_its_waits() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // Pinned or not; one waits for two things at once.
    let (sender, polls) = mpsc::channel();
    let waits = |wakers: usize| {
        let sender = sender.clone();
        poll_fn(move |cx| {
            sender.send(wakers).unwrap();
            (0..wakers).for_each(|_| drop(cx.waker().clone()));
            Poll::<()>::Pending
        })
    };
    let any = runtime.spawn(waits(1));
    let waits_twice = waits(2);
    let pinned = runtime.handle().spawn_pinned(move || waits_twice);
    for task in [any.id(), pinned.id()] {
        find(&runtime, |it| {
            it.id() == task && it.state() == TaskState::Waiting
        });
    }
    assert_eq!(polls.try_iter().sum::<usize>(), 3);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let dump = runtime.handle().trace_waits(PATIENCE, move |task| {
        tells.lock().unwrap().push(task);
        panic!("it is caught, and the task goes on");
    });
    // A worker that is slow to say that it has polled a task may poll it again.
    assert!(polls.try_iter().sum::<usize>() >= 3);
    assert_eq!(dump.tasks().iter().filter(|it| it.is_traced()).count(), 2);
    let mut told = told.lock().unwrap().clone();
    told.sort_unstable();
    let mut expected = [any.id(), pinned.id(), pinned.id()];
    expected.sort_unstable();
    assert_eq!(told, expected);
    // Later polls tell nobody.
    assert!(runtime.dump().tasks().iter().all(|it| !it.is_traced()));
    any.abort();
    pinned.abort();
}
