//! The cost of a timer: arming, cancelling and refreshing; Tourbillon and tokio side by side.
//!
//! Each benchmark runs on one worker with 100,000 pending timers. Callbacks capture 16 bytes. Each
//! refresh picks a random timer. The last line says what else the machine did. Run `cargo bench
//! --bench timers`.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    hint::black_box,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group};
use tourbillon_support::disturbance::Meter;

const PENDING: usize = 100_000;

/// Delays of 1 to 60 s from the generator MINSTD, equal for all systems.
struct Delays(u64);

impl Delays {
    fn draw(&mut self) -> Duration {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        Duration::from_secs(1) + Duration::from_nanos(self.0 * 27)
    }
}

fn ours() -> tourbillon::Runtime {
    tourbillon::runtime::Builder::new()
        .worker_threads(1)
        .build()
        .expect("a runtime")
}

fn tokios() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Polls a future once. It must be pending.
async fn start<F: Future>(mut future: Pin<Box<F>>) -> Pin<Box<F>> {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    future
}

fn cancel_and_arm(c: &mut Criterion) {
    let mut group = c.benchmark_group("cancel the oldest + arm one, 100k pending");
    group.bench_function("tourbillon callback", |b| {
        let runtime = ours();
        b.iter_custom(|iterations| {
            let task = runtime.spawn(async move {
                let mut delays = Delays(1);
                let captured = black_box((1_u64, 2_u64));
                let f = move || _ = black_box(captured);
                let mut timers: VecDeque<_> = (0..PENDING)
                    .map(|_| tourbillon::after(delays.draw(), f))
                    .collect();
                let start = Instant::now();
                for _ in 0..iterations {
                    timers.pop_front().expect("one pending").cancel();
                    timers.push_back(tourbillon::after(delays.draw(), f));
                }
                let elapsed = start.elapsed();
                for timer in &timers {
                    timer.cancel();
                }
                elapsed
            });
            runtime.block_on(task).expect("a result")
        });
    });
    macro_rules! sleeps {
        ($name:literal, $runtime:expr, $sleep:path) => {
            group.bench_function($name, |b| {
                let runtime = $runtime;
                b.iter_custom(|iterations| {
                    let task = runtime.spawn(async move {
                        let mut delays = Delays(1);
                        let mut sleeps = VecDeque::with_capacity(PENDING);
                        for _ in 0..PENDING {
                            sleeps.push_back(start(Box::pin($sleep(delays.draw()))).await);
                        }
                        let begin = Instant::now();
                        for _ in 0..iterations {
                            drop(sleeps.pop_front());
                            sleeps.push_back(start(Box::pin($sleep(delays.draw()))).await);
                        }
                        begin.elapsed()
                    });
                    runtime.block_on(task).expect("a result")
                });
            });
        };
    }
    sleeps!("tourbillon sleep", ours(), tourbillon::time::sleep);
    sleeps!("tokio sleep", tokios(), unconstrained_sleep);
    group.finish();
}

/// Without `unconstrained`, tokio's budget stops a task that polls many sleeps without yielding.
fn unconstrained_sleep(delay: Duration) -> impl Future<Output = ()> {
    tokio::task::unconstrained(tokio::time::sleep(delay))
}

fn refresh(c: &mut Criterion) {
    let mut group = c.benchmark_group("refresh a pending timer");
    let runtime = ours();
    let timer = runtime.after(Duration::from_secs(3_600), || {});
    group.bench_function("from another thread, clock read", |b| {
        b.iter(|| black_box(timer.refresh()));
    });
    let mut deadline = Instant::now() + Duration::from_secs(3_600);
    group.bench_function("from another thread, instant given", |b| {
        b.iter(|| {
            deadline += Duration::from_nanos(1);
            black_box(timer.reset_at(deadline))
        });
    });
    group.finish();
}

/// Refreshes a random timer among many: the cost depends on whether its node is in the cache.
fn refresh_one_of(c: &mut Criterion) {
    for n in [10_000, 1_000_000] {
        let mut group = c.benchmark_group(format!("refresh one of {n}"));
        for clock in ["clock read", "instant given"] {
            group.bench_function(clock, |b| {
                let runtime = ours();
                b.iter_custom(|iterations| {
                    let task = runtime.spawn(async move {
                        let hour = Duration::from_secs(3_600);
                        let arm = |_| tourbillon::after(hour, || {});
                        let timers: Vec<_> = (0..n).map(arm).collect();
                        let mut draws = Delays(1);
                        let mut at = tourbillon::time::Instant::now() + 2 * hour;
                        let start = Instant::now();
                        for _ in 0..iterations {
                            let timer = &timers[draws.draw().as_nanos() as usize / 27 % n];
                            if clock == "clock read" {
                                black_box(timer.refresh());
                            } else {
                                at += Duration::from_nanos(1);
                                black_box(timer.reset_at(at));
                            }
                        }
                        let elapsed = start.elapsed();
                        for timer in &timers {
                            timer.cancel();
                        }
                        elapsed
                    });
                    runtime.block_on(task).expect("a result")
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, cancel_and_arm, refresh, refresh_one_of);

fn main() {
    let meter = Meter::start();
    benches();
    Criterion::default().configure_from_args().final_summary();
    println!("the machine: {}", meter.read());
}
