//! Snapshots of a runtime as JSON for the page.

use std::{
    collections::{HashMap, HashSet},
    panic::Location,
    process,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde::{Serialize, Serializer};
use tourbillon::{
    Handle,
    metrics::{
        Activity, ClockMetrics, Counts, GroupMetrics, JobName, LatenessHistogram, WorkerMetrics,
    },
    runtime::RecentStall,
    time::Instant as RuntimeInstant,
};

use crate::{download::unix_ms, sampler::Samples};

/// The version of the format. It increases when something is renamed or removed, but not when
/// something is added.
const VERSION: u32 = 1;

/// The most functions of a stack.
const FUNCTIONS: usize = 40;
/// The most characters of a function. Names of generic types have thousands.
const CHARACTERS: usize = 300;
/// The most stacks of a job: those that it had most often.
const STACKS: usize = 5;

/// The values that are equal in all snapshots of an inspector.
#[derive(Debug)]
pub(crate) struct Inspection {
    begun: Instant,
    instance: String,
    period: Duration,
}

impl Inspection {
    /// Creates the values of an inspector that starts at this moment and sends a snapshot every
    /// `period`.
    pub(crate) fn begin(period: Duration) -> Self {
        Self {
            begun: Instant::now(),
            // Use text, because numbers of JavaScript have 53 bits.
            instance: format!("{:016x}", fastrand::u64(..)),
            period,
        }
    }

    /// Returns the time since the start of the inspector, in ms.
    pub(crate) fn now_ms(&self) -> f64 {
        millis(self.begun.elapsed())
    }
}

/// A snapshot. Counters count from the start of the runtime.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot {
    version: u32,
    tourbillon: &'static str,
    pid: u32,
    /// Identifies the inspector: a process ID can occur again.
    instance: String,
    /// The period of events.
    period_ms: f64,
    /// The time since the start of the inspector, as with all fields of this name.
    at_ms: f64,
    unix_ms: u64,
    /// The time since the start of the runtime.
    uptime_ms: f64,
    workers: Vec<Worker>,
    helpers: Helpers,
    clocks: Clocks,
    /// Empty in a runtime without groups.
    groups: Vec<Group>,
    global_queue_depth: usize,
    alive_tasks: usize,
    blocking: Blocking,
    stalls: Vec<Stall>,
    /// The stacks of stalls, each once: the functions, innermost first.
    stacks: Vec<Vec<String>>,
    /// How much the flight recorder records, and when it kept traces by itself.
    recording: String,
    kept_unix_ms: Vec<u64>,
    /// The upper bounds of the histogram buckets in ns; `None` for the last one.
    bounds_ns: Vec<Option<u64>>,
    clients: usize,
}

#[derive(Debug, Serialize)]
struct Worker {
    id: usize,
    cpu: Option<usize>,
    activity: &'static str,
    job: Option<Job>,
    counts: Counted,
    stored: usize,
    pending: usize,
    garbage: usize,
    queue_depth: usize,
    pinned_tasks: usize,
    sweeps: u64,
    lateness: Lateness,
    steals_from: Vec<u64>,
    rescued_from: Vec<u64>,
    samples: Samples,
}

#[derive(Debug, Serialize)]
pub(crate) struct Job {
    /// What the job says about itself.
    label: Option<&'static str>,
    name: &'static str,
    spawned: Option<Place>,
    /// `None` for the default group.
    group: Option<&'static str>,
}

/// A group of tasks.
#[derive(Debug, Serialize)]
struct Group {
    name: String,
    shares: u32,
    jobs: u64,
    busy_ms: f64,
    queued: usize,
}

#[derive(Debug, Serialize)]
struct Helpers {
    threads: usize,
    idle: usize,
    started: u64,
    counts: Counted,
    lateness: Lateness,
    steals_from: Vec<u64>,
    rescued_from: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Clocks {
    counts: Counted,
    wall: Clock,
    boot: Clock,
}

#[derive(Debug, Serialize)]
struct Clock {
    pending: usize,
    garbage: usize,
}

#[derive(Debug, Serialize)]
struct Blocking {
    threads: usize,
    idle: usize,
    queued: usize,
}

#[derive(Debug, Serialize)]
struct Lateness {
    wake: Histogram,
    queue: Histogram,
    rescued: Histogram,
}

#[derive(Debug, Serialize)]
struct Histogram {
    count: u64,
    sum_ns: u64,
    /// The buckets that are not empty, with their indices.
    buckets: Vec<(usize, u64)>,
}

#[derive(Debug, Serialize)]
struct Stall {
    number: u64,
    at_ms: f64,
    /// The worker number. `None` for a helper, which has no number among the workers.
    worker: Option<usize>,
    /// What the job says about itself.
    label: Option<&'static str>,
    /// `None` if it is not known which of the `jobs` it was.
    job: Option<&'static str>,
    spawned: Option<Place>,
    /// As [`Job::group`].
    group: Option<&'static str>,
    elapsed_ms: f64,
    is_running: bool,
    jobs: u64,
    /// The places of its stacks in [`Snapshot::stacks`], oldest first.
    stacks: Vec<usize>,
}

/// [`Counts`] as a map with their names.
#[derive(Debug)]
struct Counted(Counts);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

/// A source location: file, line and column.
#[derive(Debug)]
pub(crate) struct Place(pub(crate) &'static Location<'static>);

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

impl Snapshot {
    /// Takes a snapshot. `clients` is the number of listeners. `samples` are by worker number; a
    /// worker without an entry was never sampled.
    pub(crate) fn take(
        handle: &Handle,
        inspection: &Inspection,
        samples: &[Samples],
        clients: usize,
    ) -> Self {
        let metrics = handle.metrics();
        // Read both clocks together: stalls are converted from the runtime's clock to `at_ms`.
        let at_ms = inspection.now_ms();
        let now = {
            let _inspected = handle.enter();
            RuntimeInstant::now()
        };
        let stalls = handle.recent_stalls();
        let mut stacks = Stacks::of(&stalls);
        let recorder = handle.flight_recorder();
        let workers = metrics.workers().iter().enumerate();
        Self {
            version: VERSION,
            tourbillon: tourbillon::VERSION,
            pid: process::id(),
            instance: inspection.instance.clone(),
            period_ms: millis(inspection.period),
            at_ms,
            unix_ms: unix_ms(SystemTime::now()),
            uptime_ms: millis(handle.uptime()),
            workers: workers
                .map(|(id, worker)| {
                    let samples = samples.get(id).copied().unwrap_or_default();
                    Worker::new(id, worker, samples)
                })
                .collect(),
            helpers: Helpers {
                threads: metrics.num_helpers(),
                idle: metrics.num_idle_helpers(),
                started: metrics.helpers_started(),
                counts: Counted(metrics.helper_counts().clone()),
                lateness: Lateness {
                    wake: metrics.helper_wake_lateness().into(),
                    queue: metrics.helper_queue_lateness().into(),
                    rescued: metrics.helper_rescued_lateness().into(),
                },
                steals_from: metrics.helpers_steals_from().to_vec(),
                rescued_from: metrics.helpers_rescued_from().to_vec(),
            },
            clocks: Clocks {
                counts: Counted(metrics.clock_counts()),
                wall: metrics.wall_clock().into(),
                boot: metrics.boot_clock().into(),
            },
            groups: metrics.groups().iter().map(Group::from).collect(),
            global_queue_depth: metrics.global_queue_depth(),
            alive_tasks: metrics.num_alive_tasks(),
            blocking: Blocking {
                threads: metrics.num_blocking_threads(),
                idle: metrics.num_idle_blocking_threads(),
                queued: metrics.blocking_queue_depth(),
            },
            stalls: stalls
                .iter()
                .map(|recent| {
                    let age = now.saturating_duration_since(recent.at);
                    Stall::new(recent, at_ms - millis(age), &mut stacks)
                })
                .collect(),
            stacks: stacks.texts.iter().map(|text| lines(text)).collect(),
            recording: recorder.recording().to_string(),
            kept_unix_ms: recorder.kept_at().into_iter().map(unix_ms).collect(),
            bounds_ns: LatenessHistogram::default()
                .buckets()
                .map(|bucket| u64::try_from(bucket.to().as_nanos()).ok())
                .collect(),
            clients,
        }
    }

    /// Returns whether there are workers. A runtime that ends has none at last.
    pub(crate) fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Returns the snapshot as one line.
    pub(crate) fn to_json(&self) -> String {
        // Fails only for maps whose keys are not text, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Worker {
    fn new(id: usize, worker: &WorkerMetrics, samples: Samples) -> Self {
        Self {
            id,
            cpu: worker.cpu(),
            activity: activity_name(worker.activity()),
            job: worker.job().map(Job::from),
            counts: Counted(worker.counts().clone()),
            stored: worker.stored(),
            pending: worker.pending(),
            garbage: worker.garbage(),
            queue_depth: worker.queue_depth(),
            pinned_tasks: worker.pinned_tasks(),
            sweeps: worker.sweeps(),
            lateness: Lateness {
                wake: worker.wake_lateness().into(),
                queue: worker.queue_lateness().into(),
                rescued: worker.rescued_lateness().into(),
            },
            steals_from: worker.steals_from().to_vec(),
            rescued_from: worker.rescued_from().to_vec(),
            samples,
        }
    }
}

impl Stall {
    fn new(recent: &RecentStall, at_ms: f64, stacks: &mut Stacks) -> Self {
        let stall = &recent.stall;
        Self {
            number: stall.number,
            at_ms: rounded(at_ms),
            worker: (!stall.is_helper).then_some(stall.worker),
            label: stall.job.and_then(|job| job.label),
            job: stall.job.map(|job| job.name),
            spawned: stall.job.and_then(|job| job.spawned).map(Place),
            group: stall.job.and_then(|job| job.group),
            elapsed_ms: millis(stall.elapsed),
            is_running: stall.is_running,
            jobs: stall.jobs,
            stacks: (stall.stacks.iter())
                .filter_map(|text| stacks.place(stall.job, text))
                .collect(),
        }
    }
}

/// A job that can be a key.
type JobKey = Option<(
    Option<&'static str>,
    &'static str,
    Option<&'static str>,
    Option<&'static Location<'static>>,
)>;

fn key(job: Option<JobName>) -> JobKey {
    job.map(|job| (job.label, job.name, job.group, job.spawned))
}

/// The texts of stacks that are shown, each once.
#[derive(Debug, Default)]
struct Stacks {
    shown: HashSet<(JobKey, Arc<str>)>,
    texts: Vec<Arc<str>>,
    places: HashMap<Arc<str>, usize>,
}

impl Stacks {
    /// Chooses the stacks that each job had most often.
    fn of(stalls: &[RecentStall]) -> Self {
        let mut times: HashMap<_, usize> = HashMap::new();
        for RecentStall { stall, .. } in stalls {
            for text in &stall.stacks {
                *times.entry((key(stall.job), text.clone())).or_default() += 1;
            }
        }
        let mut most: Vec<_> = times.into_iter().collect();
        // By the text at last, so that equally frequent ones do not take turns.
        most.sort_by(|((_, one), a), ((_, other), b)| b.cmp(a).then_with(|| one.cmp(other)));
        let mut of_job: HashMap<JobKey, usize> = HashMap::new();
        most.retain(|((job, _), _)| {
            let count = of_job.entry(*job).or_default();
            *count += 1;
            *count <= STACKS
        });
        Self {
            shown: most.into_iter().map(|(stack, _)| stack).collect(),
            ..Self::default()
        }
    }

    /// Returns the place of a text, if it is shown.
    fn place(&mut self, job: Option<JobName>, text: &Arc<str>) -> Option<usize> {
        if !self.shown.contains(&(key(job), text.clone())) {
            return None;
        }
        let place = *self.places.entry(text.clone()).or_insert(self.texts.len());
        if place == self.texts.len() {
            self.texts.push(text.clone());
        }
        Some(place)
    }
}

/// Returns the lines of a stack. Of a deep one, the outermost are only counted.
fn lines(text: &str) -> Vec<String> {
    let cut = |line: &str| match line.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    };
    let mut lines = text.lines().map(cut);
    let mut shown: Vec<_> = lines.by_ref().take(FUNCTIONS).collect();
    let rest = lines.count();
    if rest > 0 {
        shown.push(format!("and {rest} that called them"));
    }
    shown
}

impl From<JobName> for Job {
    fn from(job: JobName) -> Self {
        Self {
            label: job.label,
            name: job.name,
            spawned: job.spawned.map(Place),
            group: job.group,
        }
    }
}

impl From<&GroupMetrics> for Group {
    fn from(group: &GroupMetrics) -> Self {
        Self {
            name: group.name().to_owned(),
            shares: group.shares(),
            jobs: group.jobs(),
            busy_ms: millis(group.busy()),
            queued: group.queued(),
        }
    }
}

impl From<&ClockMetrics> for Clock {
    fn from(clock: &ClockMetrics) -> Self {
        Self {
            pending: clock.pending(),
            garbage: clock.garbage(),
        }
    }
}

impl From<&LatenessHistogram> for Histogram {
    fn from(late: &LatenessHistogram) -> Self {
        let buckets = late.counts().iter().copied().enumerate();
        Self {
            count: late.count(),
            sum_ns: u64::try_from(late.sum().as_nanos()).unwrap_or(u64::MAX),
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

fn activity_name(activity: Activity) -> &'static str {
    match activity {
        Activity::Running => "running",
        Activity::Firing => "firing",
        Activity::Polling => "polling",
        Activity::Stealing => "stealing",
        Activity::Parked => "parked",
        _ => "unknown",
    }
}

/// Returns a duration in ns.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3)
}

/// Rounds to a thousandth. Further digits are noise.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
