//! Decisions that are left out, and failures with few of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::Value;
use tourbillon::{task::spawn_blocking, time::sleep};
use tourbillon_sim::{
    Disk, Network, Simulation, crash,
    raw::{Style, few_decisions, run_to, run_with},
    restart,
};

use crate::races::lose_an_update;

/// Two hosts that use all that a seed decides: threads, a network that loses, and a disk.
pub(crate) fn busy(seed: u64) -> Simulation {
    let mut network = Network::new();
    network.loss(0.1);
    let mut sim = Simulation::new(seed);
    sim.network(network).disk("/data", Disk::new());
    sim.host("server", || async {
        let serve = || {
            let listener = TcpListener::bind("0.0.0.0:80").unwrap();
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                let mut file = File::options()
                    .create(true)
                    .append(true)
                    .open("/data/log")
                    .unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    file.write_all(&byte).unwrap();
                    let _ = file.sync_data();
                    let _ = stream.write_all(&byte);
                }
            }
        };
        spawn_blocking(serve).await.unwrap();
    });
    sim.client("client", || async {
        sleep(Duration::from_millis(1)).await;
        let ask = || {
            let mut stream = TcpStream::connect("server:80")?;
            let mut bytes = [0; 10];
            stream.write_all(&[1; 10])?;
            stream.read_exact(&mut bytes)
        };
        let tasks = [(); 2].map(|()| spawn_blocking(ask));
        crash("server");
        restart("server");
        for task in tasks {
            let _ = task.await.unwrap();
        }
    });
    sim
}

#[test]
fn a_seed_with_all_of_its_decisions_is_the_same_run() {
    for seed in 0..10 {
        let (all, taken) = run_with(&busy(seed), None);
        let (again, taken_again) = run_with(&busy(seed), Some(&taken));
        assert_eq!(again, all, "seed {seed}");
        assert_eq!(taken_again, taken, "seed {seed}");
    }
}

/// Two tasks pass more points than a thread may without a wait.
#[test]
fn threads_that_never_wait_are_the_same_run_with_all_decisions() {
    let describe = |seed| {
        let mut sim = Simulation::new(seed);
        sim.style(Style::Priorities(1_000));
        sim.client("host", || async {
            let number = Arc::new(AtomicU64::new(0));
            let tasks = [(); 2].map(|()| {
                let number = number.clone();
                tourbillon::spawn(async move {
                    for _ in 0..6_000 {
                        number.fetch_add(1, SeqCst);
                    }
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
        });
        sim
    };
    for seed in 0..10 {
        let (all, taken) = run_with(&describe(seed), None);
        let again = run_with(&describe(seed), Some(&taken));
        assert_eq!(again, (all, taken), "seed {seed}");
    }
}

#[test]
fn a_process_that_ends_without_a_word_is_not_shrunk() {
    let mut sim = Simulation::new(0);
    sim.client("host", || async { process::exit(3) });
    let failure = sim.run().unwrap_err();
    assert_eq!(few_decisions(&sim, &failure), None);
}

#[test]
fn only_decisions_that_are_kept_are_taken() {
    for seed in 0..5 {
        let (_, all) = run_with(&busy(seed), None);
        let words: Vec<&str> = all.split_whitespace().collect();
        let (halves, no) = (words.chunks(words.len() / 2 + 1), Vec::new());
        for kept in halves.map(<[_]>::to_vec).chain([no]) {
            let text = kept.join(" ");
            let (report, taken) = run_with(&busy(seed), Some(&text));
            let kept: BTreeSet<&str> = kept.into_iter().collect();
            let others: Vec<&str> = taken.split(' ').filter(|it| !kept.contains(it)).collect();
            assert!(
                taken.is_empty() || others.is_empty(),
                "seed {seed}: {others:?}"
            );
            assert_eq!(
                run_with(&busy(seed), Some(&text)),
                (report, taken),
                "seed {seed}"
            );
        }
    }
}

/// Two tasks add to a number by a load and a store.
fn racy(seed: u64) -> Simulation {
    let mut sim = Simulation::new(seed);
    sim.host("a", lose_an_update);
    sim
}

#[test]
fn a_race_needs_few_switches() {
    let failures = (0..2_000).filter_map(|seed| racy(seed).run().err());
    let failures: Vec<_> = failures.take(2).collect();
    assert_eq!(failures.len(), 2, "the seeds find it");
    for failure in failures {
        let (_, all) = run_with(&racy(failure.seed()), None);
        let few = few_decisions(&racy(failure.seed()), &failure).expect("it fails again");
        let count = |text: &str| text.split_whitespace().count();
        assert!(count(&few) <= 8, "{few}");
        assert!(count(&few) < count(&all), "{few}\n{all}");
        let (ended, taken) = run_with(&racy(failure.seed()), Some(&few));
        assert!(ended.unwrap_err().why().contains("an update is lost"));
        assert_eq!(taken, few);
        // Each one is needed: with any of them left out, nothing is lost.
        let words: Vec<&str> = few.split_whitespace().collect();
        for at in 0..words.len() {
            let mut rest = words.clone();
            rest.remove(at);
            let (ended, _) = run_with(&racy(failure.seed()), Some(&rest.join(" ")));
            assert!(ended.is_ok(), "{few} without {}", words[at]);
        }
    }
}

/// A task and the one that started it add to a number.
async fn add_by_two() {
    let number = Arc::new(AtomicU64::new(0));
    let of_task = number.clone();
    let task = tourbillon::spawn(async move { _ = of_task.fetch_add(1, SeqCst) });
    let seen = number.load(SeqCst);
    number.store(seen + 1, SeqCst);
    task.await.unwrap();
    assert_eq!(number.load(SeqCst), 2);
}

#[tourbillon_sim::test(seeds = 10_000, seconds = 600)]
#[should_panic(expected = "TOURBILLON_SIM_KEEP='s")]
async fn a_report_names_the_decisions_that_are_left() {
    add_by_two().await;
}

#[tourbillon_sim::test(seeds = 10_000, seconds = 600)]
#[should_panic(expected = " goes on, at tests/it/shrink.rs:")]
async fn a_report_tells_where_a_thread_stopped() {
    add_by_two().await;
}

/// Runs a test of this program in another process. Returns what it wrote.
pub(crate) fn run_test(name: &str, adds: &[(&str, &str)]) -> String {
    let program = env::current_exe().unwrap();
    let mut command = process::Command::new(program);
    command.args([name, "--exact", "--nocapture", "--include-ignored"]);
    let output = command.envs(adds.iter().copied()).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    out + &err
}

/// Appends to a file of the real system, which the seeds share, and fails after as many steps as
/// the file has bytes.
#[tourbillon_sim::test(seeds = 1)]
#[ignore = "it fails, and another test runs it"]
async fn the_real_system_decides() {
    let path = env::var_os("TOURBILLON_SIM_REAL_FILE").unwrap();
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"x").unwrap();
    for _ in 0..fs::metadata(&path).unwrap().len() {
        sleep(Duration::from_millis(1)).await;
    }
    panic!("it fails");
}

#[test]
fn a_report_says_that_the_run_it_tells_is_another_one() {
    let path = env::temp_dir().join(format!("tourbillon-sim-real-{}", process::id()));
    fs::write(&path, "").unwrap();
    let name = "shrink::the_real_system_decides";
    let path_name = path.to_str().unwrap();
    let text = run_test(name, &[("TOURBILLON_SIM_REAL_FILE", path_name)]);
    fs::remove_file(&path).unwrap();
    let expected = "(This run went another way than the one that failed: it failed at the same \
                    place, by other steps.";
    assert!(text.contains(expected), "{text}");
}

/// Fails by a file of the real system, in the run that measures and in the next one only.
#[tourbillon_sim::test(seeds = 1)]
#[ignore = "it fails, and another test runs it"]
async fn the_first_run_fails() {
    let path = env::var_os("TOURBILLON_SIM_REAL_FILE").unwrap();
    let runs = fs::metadata(&path).unwrap().len();
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"x").unwrap();
    assert!(runs > 1, "the first one");
}

#[test]
fn a_report_says_that_a_seed_does_not_fail_again() {
    let path = env::temp_dir().join(format!("tourbillon-sim-first-{}", process::id()));
    fs::write(&path, "").unwrap();
    let name = "shrink::the_first_run_fails";
    let path_name = path.to_str().unwrap();
    let text = run_test(name, &[("TOURBILLON_SIM_REAL_FILE", path_name)]);
    fs::remove_file(&path).unwrap();
    let expected = "The seed went another way when it was repeated: it passed.";
    assert!(text.contains(expected), "{text}");
}

#[tourbillon_sim::test(seeds = 10)]
fn some_seeds_are_odd(sim: &mut Simulation) {
    let seed = sim.seed();
    sim.client("host", move || async move {
        // Twice in each seed: seeds count.
        for _ in 0..2 {
            tourbillon_sim::assert_sometimes!(seed % 2 == 1, "the seed is odd");
            tourbillon_sim::assert_sometimes!(seed == 7, "it is the seventh");
        }
    });
}

#[test]
fn a_test_that_passes_tells_in_how_many_seeds_a_condition_held() {
    let text = run_test("shrink::some_seeds_are_odd", &[]);
    for line in [
        "  the seed is odd: 5 of 10 seeds\n",
        "  it is the seventh: 1 of 10 seeds\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[tourbillon_sim::test(seeds = 1)]
#[ignore = "it fails, and another test runs it"]
async fn it_fails() {
    tourbillon::spawn(async { panic!("it fails") })
        .await
        .unwrap();
}

#[test]
fn a_failure_that_is_not_shrunk_has_a_trace() {
    let path = env::temp_dir().join(format!("tourbillon-sim-whole-{}", process::id()));
    let path_name = path.to_str().unwrap();
    let adds = [
        ("TOURBILLON_SIM_SHRINK", "0"),
        ("TOURBILLON_SIM_PERFETTO", path_name),
    ];
    let report = run_test("shrink::it_fails", &adds);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}: {report}"));
    fs::remove_file(&path).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.len() > 10, "{text}");
    assert!(
        report.contains(&format!("{path_name} has the trace")),
        "{report}"
    );
}

#[tourbillon_sim::test(seeds = 1)]
#[ignore = "it fails, and another test runs it"]
async fn the_process_ends() {
    std::process::abort();
}

/// A process that ends so writes no trace. An earlier run has left one.
#[test]
fn a_trace_of_another_run_is_not_reported() {
    let path = env::temp_dir().join(format!("tourbillon-sim-stale-{}", process::id()));
    fs::write(&path, "of another run").unwrap();
    let adds = [
        ("TOURBILLON_SIM_SHRINK", "0"),
        ("TOURBILLON_SIM_PERFETTO", path.to_str().unwrap()),
    ];
    let report = run_test("shrink::the_process_ends", &adds);
    assert!(!path.exists(), "{report}");
    assert!(report.contains("seed 0 failed"), "{report}");
    assert!(!report.contains("has the trace"), "{report}");
}

/// Returns a time of a trace event in ns.
fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1_000.0).round() as u64
}

#[test]
fn a_trace_has_threads_packets_and_crashes() {
    let path = env::temp_dir().join(format!("tourbillon-sim-{}.json", process::id()));
    let (without, _) = run_with(&busy(1), None);
    let (with, _) = run_to(&busy(1), None, Some(path.clone()));
    assert_eq!(with, without, "a trace changes nothing");
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let (mut tracks, mut sent, mut came) = (BTreeMap::new(), BTreeMap::new(), 0);
    let (mut named, mut runs, mut crashes) = (BTreeSet::new(), Vec::new(), 0);
    for event in events {
        let track = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let (at, name) = (nanos(&event["ts"]), event["name"].as_str().unwrap());
        match event["ph"].as_str().unwrap() {
            "X" => {
                let end = at + nanos(&event["dur"]);
                let slices: &mut Vec<(u64, u64)> = tracks.entry(track).or_default();
                slices.push((at, end));
                if name == "runs" {
                    runs.push((at, end));
                }
            }
            "s" => assert_eq!(sent.insert(event["id"].to_string(), at), None, "{event}"),
            "f" => {
                came += 1;
                let sent = sent[&event["id"].to_string()];
                assert!(sent < at, "{event}");
            }
            "i" => crashes += u32::from(name == "server crashes" && event["s"] == "g"),
            "M" => _ = named.insert(track),
            phase => panic!("{phase}"),
        }
    }
    assert!(came > 5 && came <= sent.len(), "{came} of {}", sent.len());
    assert_eq!(crashes, 1);
    // One thread at a time has the baton.
    runs.sort_unstable();
    assert!(runs.windows(2).all(|it| it[0].1 <= it[1].0), "{runs:?}");
    for (track, mut slices) in tracks {
        assert!(named.contains(&track), "{track:?}");
        slices.sort_unstable();
        if track.1 < 100_000_000 {
            // A thread may have the baton for no time.
            slices.dedup();
        }
        assert!(slices.windows(2).all(|it| it[0].1 <= it[1].0), "{slices:?}");
    }
}
