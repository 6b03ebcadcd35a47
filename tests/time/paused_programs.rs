//! Random programs on a paused clock: each step happens exactly at its time, for any number of
//! workers.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::common::{Random, alarm, paused::paused, process::alone, rounds};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{TcpListener, TcpStream},
    task::yield_now,
    time::{Instant, advance, sleep, timeout},
};

/// The number of steps so far, and the number of steps at a wrong time.
#[derive(Debug, Default)]
struct Seen {
    steps: AtomicU64,
    wrong: AtomicU64,
}

impl Seen {
    fn step(&self, due: Instant) {
        self.steps.fetch_add(1, Ordering::SeqCst);
        if Instant::now() != due {
            self.wrong.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Returns one of a few delays, so that many moments coincide.
fn delay(random: &mut Random) -> Duration {
    Duration::from_nanos([0, 1, 2, 1_000, 1_000_000, 3_600_000_000_000][random.below(6) as usize])
}

/// Runs a random program of a few steps, which also spawns others. Returns the number of steps.
async fn program(seed: u64, depth: u64, seen: Arc<Seen>) -> u64 {
    let mut random = Random::new(seed);
    let mut steps = 0;
    let mut children = Vec::new();
    for _ in 0..1 + random.below(4) {
        let delay = delay(&mut random);
        let due = Instant::now() + delay;
        steps += 1;
        match random.below(6) {
            0 => {
                sleep(delay).await;
                seen.step(due);
            }
            1 => {
                let never = std::future::pending::<()>();
                assert!(timeout(delay, never).await.is_err());
                seen.step(due);
            }
            2 => {
                let seen = seen.clone();
                tourbillon::after(delay, move || seen.step(due));
            }
            3 => {
                // One timer is moved, and another is cancelled.
                let moved = {
                    let seen = seen.clone();
                    tourbillon::after(Duration::from_secs(7_200), move || seen.step(due))
                };
                moved.reset_at(due);
                let cancelled = tourbillon::after(delay, || ());
                yield_now().await;
                cancelled.cancel();
            }
            4 if depth > 0 => {
                let child = boxed(random.next(), depth - 1, seen.clone());
                children.push(tourbillon::spawn(child));
                steps -= 1;
            }
            _ => {
                yield_now().await;
                seen.step(due - delay);
            }
        }
    }
    for child in children {
        steps += child.await.unwrap();
    }
    steps
}

fn boxed(seed: u64, depth: u64, seen: Arc<Seen>) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(program(seed, depth, seen))
}

fn run_programs(workers: usize, programs: u64) {
    let runtime = paused(workers);
    for seed in rounds(programs) {
        let seen = Arc::new(Seen::default());
        let tasks: Vec<_> = (0..3)
            .map(|i| runtime.spawn(program(seed * 3 + i, 2, seen.clone())))
            .collect();
        let steps = runtime.block_on(async {
            let mut steps = 0;
            for task in tasks {
                steps += task.await.unwrap();
            }
            // Some callbacks may not have run yet.
            sleep(Duration::from_secs(3_600)).await;
            advance(Duration::ZERO).await;
            steps
        });
        assert_eq!(seen.steps.load(Ordering::SeqCst), steps, "seed {seed}");
        assert_eq!(seen.wrong.load(Ordering::SeqCst), 0, "seed {seed}");
    }
}

#[test]
fn random_programs_on_one_worker() {
    alone(|| {
        let _alarm = alarm();
        run_programs(1, 2_000);
    });
}

#[test]
fn random_programs_on_two_workers() {
    alone(|| {
        let _alarm = alarm();
        run_programs(2, 2_000);
    });
}

#[test]
fn random_programs_on_four_workers() {
    alone(|| {
        let _alarm = alarm();
        run_programs(4, 2_000);
    });
}

#[test]
fn runtimes_come_and_go_with_their_clocks() {
    alone(|| {
        let _alarm = alarm();
        for i in 0..300_u64 {
            let runtime = paused(1 + i as usize % 4);
            let task = runtime.spawn(async move {
                let start = Instant::now();
                sleep(Duration::from_secs(i)).await;
                start.elapsed()
            });
            // Some runtimes are dropped while their sleep is pending.
            if i % 3 > 0 {
                assert_eq!(runtime.block_on(task).unwrap(), Duration::from_secs(i));
            }
        }
    });
}

#[test]
fn sockets_work_while_the_clock_stands_still() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = paused(workers);
        let rounds = 300;
        let elapsed = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let server = tourbillon::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).await.unwrap() == 1 {
                    sleep(Duration::from_secs(1)).await;
                    stream.write_all(&byte).await.unwrap();
                }
            });
            let client = tourbillon::spawn(async move {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                let start = Instant::now();
                for i in 0..rounds {
                    let mut byte = [i as u8];
                    stream.write_all(&byte).await.unwrap();
                    // The reply takes a second. It must be there before much more time has passed.
                    let reply = timeout(Duration::from_millis(1_500), stream.read_exact(&mut byte));
                    reply.await.expect("in time").unwrap();
                    assert_eq!(byte, [i as u8]);
                }
                start.elapsed()
            });
            let elapsed = client.await.unwrap();
            server.await.unwrap();
            elapsed
        });
        assert_eq!(elapsed, Duration::from_secs(rounds));
    }
}
