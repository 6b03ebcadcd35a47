//! A seed is the same run in each process, whatever surrounds that.

use std::{
    collections::HashMap,
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, SystemTime},
};

use tourbillon::time::sleep;
use tourbillon_sim::{Simulation, raw::run_with};

use crate::shrink::busy;

/// How many seeds each process runs.
const SEEDS: &str = "TOURBILLON_SIM_SAME_SEEDS";
/// The file to which a process writes what its seeds did.
const TOLD: &str = "TOURBILLON_SIM_SAME_TOLD";

/// Two hosts with threads, a network, a disk and a crash. A third one does what depends on a
/// machine: on the order of a hash map, the time of day, and the number of cores.
fn varied(seed: u64) -> Simulation {
    let mut sim = busy(seed);
    sim.host("machine", || async {
        for _ in 0..3 {
            let map: HashMap<u64, u64> = (0..8).map(|key| (key, key)).collect();
            let order = map.keys().fold(0, |order, key| order * 8 + key);
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let nanos = (order + time.unwrap().subsec_nanos() as u64) % 1_000_000;
            sleep(Duration::from_nanos(nanos)).await;
            let number = Arc::new(AtomicU64::new(0));
            let cores = thread::available_parallelism().unwrap().get();
            let threads: Vec<_> = (0..cores)
                .map(|_| {
                    let number = number.clone();
                    thread::spawn(move || number.fetch_add(1, SeqCst))
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
        }
    });
    sim
}

/// Returns a line for each seed: the numbers and the hash of its run, and what it decided.
fn runs(seeds: u64) -> String {
    let run = |seed| {
        let (ended, decisions) = run_with(&varied(seed), None);
        let report = ended.unwrap_or_else(|failure| panic!("{failure}"));
        // Not the calls that left the simulation: the names of their files may differ.
        let [hash, points, threads] = [report.hash(), report.points(), report.threads()];
        let took = report.simulated();
        format!("{seed} {hash:x} {points} {threads} {took:?} {decisions}\n")
    };
    (0..seeds).map(run).collect()
}

/// Returns a core that this process may use.
fn a_core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.split_once("Cpus_allowed_list:").unwrap().1;
    let digits = list.trim_start().chars();
    digits.take_while(char::is_ascii_digit).collect()
}

/// In what a process runs: a name, the command with which it begins, and what is added to its
/// environment.
type Surrounding = (&'static str, Vec<String>, Vec<(String, String)>);

fn surroundings() -> Vec<Surrounding> {
    let words = |line: &str| -> Vec<String> { line.split(' ').map(Into::into).collect() };
    let shell = |line: &str| -> Vec<String> {
        let line = format!("{line} && exec \"$0\" \"$@\"");
        vec!["sh".into(), "-c".into(), line]
    };
    let set = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let many = (0..200).map(|i| (format!("NUMBER_{i}"), "x".repeat(500)));
    let arch = env::consts::ARCH;
    vec![
        ("as it is", vec![], vec![]),
        ("once more", vec![], vec![]),
        (
            "addresses that are not random",
            words(&format!("setarch {arch} -R")),
            vec![],
        ),
        (
            "the old order of addresses",
            words(&format!("setarch {arch} -L")),
            vec![],
        ),
        (
            "one core",
            words(&format!("taskset -c {}", a_core())),
            vec![],
        ),
        ("another directory", shell("cd /"), vec![]),
        (
            "a stack without a limit",
            shell("ulimit -S -s unlimited"),
            vec![],
        ),
        (
            "more open files",
            shell("exec 3</dev/null 5</dev/null 9</dev/null"),
            vec![],
        ),
        ("a large environment", vec![], many.collect()),
        ("backtraces", vec![], set("RUST_BACKTRACE", "full")),
        ("one arena of memory", vec![], set("MALLOC_ARENA_MAX", "1")),
        (
            "memory that is not zero",
            vec![],
            set("MALLOC_PERTURB_", "165"),
        ),
        (
            "the C library for an older processor",
            vec![],
            set(
                "GLIBC_TUNABLES",
                "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX,-ERMS",
            ),
        ),
    ]
}

/// Returns whether the system gives a process this surrounding. A container may refuse another
/// order of addresses, and a limit of the machine may be firm.
fn is_given((name, begin, _): &Surrounding) -> bool {
    let Some((program, words)) = begin.split_first() else {
        return true;
    };
    let tried = Command::new(program).args(words).arg("true").output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    // The harness keeps back what the macros print.
    let line = format!("skipped, as the system refuses it: {name} ({why})\n");
    _ = io::stderr().write_all(line.as_bytes());
    false
}

/// Starts a process that runs the seeds in some surroundings, and writes what they did to a file.
fn start(begin: &[String], adds: &[(String, String)], told: &Path) -> process::Child {
    let program = env::current_exe().unwrap();
    let mut words = begin
        .iter()
        .map(Into::into)
        .chain([program.into_os_string()]);
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .args(["same::a_seed_is_the_same_run_in_each_process", "--exact"])
        .env(TOLD, told)
        .envs(adds.iter().cloned());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

#[test]
fn a_seed_is_the_same_run_in_each_process() {
    let seeds = env::var(SEEDS).map_or(20, |seeds| seeds.parse().unwrap());
    if let Some(told) = env::var_os(TOLD) {
        return fs::write(told, runs(seeds)).unwrap();
    }
    let file = |number| -> PathBuf {
        let name = format!("tourbillon-sim-{}-{number}", process::id());
        env::temp_dir().join(name)
    };
    let mut all = surroundings().into_iter().filter(is_given).enumerate();
    let mut first: Option<String> = None;
    loop {
        // Two at a time, as many as the cores that the checks have.
        let some: Vec<_> = all
            .by_ref()
            .take(2)
            .map(|(number, (name, begin, adds))| {
                let told = file(number);
                (name, start(&begin, &adds, &told), told)
            })
            .collect();
        if some.is_empty() {
            break;
        }
        for (name, mut child, told) in some {
            assert!(child.wait().unwrap().success(), "{name}");
            let runs = fs::read_to_string(&told).unwrap();
            fs::remove_file(&told).unwrap();
            let first = first.get_or_insert_with(|| runs.clone());
            assert_eq!(runs.lines().count() as u64, seeds, "{name}");
            let mut pairs = first.lines().zip(runs.lines());
            if let Some((one, other)) = pairs.find(|(one, other)| one != other) {
                let [one, other] = [one, other].map(|line| line.chars().take(300));
                let [one, other] = [one, other].map(String::from_iter);
                panic!("{name}: another run of the same seed\n{one}\n{other}");
            }
        }
    }
}

/// The real machine's limits are none of a host.
#[test]
fn a_host_has_two_cores_and_no_quota() {
    let mut sim = Simulation::new(0);
    sim.client("host", || async {
        assert_eq!(thread::available_parallelism().unwrap().get(), 2);
        for name in [
            "/proc/self/cgroup",
            "/sys/fs/cgroup/cpu.max",
            "/sys/fs/cgroup",
        ] {
            let found = fs::read(name).map(drop).map_err(|error| error.kind());
            assert_eq!(found, Err(io::ErrorKind::NotFound), "{name}");
            assert!(!Path::new(name).exists(), "{name}");
        }
        for name in [libc::_SC_NPROCESSORS_ONLN, libc::_SC_NPROCESSORS_CONF] {
            // SAFETY: the call takes a number.
            assert_eq!(unsafe { libc::sysconf(name) }, 2);
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
}
