//! Callbacks of timers in groups: in which group they run, and how they share the workers.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant, SystemTime},
};

use crate::common::spin;
use tourbillon::{
    Handle, Runtime, Timer,
    runtime::Builder,
    task::{Group, yield_now},
    time::BootInstant,
    timer::{Cancel, Outcome},
};

/// Longer than anything here takes, but for a hang.
const LONG: Duration = Duration::from_secs(300);
const MS: Duration = Duration::from_millis(1);

fn group(runtime: &Runtime, name: &str) -> Group {
    Group::builder(name).build_on(runtime.handle()).unwrap()
}

fn name_here() -> String {
    Group::current().unwrap().name().to_owned()
}

/// Runtimes with workers of their own, and without.
fn runtimes() -> [Runtime; 2] {
    [
        Builder::new().worker_threads(2).build().unwrap(),
        Builder::new_current_thread().build().unwrap(),
    ]
}

/// Lets the runtime run until a callback has sent something.
fn next<T: Send + 'static>(runtime: &Runtime, sent: &mpsc::Receiver<T>) -> T {
    let begin = Instant::now();
    runtime.block_on(async {
        loop {
            if let Ok(it) = sent.try_recv() {
                return it;
            }
            assert!(begin.elapsed() < LONG, "it hangs");
            tourbillon::time::sleep(MS / 4).await;
        }
    })
}

/// Arms a timer in each way that there is. Each sends the group in which its callback runs.
fn arm_each(sender: &mpsc::Sender<(&'static str, String)>) -> Vec<Box<dyn Send>> {
    let runs = |way| {
        let sender = sender.clone();
        move || _ = sender.send((way, name_here()))
    };
    let told = |way| {
        let runs = runs(way);
        move |_: Outcome| runs()
    };
    let here = Handle::current();
    let boot = BootInstant::now() + MS;
    let cancelled = Timer::after(LONG).start_with(told("cancelled"));
    assert_eq!(cancelled.cancel(), Cancel::Cancelled);
    let mut timers: Vec<Box<dyn Send>> = vec![
        Box::new(tourbillon::after(MS, runs("after"))),
        Box::new(tourbillon::at(Instant::now(), runs("at"))),
        Box::new(tourbillon::every(MS, runs("every"))),
        Box::new(here.after(MS, runs("handle"))),
        Box::new(Timer::after(MS).name("named").start(runs("builder"))),
        Box::new(Timer::every(MS).times(1).start_with(told("told"))),
        Box::new(Timer::at_wall(SystemTime::now() + MS).start(runs("wall"))),
        Box::new(Timer::at_boot(boot).start(runs("boot"))),
    ];
    let many = here.after_many((0..200).map(|_| (MS, runs("many"))));
    timers.extend(many.into_iter().map(|it| Box::new(it) as Box<dyn Send>));
    timers
}

#[test]
fn a_callback_runs_in_the_group_that_armed_it() {
    for runtime in runtimes() {
        let batch = group(&runtime, "batch");
        let (sender, sent) = mpsc::channel();
        let inner = sender.clone();
        let armed = batch.spawn(async move { arm_each(&inner) });
        let timers = runtime.block_on(armed).unwrap();
        let mut ways = std::collections::BTreeMap::new();
        // Those of `every` go on.
        while ways.len() < 10 || ways["many"] < 200 {
            let (way, group) = next(&runtime, &sent);
            assert_eq!(group, "batch", "{way}");
            *ways.entry(way).or_insert(0) += 1;
        }
        drop(timers);
        // What is armed elsewhere is in the default group.
        let (default, named) = mpsc::channel();
        let armed = async move { arm_each(&default) };
        let timers = runtime.block_on(armed);
        for _ in 0..210 {
            assert_eq!(next(&runtime, &named).1, "default");
        }
        drop(timers);
    }
}

#[test]
fn what_a_callback_makes_is_in_its_group() {
    for runtime in runtimes() {
        let batch = group(&runtime, "batch");
        let (sender, sent) = mpsc::channel();
        batch.sync_scope(|| {
            runtime.handle().after(MS, move || {
                let spawned = sender.clone();
                tourbillon::spawn(async move { spawned.send(name_here()).unwrap() });
                tourbillon::after(MS, move || sender.send(name_here()).unwrap());
            })
        });
        for _ in 0..2 {
            assert_eq!(next(&runtime, &sent), "batch");
        }
    }
}

/// A group of few shares has a thousand long callbacks that are due. A task of the default group
/// yields: without shares, each time behind all of them.
#[test]
fn callbacks_take_no_more_than_the_shares_of_their_group() {
    const CALLBACKS: usize = 1_000;
    const POLLS: usize = 50;
    for mut builder in [Builder::new(), Builder::new_current_thread()] {
        let default = Group::builder("default").shares(10_000);
        builder.worker_threads(1).default_group(default);
        let runtime = builder.build().unwrap();
        let batch = Group::builder("batch").shares(1);
        let batch = batch.build_on(runtime.handle()).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        let armed = batch.spawn(async move {
            let callback = |_| {
                let count = count.clone();
                let run = move || {
                    spin(MS / 5);
                    count.fetch_add(1, SeqCst);
                };
                (Duration::ZERO, run)
            };
            Handle::current().after_many((0..CALLBACKS).map(callback))
        });
        let timers = runtime.block_on(armed).unwrap();
        let polled = runtime.spawn(async move {
            let before = ran.load(SeqCst);
            for _ in 0..POLLS {
                spin(MS / 5);
                yield_now().await;
            }
            ran.load(SeqCst) - before
        });
        let ran = runtime.block_on(polled).unwrap();
        // By their shares it is one in 10,000. One more may run whenever the default group has
        // nothing to do for a moment.
        assert!(ran <= POLLS / 10, "{ran} callbacks during {POLLS} polls");
        drop(timers);
    }
}

#[test]
fn callbacks_count_for_their_group() {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let batch = group(&runtime, "batch");
    let (sender, sent) = mpsc::channel();
    let arm = || {
        runtime.handle().after(MS, move || {
            spin(10 * MS);
            sender.send(()).unwrap();
        })
    };
    batch.sync_scope(arm);
    next(&runtime, &sent);
    // The callback is counted when the worker takes its next job.
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let metrics = runtime.metrics();
    let group = &metrics.groups()[1];
    assert_eq!((group.name(), group.jobs()), ("batch", 1));
    assert!(group.busy() >= 10 * MS, "{group:?}");
}

/// A callback in the queue of its group is still cancelled with an exact answer.
#[test]
fn a_callback_that_waits_for_its_turn_can_be_cancelled() {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let batch = group(&runtime, "batch");
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let cancelled = batch.spawn(async move {
        let callback = |_| {
            let count = count.clone();
            (Duration::ZERO, move || _ = count.fetch_add(1, SeqCst))
        };
        let timers = Handle::current().after_many((0..100).map(callback));
        // The worker takes them from their store while this task goes on in its turn.
        for _ in 0..20 {
            yield_now().await;
        }
        let cancel = |timer: &Timer| timer.cancel() == Cancel::Cancelled;
        timers.iter().filter(|timer| cancel(timer)).count()
    });
    let cancelled = runtime.block_on(cancelled).unwrap();
    // All jobs of the group before the end of this one have run.
    runtime.block_on(batch.spawn(async {})).unwrap();
    runtime.block_on(batch.spawn(async {})).unwrap();
    assert_eq!(ran.load(SeqCst) + cancelled, 100);
}

/// While its worker is in a long job, another one runs the callbacks of the group.
#[test]
fn a_stuck_worker_holds_back_no_callback_of_a_group() {
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    let batch = group(&runtime, "batch");
    let (sender, sent) = mpsc::channel();
    let go_on = Arc::new(Barrier::new(2));
    let wait = go_on.clone();
    let stuck = batch.spawn(async move {
        for _ in 0..10 {
            let sender = sender.clone();
            tourbillon::after(Duration::ZERO, move || sender.send(name_here()).unwrap());
        }
        wait.wait();
    });
    for _ in 0..10 {
        assert_eq!(sent.recv_timeout(LONG).unwrap(), "batch");
    }
    go_on.wait();
    runtime.block_on(stuck).unwrap();
}

/// Callbacks in the queue of a group get their one outcome when the runtime ends.
#[test]
fn each_callback_of_a_group_gets_one_outcome_at_the_end() {
    for runtime in runtimes() {
        let batch = group(&runtime, "batch");
        let (sender, outcomes) = mpsc::channel();
        let armed = batch.spawn(async move {
            for index in 0..100 {
                let sender = sender.clone();
                // Some are due at once, and some never.
                let delay = LONG * (index % 2);
                let told = move |how| sender.send(how).unwrap();
                drop(Timer::after(delay).start_with(told));
            }
            yield_now().await;
        });
        runtime.block_on(armed).unwrap();
        drop(runtime);
        let outcomes: Vec<_> = outcomes.iter().collect();
        assert_eq!(outcomes.len(), 100);
        let shut_down = outcomes.iter().filter(|&&how| how == Outcome::Shutdown);
        assert!(shut_down.count() >= 50);
    }
}

/// When the runtime has ended, no callback is left in the queue of a group, or anywhere else.
#[test]
fn no_callback_of_a_group_is_left_at_the_end() {
    for runtime in runtimes() {
        let batch = group(&runtime, "batch");
        let held = Arc::new(());
        let inner = held.clone();
        let armed = batch.spawn(async move {
            for index in 0..100 {
                let held = inner.clone();
                // Each takes a while, so the end comes before most of those that are due have run.
                let run = move || {
                    spin(MS);
                    drop(held);
                };
                tourbillon::after(LONG * (index % 2), run);
            }
            // The worker takes them from their store.
            yield_now().await;
        });
        runtime.block_on(armed).unwrap();
        drop(runtime);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

/// On a paused clock the order of callbacks depends on the program alone.
#[test]
fn a_paused_clock_runs_callbacks_of_groups_at_their_deadlines() {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.start_paused(true).build().unwrap();
    let batch = group(&runtime, "batch");
    let (sender, sent) = mpsc::channel();
    let begin = runtime.block_on(async { tourbillon::time::Instant::now() });
    runtime.block_on(async {
        for seconds in [3, 1, 2] {
            let sender = sender.clone();
            let run = move || {
                let at = tourbillon::time::Instant::now();
                sender.send((seconds, at - begin, name_here())).unwrap();
            };
            let arm = || tourbillon::after(Duration::from_secs(seconds), run);
            match seconds {
                2 => arm(),
                _ => batch.sync_scope(arm),
            };
        }
        tourbillon::time::sleep(Duration::from_secs(5)).await;
    });
    for (seconds, group) in [(1, "batch"), (2, "default"), (3, "batch")] {
        let due = Duration::from_secs(seconds);
        assert_eq!(sent.try_recv(), Ok((seconds, due, group.to_owned())));
    }
}
