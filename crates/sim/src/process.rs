//! Runs each seed in a process of its own, so that all begin in the same state.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    outcome::{Failure, Report},
    run::OUTSIDE,
    world::{self, Orders, me, outside::LATE},
};

/// For how many seconds of real time a seed may take. A seed that takes longer waits for something
/// outside of the simulation.
const PATIENCE: u32 = 60;
/// Whether this process runs a seed.
static RUNS_SEED: AtomicBool = AtomicBool::new(false);
/// How many bytes of a program's output are shown.
const SHOWN: u64 = 4_000;

/// How a process runs its seed.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// What the program prints is shown while it runs.
    pub(crate) is_shown: bool,
    /// For how many seconds of real time it may run.
    pub(crate) seconds: u32,
    pub(crate) orders: Orders,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            is_shown: false,
            seconds: PATIENCE,
            orders: Orders::default(),
        }
    }
}

/// A process that runs a seed.
pub(crate) struct Child {
    pub(crate) pid: libc::pid_t,
    seed: u64,
    /// What it tells about the seed.
    told: File,
    /// What the program prints.
    printed: File,
    /// The decisions, if they are recorded.
    taken: File,
    seconds: u32,
}

/// What a process that has ended tells.
pub(crate) struct Ended {
    pub(crate) result: Result<Report, Failure>,
    /// The decisions that went another way than the usual one, if they were recorded.
    pub(crate) taken: Option<String>,
    /// The hash of the run, if its decisions or its story were recorded.
    pub(crate) hash: Option<u64>,
    /// What happened, in words, if somebody asked for it.
    pub(crate) story: String,
}

/// A file in memory, without a limit: a pipe that nobody reads would stop the child.
fn memory() -> File {
    // SAFETY: the name is a text. The result is checked before it becomes an `OwnedFd`.
    let fd = unsafe { libc::memfd_create(c"seed".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(
        fd >= 0,
        "a file in memory: {}",
        std::io::Error::last_os_error()
    );
    // SAFETY: nothing else owns this new descriptor.
    File::from(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Child {
    /// Starts a process that calls `run`, which returns the numbers of the seed.
    pub(crate) fn start(seed: u64, way: Way, run: impl FnOnce() -> String) -> Self {
        let (mut told, printed, taken) = (memory(), memory(), memory());
        // Find the functions of the C library now: in the child, a lock of the linker may be held.
        crate::calls::link();
        fail_at_panics();
        // SAFETY: the child goes on with this thread alone. The C library has its own locks free
        // there. The lock of the standard output may be another thread's: the child then waits
        // until its time is over, which is reported.
        match unsafe { libc::fork() } {
            -1 => panic!("a process: {}", std::io::Error::last_os_error()),
            0 => {
                world::set_told(told.as_raw_fd());
                if way.orders.records || way.orders.tells {
                    world::set_taken(taken.as_raw_fd());
                }
                world::set_orders(way.orders);
                // SAFETY: these are descriptors of this process.
                unsafe {
                    if !way.is_shown {
                        libc::dup2(printed.as_raw_fd(), 1);
                        libc::dup2(printed.as_raw_fd(), 2);
                    }
                }
                crate::calls::watch(way.seconds);
                RUNS_SEED.store(true, Ordering::Relaxed);
                let numbers = run();
                world::tell_taken(None);
                let _ = told.write_all(numbers.as_bytes());
                // SAFETY: the child must not run the destructors and exit handlers of its parent.
                unsafe { libc::_exit(0) }
            }
            pid => Self {
                pid,
                seed,
                told,
                printed,
                taken,
                seconds: way.seconds,
            },
        }
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(self) -> Ended {
        let mut status = 0;
        // SAFETY: `status` is writable.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } < 0 {}
        self.ended(status)
    }

    /// Returns what a process that has ended with this status told.
    pub(crate) fn ended(mut self, status: i32) -> Ended {
        let taken = read_end(&mut self.taken, u64::MAX);
        // A process that ended without a word has not even written the end of the line.
        let mut parts = taken.splitn(3, '\n').map(str::to_owned);
        let (taken, hash, story) = match (parts.next(), parts.next(), parts.next()) {
            (Some(taken), Some(hash), Some(story)) => (Some(taken), hash.parse().ok(), story),
            _ => (None, None, String::new()),
        };
        let result = self.result(status);
        Ended {
            result,
            taken,
            hash,
            story,
        }
    }

    fn result(&mut self, status: i32) -> Result<Report, Failure> {
        let told = read_end(&mut self.told, u64::MAX);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            let numbers = told.lines().filter_map(|line| {
                let (name, number) = line.rsplit_once(' ')?;
                Some((name.to_owned(), number.parse().ok()?))
            });
            let mut report = Report {
                numbers: BTreeMap::new(),
                outside: BTreeMap::new(),
            };
            for (name, number) in numbers {
                match name.strip_prefix(OUTSIDE) {
                    Some(call) => report.outside.insert(call.into(), number),
                    None => report.numbers.insert(name, number),
                };
            }
            if report.numbers.contains_key("hash") {
                return Ok(report);
            }
        }
        let told = told.strip_prefix("FAILED: ").unwrap_or(&told).to_owned();
        let why = match libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)) {
            Some(libc::SIGALRM) => format!("after {} s {LATE}\n{told}", self.seconds),
            Some(signal) => format!("signal {signal} ended it\n{told}"),
            None if told.is_empty() => "the program ended the process".into(),
            None => told,
        };
        Err(Failure {
            seed: self.seed,
            why,
            output: read_end(&mut self.printed, SHOWN),
        })
    }
}

fn read_end(file: &mut File, most: u64) -> String {
    let mut bytes = Vec::new();
    let len = file.seek(SeekFrom::End(0)).unwrap_or(0);
    let _ = file.seek(SeekFrom::Start(len.saturating_sub(most)));
    let _ = file.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Has each panic fail the seed, in a process that runs one. The parent sets the hook: if another
/// thread panics while the child is made, the child finds the lock of the hooks taken for ever.
fn fail_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            match (RUNS_SEED.load(Ordering::Relaxed), me()) {
                (false, _) => before(info),
                (true, Some(_)) => world::die(&info.to_string()),
                (true, None) => world::die_with(&info.to_string(), ""),
            }
        }));
    });
}
