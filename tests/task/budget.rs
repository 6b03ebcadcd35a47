//! A task that is always ready yields after 128 operations on sockets, sleeps, intervals, delay
//! queues and join handles.
//!
//! All tests have one worker and count operations. None depends on time.

use std::{
    future::{Future, poll_fn},
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::common::{
    alarm, eventually,
    net::{listen, pair_with_std},
    on_worker, runtime,
};
use futures_lite::{
    AsyncReadExt, AsyncWriteExt,
    future::{or, zip},
};
use tourbillon::{
    JoinHandle, Runtime,
    runtime::Builder,
    task::{block_in_place, consume_budget, coop::has_budget_remaining, unconstrained, yield_now},
    time::{
        DelayQueue, Instant, MissedTickBehavior, interval, interval_at, sleep, sleep_until, timeout,
    },
};

const BUDGET: usize = 128;
/// The operation at which another task becomes ready.
const AT: usize = 200;
/// The number of operations after which a loop ends.
const END: usize = 2_000;

/// Counts operations, and records how many had run when another task got to run. That task becomes
/// ready at operation `AT`.
#[derive(Clone, Default)]
struct Witness {
    operations: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
}

impl Witness {
    /// Counts an operation. Returns `true` if it is the last one.
    fn operation(&self) -> bool {
        let n = self.operations.fetch_add(1, SeqCst) + 1;
        if n == AT {
            let this = self.clone();
            drop(tourbillon::spawn(async move {
                this.seen.store(this.operations.load(SeqCst), SeqCst);
            }));
        }
        n == END
    }

    #[track_caller]
    fn assert_let_run(&self) {
        eventually("the other task ran", || self.seen.load(SeqCst) != 0);
        let seen = self.seen.load(SeqCst) - AT;
        assert!(seen <= BUDGET, "{seen} operations before others ran");
    }
}

/// Checks that a loop in a task lets another task run within one budget.
#[track_caller]
fn gives_way<F>(greedy: impl FnOnce(Witness) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime(1);
    let witness = Witness::default();
    runtime
        .block_on(runtime.spawn(greedy(witness.clone())))
        .unwrap();
    witness.assert_let_run();
}

#[test]
fn a_loop_of_reads_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let (mut ours, mut theirs) = pair_with_std().await;
        theirs.write_all(&[0; END]).unwrap();
        while ours.read(&mut [0]).await.unwrap() == 1 && !witness.operation() {}
    });
}

#[test]
fn a_loop_of_writes_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let (mut ours, _theirs) = pair_with_std().await;
        while ours.write(&[0]).await.unwrap() == 1 && !witness.operation() {}
    });
}

#[test]
fn a_loop_of_accepts_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let (listener, addr) = listen().await;
        let waiting: Vec<_> = (0..AT + BUDGET + 50)
            .map(|_| std::net::TcpStream::connect(addr).unwrap())
            .collect();
        for _ in &waiting {
            drop(listener.accept().await.unwrap());
            witness.operation();
        }
    });
}

#[test]
fn a_loop_over_due_ticks_yields() {
    let _alarm = alarm();
    for behavior in [
        MissedTickBehavior::Burst,
        MissedTickBehavior::Skip,
        MissedTickBehavior::Delay,
    ] {
        gives_way(async move |witness: Witness| {
            let mut interval = interval(Duration::from_nanos(1));
            interval.set_missed_tick_behavior(behavior);
            std::thread::sleep(Duration::from_millis(1));
            loop {
                interval.tick().await;
                if witness.operation() {
                    return;
                }
            }
        });
    }
}

/// After a reset to the past the tick is due, although the timer of the interval still waits.
#[test]
fn a_loop_over_ticks_that_a_reset_made_due_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let period = Duration::from_millis(1);
        let mut interval = interval_at(Instant::now() + Duration::from_secs(3_600), period);
        let is_pending = poll_fn(|cx| Poll::Ready(interval.poll_tick(cx).is_pending())).await;
        assert!(is_pending);
        interval.reset_at(Instant::now() - Duration::from_secs(600));
        loop {
            interval.tick().await;
            if witness.operation() {
                return;
            }
        }
    });
}

#[test]
fn a_loop_of_elapsed_sleeps_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let past = Instant::now();
        loop {
            sleep_until(past).await;
            if witness.operation() {
                return;
            }
        }
    });
}

#[test]
fn a_loop_of_elapsed_timeouts_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        loop {
            let waiting = std::future::pending::<()>();
            timeout(Duration::ZERO, waiting).await.unwrap_err();
            if witness.operation() {
                return;
            }
        }
    });
}

#[test]
fn a_loop_over_a_due_delay_queue_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let mut queue = DelayQueue::new();
        for i in 0..END {
            queue.insert(i, Duration::ZERO);
        }
        while queue.expired().await.is_some() {
            witness.operation();
        }
    });
}

#[test]
fn a_loop_that_joins_finished_tasks_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        let tasks: Vec<JoinHandle<()>> = (0..END).map(|_| tourbillon::spawn(async {})).collect();
        while !tasks.iter().all(JoinHandle::is_finished) {
            tourbillon::task::yield_now().await;
        }
        for task in tasks {
            task.await.unwrap();
            witness.operation();
        }
    });
}

#[test]
fn a_loop_that_calls_consume_budget_yields() {
    let _alarm = alarm();
    gives_way(async |witness: Witness| {
        loop {
            consume_budget().await;
            if witness.operation() {
                return;
            }
        }
    });
}

#[test]
fn an_unconstrained_task_does_not_yield() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let witness = Witness::default();
    let this = witness.clone();
    let greedy = unconstrained(async move {
        let past = Instant::now();
        loop {
            consume_budget().await;
            sleep_until(past).await;
            if this.operation() {
                return;
            }
        }
    });
    runtime.block_on(runtime.spawn(greedy)).unwrap();
    eventually("the other task ran", || witness.seen.load(SeqCst) != 0);
    assert_eq!(witness.seen.load(SeqCst), END);
}

/// Runs operations forever. It is pending only when the budget is used up.
async fn greedy() {
    loop {
        consume_budget().await;
    }
}

/// Runs a future in a task of the only worker, and then in `block_on` on this thread.
fn both_ways<F: Future<Output = ()> + Send + 'static>(future: impl Fn() -> F) {
    let runtime: Runtime = runtime(1);
    runtime.block_on(runtime.spawn(future())).unwrap();
    runtime.block_on(future());
}

#[test]
fn a_timeout_ends_an_always_ready_loop() {
    let _alarm = alarm();
    both_ways(|| async {
        for brief in [Duration::ZERO, Duration::from_millis(2)] {
            timeout(brief, greedy()).await.unwrap_err();
        }
    });
}

#[test]
fn a_sleep_beside_an_always_ready_loop_ends() {
    let _alarm = alarm();
    both_ways(|| async {
        for brief in [Duration::ZERO, Duration::from_millis(2)] {
            // `or` polls the greedy future first each time.
            or(greedy(), sleep(brief)).await;
        }
    });
}

#[test]
fn a_future_beside_an_always_ready_loop_is_polled() {
    let _alarm = alarm();
    both_ways(|| async {
        let operations = AtomicUsize::new(0);
        let loops = async {
            while operations.fetch_add(1, SeqCst) < END {
                consume_budget().await;
            }
        };
        let seen = async { operations.load(SeqCst) };
        let ((), seen) = zip(loops, seen).await;
        assert!(seen <= BUDGET + 1, "after {seen} operations");
    });
}

/// The inner executor takes the wake-up for its own and polls again. It does so in the same poll
/// of the task, where no budget is left.
#[test]
fn an_executor_inside_a_task_makes_progress() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let count = runtime.spawn(async {
        futures_lite::future::block_on(async {
            for _ in 0..END {
                consume_budget().await;
            }
            END
        })
    });
    assert_eq!(runtime.block_on(count).unwrap(), END);
}

/// Operations are not counted outside of a task: on a thread of the program, or in a callback.
#[test]
fn a_foreign_executor_has_no_budget() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let run = || {
        let past = Instant::now();
        let mut polls = 0;
        let mut greedy = std::pin::pin!(async {
            for _ in 0..END {
                consume_budget().await;
                sleep_until(past).await;
            }
        });
        futures_lite::future::block_on(std::future::poll_fn(|cx| {
            polls += 1;
            greedy.as_mut().poll(cx)
        }));
        polls
    };
    assert_eq!(run(), 1);
    assert_eq!(on_worker(&runtime, run), 1);
}

/// A neighbour in a `select` may spend the budget before each poll of the interval.
#[test]
fn a_tick_is_refused_once() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let polls = runtime.block_on(runtime.spawn(async {
        let period = Duration::from_millis(1);
        let mut interval = interval_at(Instant::now() + Duration::from_secs(3_600), period);
        poll_fn(|cx| Poll::Ready(interval.poll_tick(cx).is_pending())).await;
        interval.reset_at(Instant::now() - Duration::from_secs(600));
        while has_budget_remaining() {
            consume_budget().await;
        }
        let polls = [(); 2].map(|()| {
            let mut cx = Context::from_waker(Waker::noop());
            interval.poll_tick(&mut cx).is_ready()
        });
        yield_now().await;
        polls
    }));
    assert_eq!(polls.unwrap(), [false, true]);
}

#[test]
fn a_nested_block_on_leaves_its_caller_the_rest_of_the_budget() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let units = runtime.block_on(runtime.spawn(async {
        let inner = Builder::new_current_thread().build().unwrap();
        for _ in 0..10 {
            consume_budget().await;
        }
        // It is pending once, so the inner worker runs its loop.
        block_in_place(|| inner.block_on(yield_now()));
        let mut units = 0;
        while has_budget_remaining() && units < END {
            consume_budget().await;
            units += 1;
        }
        units
    }));
    assert_eq!(units.unwrap(), BUDGET - 10);
}
