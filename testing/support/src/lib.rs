//! What the tests and benchmarks of several packages share.
//!
//! The modules that need a runtime are behind the feature `runtime`, which is a default. The tests
//! within `src/` of the runtime's package cannot use these: they would get the types of another
//! build of the runtime.

#![allow(missing_docs, reason = "the names of most items say what they are")]
#![allow(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "these are rules for published interfaces"
)]

#[cfg(feature = "arguments")]
// As for `disturbance`.
#[path = "../../../crates/cli/src/arguments.rs"]
pub mod arguments;
pub mod bench;
#[cfg(feature = "runtime")]
pub mod blocked;
#[cfg(feature = "runtime")]
pub mod blocking;
pub mod clients;
#[cfg(feature = "runtime")]
pub mod course;
pub mod dir;
// The program `tourbillon` uses this file, and cannot depend on a package that is not published.
#[path = "../../../crates/cli/src/disturbance.rs"]
pub mod disturbance;
pub mod dropped;
pub mod event;
#[cfg(feature = "runtime")]
pub mod freed;
pub mod installed;
#[cfg(feature = "runtime")]
pub mod net;
#[cfg(feature = "runtime")]
pub mod panics;
#[cfg(feature = "runtime")]
pub mod paused;
pub mod process;
pub mod quota;
pub mod resident;
// As for `disturbance`.
#[path = "../../../crates/cli/src/say.rs"]
pub mod say;
#[cfg(feature = "server")]
// As for `disturbance`.
#[path = "../../../crates/cli/src/server.rs"]
pub mod server;
pub mod skip;
#[cfg(feature = "runtime")]
mod start;
pub mod system_calls;
#[cfg(feature = "runtime")]
pub mod timers;
#[cfg(feature = "runtime")]
pub mod told;
#[cfg(feature = "tracing")]
pub mod traced;
#[cfg(feature = "runtime")]
pub mod unix;
pub mod woken;

#[cfg(feature = "runtime")]
pub use start::{on_worker, runtime};

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for progress. Only a hang exceeds it: a machine that runs fifty other
/// programs on each core does not.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How long a whole test may take. Only one that hangs takes longer, as for [`PATIENCE`].
pub const HANGS: Duration = Duration::from_secs(1_800);

/// A delay that is longer than any test.
pub const HOUR: Duration = Duration::from_secs(3600);

/// Numbers the rounds of a test in which threads take turns: `count` of them, or as many as begin
/// within [`PATIENCE`]. Under heavy load each turn waits for a core.
pub fn rounds(count: u64) -> impl Iterator<Item = u64> {
    let start = Instant::now();
    (0..count).take_while(move |_| start.elapsed() < PATIENCE)
}

/// Waits until `condition` holds.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Computes for a while, without a wait.
pub fn spin(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// Ends the process if the test takes longer than [`HANGS`]: a hang becomes a failure that says
/// which test it was.
#[must_use]
pub struct Alarm(
    #[expect(dead_code, reason = "dropping it is what stops the alarm")] mpsc::Sender<()>,
);

/// Sets an [`Alarm`] for the calling test.
pub fn alarm() -> Alarm {
    let name = thread::current().name().unwrap_or("?").to_owned();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        if receiver.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the test `{name}` hangs");
            std::process::abort();
        }
    });
    Alarm(sender)
}

/// Prints that the calling test is skipped, and why: this kernel or sandbox lacks what the test
/// needs. See [`skip_test`](skip::skip_test).
pub fn skip(why: &str) {
    let name = process::test_of_child().or_else(|| thread::current().name().map(str::to_owned));
    skip::skip_test(name.as_deref(), why);
}

/// Returns how many threads this process has. Ending threads do not count: the system lists a
/// joined thread for some time.
pub fn threads() -> usize {
    threads_named("")
}

/// Returns how many threads of this process have a name that begins with `name`. The system keeps
/// 15 bytes of a name. Ending threads do not count, as for [`threads`].
pub fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let stats = tasks.filter_map(|task| {
        let stat = task.expect("it can be read").path().join("stat");
        // The thread may have ended since it was listed.
        std::fs::read_to_string(stat).ok()
    });
    // The name stands in parentheses after the thread's number.
    let is_named = |stat: &String| {
        let (_, comm) = stat.split_once('(').expect("there is the name");
        comm.starts_with(name)
    };
    stats
        .filter(|stat| is_named(stat) && !is_ending(stat))
        .count()
}

/// Returns whether a thread is ending, by its `stat`. The kernel sets this flag before it wakes the
/// joining thread.
fn is_ending(stat: &str) -> bool {
    const PF_EXITING: u32 = 4;
    // The name may contain anything. After it come the state, five numbers, and the flags.
    let (_, fields) = stat.rsplit_once(')').expect("there is the name");
    let flags = fields.split_whitespace().nth(6).map(str::parse);
    let flags: u32 = flags.and_then(Result::ok).expect("there are the flags");
    flags & PF_EXITING != 0
}

/// Returns how many descriptors this process has open, without the one that lists them.
pub fn fds() -> usize {
    count("/proc/self/fd") - 1
}

fn count(dir: &str) -> usize {
    std::fs::read_dir(dir).expect("Linux has it").count()
}

/// Lowers the limit of descriptors, and opens files until it is reached. For tests that run
/// [`alone`](process::alone). Dropping the files makes room again.
pub fn use_up_descriptors() -> Vec<std::fs::File> {
    limit_descriptors(256);
    let mut files = Vec::new();
    loop {
        match std::fs::File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                return files;
            }
        }
    }
}

/// Sets the soft limit of descriptors of this process, as [`limit`] does.
pub fn limit_descriptors(most: u64) -> u64 {
    limit(libc::RLIMIT_NOFILE, most)
}

/// Sets a soft limit of this process, up to the hard limit, and returns it. The hard limit stays,
/// since only root may raise it.
pub fn limit(resource: libc::__rlimit_resource_t, most: u64) -> u64 {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limits` is valid for the write of `getrlimit` and for the read of `setrlimit`.
    let set = unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limits), 0);
        limits.rlim_cur = most.min(limits.rlim_max);
        libc::setrlimit(resource, &limits)
    };
    assert_eq!(set, 0, "a soft limit may always be set, up to the hard one");
    limits.rlim_cur
}

/// A gate that threads wait at until it is opened.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        *self.0.0.lock().expect("nobody panics with it") = true;
        self.0.1.notify_all();
    }

    /// Blocks the thread until the gate is open; panics if it stays shut.
    #[track_caller]
    pub fn wait(&self) {
        assert!(self.wait_for(PATIENCE), "the gate was never opened");
    }

    /// Blocks the thread until the gate is open; false if that takes longer than `patience`.
    pub fn wait_for(&self, patience: Duration) -> bool {
        let open = self.0.0.lock().expect("nobody panics with it");
        let waited = self.0.1.wait_timeout_while(open, patience, |open| !*open);
        !waited.expect("nobody panics with it").1.timed_out()
    }

    pub fn is_open(&self) -> bool {
        *self.0.0.lock().expect("nobody panics with it")
    }
}

/// Counts how many of its tokens were dropped.
#[derive(Clone, Debug, Default)]
pub struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn token(&self) -> Token {
        Token(self.0.clone())
    }

    /// Returns a future that never ends and holds a token.
    pub fn pending(&self) -> impl Future<Output = ()> + Send + 'static {
        let token = self.token();
        async move {
            let _token = token;
            std::future::pending().await
        }
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// See [`Drops`].
#[derive(Debug)]
pub struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A generator of random numbers that are equal in each run: xorshift64*.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns the message of a panic.
pub fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
