//! A profile that is being taken: the thread that reads the samples, and the future of its end.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    fmt, fs,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant, SystemTime},
};

use tourbillon::Handle;
use tourbillon_stacks::Walker;

use crate::{
    options::Options,
    profile::{Counted, Profile, Source},
    signal::Session,
    timer::Timer,
};

/// How often the samples are read.
const STEP: Duration = Duration::from_millis(50);

/// How many different samples are counted. Of further ones only the job is.
const MOST: usize = 100_000;

/// Why there is no profile.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// Another profile of this process is being taken: wait for its end.
    Running,
    /// The program has its own handler for the signal `SIGPROF`, as with another profiler.
    SignalTaken,
    /// The processor is neither x86-64 nor AArch64.
    Unsupported,
    /// The system refused: for example `/proc` is not mounted, or there are too many timers.
    Os(io::Error),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str(
                "another profile of this process is being taken: try again when it is done",
            ),
            Self::SignalTaken => {
                f.write_str("the program has its own handler for SIGPROF, which a profile needs")
            }
            Self::Unsupported => {
                f.write_str("profiles are taken on x86-64 and AArch64 processors only")
            }
            Self::Os(error) => write!(f, "the threads cannot be sampled: {error}"),
        }
    }
}

impl Error for ProfileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Os(error) => Some(error),
            _ => None,
        }
    }
}

/// Samples the workers of a runtime, and its helpers, for some time.
///
/// The profile begins at once, also if nobody awaits the result. If that is dropped, the profile
/// ends early. One profile of a process is taken at a time.
///
/// The samples are read, and their functions are named, on a thread of this crate. Any executor can
/// await the result, also that of another runtime.
///
/// ```
/// use std::{hint::black_box, time::Duration};
/// use tourbillon_profile::profile;
///
/// async fn busy() {
///     loop {
///         (0..10_000).for_each(|number| drop(black_box(number)));
///         tourbillon::task::yield_now().await;
///     }
/// }
/// let runtime = tourbillon::Runtime::new().unwrap();
/// runtime.spawn(busy());
/// let profile = profile(runtime.handle(), Duration::from_millis(200));
/// let profile = runtime.block_on(profile)?;
/// // task shop::busy::{{closure}} (spawned at src/main.rs:12:9);shop::busy::{closure#0} 19
/// println!("{}", profile.folded());
/// # Ok::<_, tourbillon_profile::ProfileError>(())
/// ```
///
/// # Errors
///
/// The result is an error if another profile is being taken, if the program uses `SIGPROF` itself,
/// or if the system refuses: see [`ProfileError`].
pub fn profile(handle: &Handle, options: impl Into<Options>) -> Profiling {
    let options = options.into();
    let done = Arc::new(Mutex::new(Done::default()));
    let (wanted, stop) = channel();
    // Here, so that of two profiles the first one is taken.
    let began = Session::begin(room(&options)).and_then(|session| {
        let sampler = Sampler {
            handle: handle.clone(),
            options,
            timers: HashMap::new(),
            next: None,
            counts: HashMap::new(),
            walker: Walker::new(),
            lost: 0,
            session,
        };
        let finish = Finish(done.clone());
        let thread = thread::Builder::new().name("profile".to_owned());
        let thread = thread.spawn(move || finish.with(sampler.run(&stop)));
        thread.map(drop).map_err(ProfileError::Os)
    });
    if let Err(error) = began {
        Finish(done.clone()).with(Err(error));
    }
    Profiling {
        done,
        _wanted: wanted,
    }
}

/// Returns how many samples of a thread there must be room for, if the thread that reads them may
/// be late by three steps.
fn room(options: &Options) -> usize {
    let each = options.rate * 4 * STEP.as_millis() as u32 / 1_000;
    each as usize + 8
}

/// The profile that [`profile`] takes. It is ready at the end. Dropping it ends the profile.
#[must_use = "the profile ends when this is dropped"]
pub struct Profiling {
    done: Arc<Mutex<Done>>,
    /// Tells the thread by its drop.
    _wanted: Sender<()>,
}

#[derive(Default)]
struct Done {
    profile: Option<Result<Profile, ProfileError>>,
    waker: Option<Waker>,
}

impl Future for Profiling {
    type Output = Result<Profile, ProfileError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut done = lock(&self.done);
        match done.profile.take() {
            Some(profile) => Poll::Ready(profile),
            None => {
                let former = done.waker.replace(cx.waker().clone());
                // A waker is foreign code.
                drop(done);
                drop(former);
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Profiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiling").finish_non_exhaustive()
    }
}

fn lock(done: &Mutex<Done>) -> MutexGuard<'_, Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the result to the future, also if the thread panics.
struct Finish(Arc<Mutex<Done>>);

impl Finish {
    fn with(self, profile: Result<Profile, ProfileError>) {
        lock(&self.0).profile = Some(profile);
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        let mut done = lock(&self.0);
        if thread::panicking() {
            let why = io::Error::other("the thread of the profile has panicked");
            done.profile = Some(Err(ProfileError::Os(why)));
        }
        let waker = done.waker.take();
        drop(done);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What the thread of the profile has.
struct Sampler {
    handle: Handle,
    options: Options,
    /// By thread. Before the session, so that it is dropped first.
    timers: HashMap<u32, Timer>,
    /// The value for the next thread, if its ring is made.
    next: Option<usize>,
    counts: HashMap<Counted, u64>,
    walker: Walker,
    lost: u64,
    session: Session,
}

impl Sampler {
    /// Samples until the time is over, or until nobody waits for the profile.
    fn run(mut self, stop: &Receiver<()>) -> Result<Profile, ProfileError> {
        let (began, at) = (Instant::now(), SystemTime::now());
        // Later, a thread that cannot be sampled is left out, and tried again in the next step.
        self.follow().map_err(ProfileError::Os)?;
        let is_wanted = loop {
            let left = self.options.duration.saturating_sub(began.elapsed());
            let ended = stop.recv_timeout(left.min(STEP));
            self.read();
            let is_wanted = ended != Err(RecvTimeoutError::Disconnected);
            if left.is_zero() || !is_wanted {
                break is_wanted;
            }
            let _ = self.follow();
        };
        self.timers.clear();
        self.session.close();
        self.read();
        self.lost = self.session.rings().map(|ring| ring.lost()).sum();
        let Self {
            options,
            counts,
            lost,
            session,
            ..
        } = self;
        // Another profile may begin while the functions of this one are named.
        drop(session);
        // For nobody, no functions are named.
        let counts = match is_wanted {
            true => counts,
            false => HashMap::new(),
        };
        Ok(Profile::new(options, at, began.elapsed(), counts, lost))
    }

    /// Gives threads that are new a timer, and stops those of threads that are gone. Returns the
    /// last error. It leaves out the threads that cannot be sampled, and no others.
    fn follow(&mut self) -> io::Result<()> {
        let threads: HashSet<u32> = self.handle.threads().into_iter().collect();
        self.timers.retain(|thread, _| threads.contains(thread));
        let mut result = Ok(());
        for thread in threads {
            if self.timers.contains_key(&thread) {
                continue;
            }
            if self.next.is_none() {
                self.next = self.session.add()?;
            }
            // There is a limit, which only a program reaches whose threads come and go.
            let Some(value) = self.next else { break };
            let Options { clock, .. } = self.options;
            match Timer::start(thread, clock, self.options.period(), value) {
                Ok(Some(timer)) => {
                    self.timers.insert(thread, timer);
                    self.next = None;
                }
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Counts the samples that were written.
    fn read(&mut self) {
        // Libraries may have been loaded. The tables of each are found in some µs.
        self.walker = Walker::new();
        for ring in self.session.rings() {
            let mut unknown = None;
            let (walker, counts) = (&mut self.walker, &mut self.counts);
            // SAFETY: this thread owns the session, and no other one reads.
            unsafe {
                ring.read(|head, words| {
                    let from = head.registers.stack_pointer();
                    if ring.end(from).is_none() {
                        unknown = Some(from);
                    }
                    // The thread may be no worker any more.
                    let Some(activity) = head.activity else {
                        return;
                    };
                    let counted = Counted {
                        source: Source::new(activity, head.spans),
                        addresses: walker.walk(&head.registers, words),
                    };
                    add(counts, counted, MOST);
                });
            }
            if let Some(stack) = unknown.and_then(mapping_with) {
                ring.set_stack(stack);
            }
        }
    }
}

/// Counts a sample: under its job alone, if it is new and there are already `most` others.
fn add(counts: &mut HashMap<Counted, u64>, mut counted: Counted, most: usize) {
    if counts.len() >= most && !counts.contains_key(&counted) {
        counted.addresses.clear();
    }
    *counts.entry(counted).or_default() += 1;
}

/// Returns where the mapping of this process that has an address begins and ends.
fn mapping_with(address: u64) -> Option<(u64, u64)> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut ranges = maps.lines().filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(from)?, number(to)?))
    });
    ranges.find(|(from, to)| (from..to).contains(&&address))
}

#[cfg(test)]
mod tests {
    use tourbillon::metrics::Activity;

    use super::*;
    use crate::spans;

    #[test]
    fn samples_are_counted_under_their_job_when_there_are_many() {
        let mut counts = HashMap::new();
        let counted = |address: Option<u64>| Counted {
            source: Source::new((Activity::Running, None), spans::NONE),
            addresses: address.into_iter().collect(),
        };
        for address in [1, 2, 3, 4, 1] {
            add(&mut counts, counted(Some(address)), 2);
        }
        let found = [Some(1), Some(2), None].map(|it| counts[&counted(it)]);
        assert_eq!((found, counts.len()), ([2, 1, 2], 3));
    }
}
