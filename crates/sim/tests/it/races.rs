//! Programs of one host, with races that a seed must find.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant, SystemTime},
};

use tourbillon::{
    task::{spawn_blocking, yield_now},
    time::{sleep, timeout},
};
use tourbillon_sim::{Failure, Simulation, raw::Style};

use crate::planted::programs::Event;

/// Returns the first of some seeds that fails.
fn first_failure(seeds: u64, describe: impl Fn(&mut Simulation)) -> Option<Failure> {
    (0..seeds).find_map(|seed| {
        let mut simulation = Simulation::new(seed);
        describe(&mut simulation);
        simulation.run().err()
    })
}

/// Two tasks add to a number by a load and a store, without a point of the runtime in between.
pub(crate) async fn lose_an_update() {
    let number = Arc::new(AtomicU64::new(0));
    let add = |number: Arc<AtomicU64>| async move {
        let seen = number.load(SeqCst);
        number.store(seen + 1, SeqCst);
    };
    let tasks = [(); 2].map(|()| tourbillon::spawn(add(number.clone())));
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(number.load(SeqCst), 2, "an update is lost");
}

#[test]
fn two_workers_lose_an_update() {
    let failure = first_failure(1_000, |sim| {
        sim.workers(2).host("a", lose_an_update);
    });
    let failure = failure.expect("a seed finds it");
    assert!(failure.why().contains("an update is lost"), "{failure}");
    // The number brings it back.
    let again = Simulation::new(failure.seed())
        .host("a", lose_an_update)
        .run();
    assert_eq!(again.unwrap_err(), failure);
}

#[test]
fn one_worker_loses_none() {
    let failure = first_failure(300, |sim| {
        sim.workers(1).host("a", lose_an_update);
    });
    assert_eq!(failure, None);
}

#[tourbillon_sim::test(seeds = 10_000, seconds = 600)]
#[should_panic(expected = "nobody can run any more")]
async fn a_lost_wake_up_is_a_standstill() {
    let event = Arc::new(Event::default());
    let of_task = event.clone();
    tourbillon::spawn(async move { of_task.set() });
    let waits = tourbillon::spawn(async move { event.wait().await });
    waits.await.unwrap();
}

/// The parts of the standard library that the simulation takes over.
#[tourbillon_sim::test(seeds = 50, workers = 3)]
async fn std_and_the_runtime_are_simulated() {
    let (begin, wall) = (Instant::now(), SystemTime::now());
    sleep(Duration::from_secs(3_600 - 60)).await;
    std::thread::sleep(Duration::from_secs(1));
    assert!(begin.elapsed() >= Duration::from_secs(3_541));
    assert!(wall.elapsed().unwrap() >= Duration::from_secs(3_541));

    // Threads, a mutex that they contend for, a channel.
    let sum = Arc::new(Mutex::new(0));
    let (send, receive) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (sum, send) = (sum.clone(), send.clone());
            std::thread::spawn(move || {
                for _ in 0..5 {
                    *sum.lock().unwrap() += number;
                    std::thread::yield_now();
                }
                send.send(number).unwrap();
            })
        })
        .collect();
    drop(send);
    let mut came: Vec<_> = receive.iter().collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    came.sort_unstable();
    assert_eq!((came, *sum.lock().unwrap()), (vec![0, 1, 2], 15));

    // Blocking jobs, a timeout, tasks.
    let slow = spawn_blocking(|| std::thread::sleep(Duration::from_millis(20)));
    assert!(
        timeout(Duration::from_millis(1), async { slow.await.unwrap() })
            .await
            .is_err()
    );
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            tourbillon::spawn(async move {
                yield_now().await;
                number
            })
        })
        .collect();
    let mut all = 0;
    for task in tasks {
        all += task.await.unwrap();
    }
    assert_eq!(all, 45);

    // The order of a hash map is that of the seed.
    let map: HashMap<_, _> = (0..20).map(|number| (number, ())).collect();
    let order: Vec<_> = map.into_keys().collect();
    sleep(Duration::from_nanos(order[0] + 1)).await;
}

#[tourbillon_sim::test(seeds = 5)]
#[should_panic(expected = "one is not two")]
async fn an_assertion_fails_the_test() {
    assert_eq!(1, 2, "one is not two");
}

#[tourbillon_sim::test(seeds = 5)]
#[should_panic(expected = "the program of main failed: \"no\"")]
async fn an_error_fails_the_test() -> Result<(), &'static str> {
    Err("no")
}

#[tourbillon_sim::test(seeds = 5)]
#[should_panic(expected = "has not ended after 60s of simulated time")]
fn a_program_that_never_ends_fails_the_test(sim: &mut Simulation) {
    sim.limit(Duration::from_secs(60));
    sim.client("sleeper", || sleep(Duration::from_secs(61)));
}

#[tourbillon_sim::test(seeds = 5)]
fn a_host_may_go_on_for_ever(sim: &mut Simulation) {
    sim.host("clock", || async {
        loop {
            sleep(Duration::from_secs(1)).await;
        }
    });
    sim.client("sleeper", || sleep(Duration::from_secs(61)));
}

/// A program sees the numbers of its descriptors, and so does a report.
#[test]
fn a_descriptor_has_the_same_number_whatever_the_process_has_open() {
    let run = || {
        let mut sim = Simulation::new(1);
        sim.client("a", || async {
            let listener = std::net::TcpListener::bind("0.0.0.0:80")?;
            let number = std::os::fd::AsRawFd::as_raw_fd(&listener);
            Err::<(), _>(std::io::Error::other(format!("it has number {number}")))
        });
        sim.run().unwrap_err()
    };
    let first = run();
    let _open = [(); 3].map(|()| std::fs::File::open("/dev/null").unwrap());
    assert_eq!(run(), first);
}

/// The same seed gives the same run, also in another process.
#[test]
fn a_seed_is_the_same_run_each_time() {
    let run = |seed| {
        let mut sim = Simulation::new(seed);
        sim.workers(3).host("a", || async {
            let tasks = [(); 5].map(|()| {
                tourbillon::spawn(async {
                    for _ in 0..5 {
                        sleep(Duration::from_micros(tourbillon_sim::random() % 100)).await;
                        spawn_blocking(|| ()).await.unwrap();
                    }
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
        });
        sim.run().unwrap()
    };
    let all: Vec<_> = (0..32).map(|seed| run(seed).hash()).collect();
    for (seed, hash) in all.iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(run(seed as u64).hash(), *hash, "seed {seed}");
        }
    }
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), 32);
}

#[tourbillon_sim::test(seeds = 300)]
async fn what_happens_in_some_seed_is_found() {
    let number = Arc::new(AtomicU64::new(0));
    let of_task = number.clone();
    let task = tourbillon::spawn(async move { of_task.store(1, SeqCst) });
    let seen = number.load(SeqCst);
    tourbillon_sim::assert_sometimes!(seen == 0, "the task comes later");
    tourbillon_sim::assert_sometimes!(seen == 1, "the task comes first");
    tourbillon_sim::assert_always!(seen < 2, "{seen}");
    task.await.unwrap();
}

#[tourbillon_sim::test(seeds = 20)]
#[should_panic(expected = "in none of 20 seeds this happened: the number is two")]
async fn what_never_happens_fails_the_test() {
    tourbillon_sim::assert_sometimes!(tourbillon_sim::random() == 2, "the number is two");
}

#[tourbillon_sim::test(seeds = 20)]
#[should_panic(expected = ": it is 1")]
async fn what_must_always_hold_fails_the_seed() {
    let number = 1;
    tourbillon_sim::assert_always!(number == 2, "it is {number}");
}

/// Two threads with a long way each. The one loses if all of its second half falls between two
/// steps of the other that are near to each other. So the other has to stop once, there.
async fn overtake() {
    const LONG: u64 = 2_000;
    let number = Arc::new(AtomicU64::new(0));
    let is_open = Arc::new(AtomicBool::new(false));
    let walk = |number: &AtomicU64, steps| {
        for _ in 0..steps {
            number.fetch_add(1, SeqCst);
        }
    };
    let (of_thread, gate) = (number.clone(), is_open.clone());
    let opens = std::thread::spawn(move || {
        walk(&of_thread, LONG);
        gate.store(true, SeqCst);
        walk(&of_thread, LONG / 5);
        gate.store(false, SeqCst);
        walk(&of_thread, LONG);
    });
    let passes = std::thread::spawn(move || {
        let before = is_open.load(SeqCst);
        walk(&number, LONG);
        assert!(!before || !is_open.load(SeqCst), "it was overtaken");
    });
    for thread in [opens, passes] {
        spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    }
}

#[test]
fn few_changes_of_priorities_find_what_random_switches_do_not() {
    let points = Simulation::new(0)
        .host("a", overtake)
        .run()
        .map_or(20_000, |it| it.points());
    let found = |style: Style| {
        let seeds = (0..200).filter(|&seed| {
            let mut sim = Simulation::new(seed);
            sim.style(style).host("a", overtake);
            let failure = sim.run().err();
            failure.is_some_and(|failure| failure.why().contains("it was overtaken"))
        });
        seeds.count()
    };
    let by_changes = found(Style::Changes { count: 1, points });
    let at_random = found(Style::Uniform(2_000));
    // A bug of depth 2 takes the right one of all points, and one of n threads: here, one of a
    // tenth of the points.
    assert!(by_changes >= 3, "{by_changes}, at random {at_random}");
    assert!(
        by_changes >= 4 * at_random,
        "{by_changes}, at random {at_random}"
    );
}
