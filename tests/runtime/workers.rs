//! Fewer workers than the runtime has: what the retired ones do, and what they do not.

use std::{
    io::{Read, Write},
    sync::{
        Arc, Barrier, Mutex,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use tourbillon::{
    Runtime, Timer, WorkersError,
    net::TcpListener,
    runtime::{Builder, worker_index},
    task,
    time::sleep,
    timer::Cancel,
};

use crate::common::{Gate, HOUR, PATIENCE, alarm, blocked::settle, eventually};

/// Builds a runtime of three workers, of which only the first takes part. No peer is called if it
/// is stuck, so what runs elsewhere is a fault.
fn one_of_three() -> Runtime {
    let runtime = with_three(Duration::MAX);
    retire_two(&runtime);
    runtime
}

fn with_three(latency: Duration) -> Runtime {
    let mut builder = Builder::new();
    let builder = builder.worker_threads(3).pin(false).rescue_latency(latency);
    builder.build().unwrap()
}

fn retire_two(runtime: &Runtime) {
    // Until then, they may be on their way to their first look.
    settle(runtime);
    runtime.handle().set_workers(1).unwrap();
    settle(runtime);
}

/// Receives what comes from `count` jobs.
#[track_caller]
fn all<T>(receiver: &Receiver<T>, count: usize) -> Vec<T> {
    let next = || receiver.recv_timeout(PATIENCE).expect("it runs");
    (0..count).map(|_| next()).collect()
}

#[test]
fn the_number_of_workers_that_take_part_is_checked() {
    let runtime = with_three(Duration::MAX);
    let handle = runtime.handle();
    assert_eq!(runtime.metrics().active_workers(), 3);
    assert_eq!(handle.set_workers(0), Err(WorkersError::Zero));
    let error = handle.set_workers(4).unwrap_err();
    assert_eq!(error, WorkersError::TooMany { asked: 4, most: 3 });
    assert!(
        error.to_string().contains("built with 3 workers"),
        "{error}"
    );
    for workers in [1, 3, 2] {
        handle.set_workers(workers).unwrap();
        assert_eq!(runtime.metrics().active_workers(), workers);
        assert_eq!(runtime.metrics().num_workers(), 3);
    }
    let (handle, current) = (
        handle.clone(),
        Builder::new_current_thread().build().unwrap(),
    );
    drop(runtime);
    assert_eq!(handle.metrics().active_workers(), 0);
    assert_eq!(handle.set_workers(1), Ok(()));
    assert_eq!(current.handle().set_workers(1), Ok(()));
}

#[test]
fn retired_workers_run_no_tasks() {
    let _alarm = alarm();
    let runtime = one_of_three();
    let (sender, receiver) = mpsc::channel();
    let spawn = |sender: mpsc::Sender<_>| async move {
        for _ in 0..100 {
            task::yield_now().await;
            sender.send(worker_index()).unwrap();
            let sender = sender.clone();
            tourbillon::spawn(async move { sender.send(worker_index()).unwrap() });
        }
    };
    let tasks = 20;
    (0..tasks).for_each(|_| drop(runtime.spawn(spawn(sender.clone()))));
    for index in all(&receiver, tasks * 200) {
        assert_eq!(index, Some(0));
    }
}

#[test]
fn what_timers_of_a_retired_worker_make_ready_runs_on_others() {
    let _alarm = alarm();
    let runtime = with_three(Duration::MAX);
    settle(&runtime);
    let (sender, receiver) = mpsc::channel();
    let arm = |worker| {
        let sender = sender.clone();
        let timer = Timer::after(HOUR).on(runtime.handle()).on_worker(worker);
        timer.start(move || sender.send(worker_index()).unwrap())
    };
    let mut timers: Vec<_> = (0..90).map(|i| arm(i % 3)).collect();
    runtime.handle().set_workers(1).unwrap();
    settle(&runtime);
    // To ask for a worker is to ask for its timer store.
    timers.extend((0..90).map(|i| arm(i % 3)));
    let cancelled = timers.split_off(150);
    for timer in &cancelled {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    for (i, timer) in (0..).zip(&timers) {
        timer.reset_after(Duration::from_micros(100 * i));
    }
    for index in all(&receiver, timers.len()) {
        assert_eq!(index, Some(0));
    }
}

#[test]
fn sockets_and_sleeps_of_a_retired_worker_go_on() {
    let _alarm = alarm();
    let runtime = with_three(Duration::MAX);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let addr = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let served = {
        let seen = seen.clone();
        runtime.spawn(async move {
            for _ in 0..12 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let seen = seen.clone();
                // Each is on the worker that runs this first.
                tourbillon::spawn(async move {
                    use futures_lite::{AsyncReadExt, AsyncWriteExt};
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        seen.lock().unwrap().push((byte[0], worker_index()));
                        sleep(Duration::from_millis(1)).await;
                        seen.lock().unwrap().push((byte[0], worker_index()));
                        stream.write_all(&byte).await.unwrap();
                    }
                });
            }
        })
    };
    let mut clients: Vec<_> = (0..12)
        .map(|_| std::net::TcpStream::connect(addr).unwrap())
        .collect();
    let ask = |clients: &mut Vec<std::net::TcpStream>, byte: u8| {
        clients
            .iter_mut()
            .for_each(|it| it.write_all(&[byte]).unwrap());
        for client in clients {
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [byte]);
        }
    };
    ask(&mut clients, 1);
    runtime.block_on(served).unwrap();
    retire_two(&runtime);
    ask(&mut clients, 2);
    let seen = seen.lock().unwrap();
    let after: Vec<_> = seen.iter().filter(|it| it.0 == 2).collect();
    assert_eq!(after.len(), 24);
    assert!(after.iter().all(|it| it.1 == Some(0)), "{after:?}");
}

#[test]
fn pinned_tasks_of_a_retired_worker_run_on_it() {
    let _alarm = alarm();
    let runtime = one_of_three();
    let (sender, receiver) = mpsc::channel();
    let pinned = move || async move {
        for _ in 0..50 {
            sleep(Duration::from_micros(100)).await;
            task::yield_now().await;
            let other = sender.clone();
            // It is pinned to no worker.
            tourbillon::spawn(async move { other.send((false, worker_index())).unwrap() });
            sender.send((true, worker_index())).unwrap();
        }
    };
    let pinned = runtime.handle().spawn_pinned_by_idx(pinned, 2).unwrap();
    for (is_pinned, index) in all(&receiver, 100) {
        assert_eq!(index, Some(if is_pinned { 2 } else { 0 }));
    }
    runtime.block_on(pinned).unwrap();
    // New ones go to workers that take part.
    let new = runtime.handle().spawn_pinned(|| async { worker_index() });
    assert_eq!(runtime.block_on(new).unwrap(), Some(0));
}

#[test]
fn workers_take_part_again() {
    let _alarm = alarm();
    let runtime = one_of_three();
    // Three jobs wait for each other, so each needs a worker.
    let meet = || {
        let barrier = Arc::new(Barrier::new(3));
        let (sender, receiver) = mpsc::channel();
        for _ in 0..3 {
            let (barrier, sender) = (barrier.clone(), sender.clone());
            runtime.spawn(async move {
                barrier.wait();
                sender.send(()).unwrap();
            });
        }
        receiver
    };
    let receiver = meet();
    runtime.handle().set_workers(3).unwrap();
    all(&receiver, 3);
    for workers in [2, 1, 2, 3] {
        runtime.handle().set_workers(workers).unwrap();
    }
    all(&meet(), 3);
}

#[test]
fn a_retired_worker_is_called_when_the_others_are_stuck() {
    let _alarm = alarm();
    let runtime = with_three(Duration::from_millis(1));
    retire_two(&runtime);
    for in_place in [false, true] {
        let (sender, receiver) = mpsc::channel();
        let gate = Gate::new();
        let block = {
            let gate = gate.clone();
            move || {
                sender.send(worker_index()).unwrap();
                gate.wait();
            }
        };
        let stuck = runtime.spawn(async move {
            match in_place {
                true => task::block_in_place(block),
                false => block(),
            }
        });
        // On a busy machine, another worker may stand in for the first one.
        let stuck_at = all(&receiver, 1)[0];
        // One after the other: a task and a callback.
        for _ in 0..20 {
            let task = runtime.spawn(async { worker_index() });
            assert_ne!(runtime.block_on(task).unwrap(), stuck_at);
            let (sender, receiver) = mpsc::channel();
            let timer = runtime.handle().after(Duration::from_micros(50), move || {
                sender.send(worker_index()).unwrap();
            });
            assert_ne!(all(&receiver, 1), [stuck_at]);
            drop(timer);
        }
        gate.open();
        runtime.block_on(stuck).unwrap();
    }
}

#[test]
fn one_retired_worker_stands_in_until_the_job_is_over() {
    let _alarm = alarm();
    // So long that no worker but the one that blocks counts as stuck, also on a busy machine.
    let runtime = with_three(Duration::from_secs(1));
    retire_two(&runtime);
    // There is always work.
    let end = Gate::new();
    let busy: Vec<_> = (0..10)
        .map(|_| {
            let end = end.clone();
            runtime.spawn(async move {
                while !end.is_open() {
                    task::yield_now().await;
                }
            })
        })
        .collect();
    let (sender, receiver) = mpsc::channel();
    let gate = Gate::new();
    let stuck = {
        let gate = gate.clone();
        runtime.spawn(async move {
            sender.send(worker_index()).unwrap();
            gate.wait();
        })
    };
    assert_eq!(all(&receiver, 1), [Some(0)]);
    let polls = |worker: usize| runtime.metrics().worker_poll_count(worker);
    let others = || (1..3).map(polls).sum::<u64>();
    let before = [1, 2].map(polls);
    eventually("another one stands in", || others() > before.iter().sum());
    // The alarm of the first worker calls the third one, too.
    thread::sleep(Duration::from_secs(2));
    let after = [1, 2].map(polls);
    let stood_in = (0..2).filter(|&i| after[i] > before[i]).count();
    gate.open();
    runtime.block_on(stuck).unwrap();
    eventually("it is retired again", || {
        let (own, before) = (polls(0), others());
        eventually("the first one works", || polls(0) > own + 1_000);
        others() == before
    });
    end.open();
    for task in busy {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(stood_in, 1);
}

#[test]
fn all_workers_take_part_on_a_paused_clock() {
    let _alarm = alarm();
    let runtime = one_of_three();
    runtime.handle().pause_clock();
    let barrier = Arc::new(Barrier::new(3));
    let task = || {
        let barrier = barrier.clone();
        runtime.spawn(async move {
            barrier.wait();
            sleep(Duration::from_secs(3_600)).await;
        })
    };
    let tasks = [task(), task(), task()];
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn the_limit_may_change_while_everything_runs() {
    let _alarm = alarm();
    for latency in [Duration::MAX, Duration::from_millis(1)] {
        let runtime = with_three(latency);
        let handle = runtime.handle().clone();
        let end = Gate::new();
        let changes = thread::spawn({
            let end = end.clone();
            move || {
                for changes in 0.. {
                    handle.set_workers(1 + changes % 3).unwrap();
                    if end.is_open() {
                        break;
                    }
                    thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let tasks: Vec<_> = (0..30)
            .map(|i| {
                runtime.spawn(async move {
                    for _ in 0..30 {
                        sleep(Duration::from_micros(i * 40)).await;
                        tourbillon::spawn(task::yield_now()).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        end.open();
        changes.join().unwrap();
    }
}
