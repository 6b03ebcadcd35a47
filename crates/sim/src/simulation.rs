//! The description of a simulation.

use std::{
    fmt,
    future::Future,
    path::{Component, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use crate::{
    disk::Disk,
    network::Network,
    outcome::{Failure, Outcome, Report},
    process, run,
    world::faults::Style,
};

/// The future of a host's program. It says whether the program failed, and why.
pub(crate) type Program = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// A host, as it is described.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) workers: usize,
    /// Whether the simulation ends when all such programs have ended.
    pub(crate) is_client: bool,
    pub(crate) start: Arc<dyn Fn() -> Program + Send + Sync>,
}

/// One or more hosts under a seed.
///
/// Each host has a runtime of its own, with as many workers as asked for. The seed decides which
/// thread of all runs next. The hosts are in one process and share its statics. Between them is a
/// [`Network`](crate::Network).
///
/// ```
/// # #[cfg(tourbillon_sim)] {
/// use std::time::Duration;
/// use tourbillon::time::sleep;
/// use tourbillon_sim::Simulation;
///
/// let report = Simulation::new(7)
///     .host("a", || async { sleep(Duration::from_secs(60)).await })
///     .run()?;
/// assert!(report.simulated() >= Duration::from_secs(60));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`run`](Simulation::run) runs one seed. The attribute [`test`](crate::test) runs many.
#[derive(Clone)]
pub struct Simulation {
    pub(crate) seed: u64,
    workers: usize,
    pub(crate) hosts: Vec<Spec>,
    pub(crate) network: Network,
    /// The path and the plan of the disks.
    pub(crate) disk: Option<(PathBuf, Disk)>,
    /// By how many ns the wall clocks are wrong at most at first, each way.
    pub(crate) skew: u64,
    /// By how many millionths the clocks are too fast or too slow at most.
    pub(crate) drift: u32,
    /// The greatest number of descriptors of a host.
    pub(crate) descriptors: usize,
    pub(crate) limit: Duration,
    pub(crate) points: u64,
    /// The rule of switches that replaces the one of the seed.
    pub(crate) style: Option<Style>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|host| &host.name).collect();
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("hosts", &hosts)
            .finish_non_exhaustive()
    }
}

impl Simulation {
    /// Describes a simulation without hosts.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            workers: 2,
            hosts: Vec::new(),
            network: Network::default(),
            disk: None,
            skew: 0,
            drift: 0,
            descriptors: usize::MAX,
            limit: Duration::from_secs(3_600),
            points: 20_000_000,
            style: None,
        }
    }

    /// Returns the seed, from which a program can derive its own choices. Inside of the simulation,
    /// [`random`](crate::random) does so.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Sets how many workers the hosts have that are added from now on; at first 2.
    ///
    /// # Panics
    ///
    /// Panics if `workers` is 0.
    pub fn workers(&mut self, workers: usize) -> &mut Self {
        assert!(workers > 0, "a host needs a worker: write 1 or more");
        self.workers = workers;
        self
    }

    /// Adds a host. Its program is the future that `start` returns, in the manner of `block_on`.
    /// A [restart](crate::restart) calls `start` again.
    ///
    /// The future may return `()` or a `Result`. An error fails the seed. So does a panic of any
    /// thread of the simulation, even if somebody catches it.
    ///
    /// The simulation ends when all [clients](Simulation::client) have ended. If there are none, it
    /// ends when all hosts have ended.
    ///
    /// # Panics
    ///
    /// Panics if there is a host of this name, or if there are 250 hosts.
    pub fn host<F, Fut>(&mut self, name: &str, start: F) -> &mut Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        self.add(name, false, start)
    }

    /// Adds a host for whose end the simulation waits. See [`host`](Simulation::host).
    ///
    /// # Panics
    ///
    /// As `host` does.
    pub fn client<F, Fut>(&mut self, name: &str, start: F) -> &mut Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        self.add(name, true, start)
    }

    fn add<F, Fut>(&mut self, name: &str, is_client: bool, start: F) -> &mut Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        let is_known = self.hosts.iter().any(|host| host.name == name);
        assert!(!is_known, "there are two hosts of the name {name:?}");
        assert!(self.hosts.len() < 250, "there are more than 250 hosts");
        let start = move || -> Program {
            let program = start();
            Box::pin(async move { program.await.why() })
        };
        self.hosts.push(Spec {
            name: name.into(),
            workers: self.workers,
            is_client,
            start: Arc::new(start),
        });
        self
    }

    /// Sets what the network between the hosts does.
    pub fn network(&mut self, network: Network) -> &mut Self {
        self.network = network;
        self
    }

    /// Gives each host a disk of its own, which is empty at first and mounted at `path`. What the
    /// programs do with files whose paths begin with `path` happens there. All other files are the
    /// real ones of the machine, which the hosts share.
    ///
    /// A host that [crashes](crate::crash) finds on its disk what it has synced, and at random some
    /// of the rest: parts of 512 bytes of what it wrote to a file, and the first changes of the
    /// names of a directory. A sync of a file writes its bytes, and a sync of the directory its
    /// name.
    ///
    /// ```
    /// # #[cfg(tourbillon_sim)] {
    /// use std::{fs::File, io::Write};
    /// use tourbillon_sim::{Disk, Simulation};
    ///
    /// let mut sim = Simulation::new(1);
    /// sim.disk("/data", Disk::new()).host("store", || async {
    ///     let mut file = File::create("/data/log")?;
    ///     file.write_all(b"an entry")?;
    ///     file.sync_all()?;
    ///     File::open("/data")?.sync_all()
    /// });
    /// sim.run()?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `path` is not absolute, or if it has `..`.
    pub fn disk(&mut self, path: impl Into<PathBuf>, disk: Disk) -> &mut Self {
        let path: PathBuf = path.into();
        let is_plain = path.is_absolute() && path.components().all(|it| it != Component::ParentDir);
        assert!(
            is_plain,
            "write an absolute path without `..` in place of {path:?}"
        );
        // Without what makes no difference, such as a slash at the end.
        self.disk = Some((path.components().collect(), disk));
        self
    }

    /// Has the wall clocks of the hosts differ: each is wrong by a random time up to `most`,
    /// forward or back. At first all show the same time. [`set_clock`](crate::set_clock) sets one.
    ///
    /// # Panics
    ///
    /// Panics if `most` is over a year.
    pub fn clock_skew(&mut self, most: Duration) -> &mut Self {
        let year = Duration::from_secs(365 * 24 * 3_600);
        assert!(most <= year, "{most:?} is over a year: write less");
        self.skew = most.as_nanos() as u64;
        self
    }

    /// Has the clocks of each host, those of `Instant` and timers too, run too fast or too slow by
    /// a random part up to so many millionths. At first all run alike. The clocks of real machines
    /// are wrong by up to 500 millionths while they are set slowly, and by 50 otherwise.
    ///
    /// # Panics
    ///
    /// Panics if `millionths` is over 500,000.
    pub fn clock_drift(&mut self, millionths: u32) -> &mut Self {
        assert!(
            millionths <= 500_000,
            "a clock cannot be wrong by {millionths} millionths: write at most 500,000"
        );
        self.drift = millionths;
        self
    }

    /// Sets how many descriptors each host may have, those of its runtime included (four for each
    /// worker and two more). At first any number. A call that needs another one fails with
    /// `EMFILE`. [`set_descriptors`](crate::set_descriptors) changes it for one host.
    pub fn descriptors(&mut self, most: usize) -> &mut Self {
        self.descriptors = most;
        self
    }

    /// Sets for how long a simulation may last, in simulated time; at first one hour. A seed fails
    /// whose clients have not ended by then.
    pub fn limit(&mut self, limit: Duration) -> &mut Self {
        self.limit = limit;
        self
    }

    /// Sets through how many points the threads may pass, all together; at first 20 million. A seed
    /// fails that passes through more, since it seems to be in a loop. They take some seconds.
    pub fn points(&mut self, points: u64) -> &mut Self {
        self.points = points;
        self
    }

    /// Replaces the seed's rule of switches, for tests of the rules.
    #[doc(hidden)]
    pub fn style(&mut self, style: Style) -> &mut Self {
        self.style = Some(style);
        self
    }

    /// Runs the simulation in a child process, so that the values of statics are those of now, and
    /// waits for its end.
    ///
    /// # Errors
    ///
    /// Returns why the seed has failed.
    ///
    /// # Panics
    ///
    /// Panics if there is no host, or if the system has no process.
    pub fn run(&mut self) -> Result<Report, Failure> {
        assert!(!self.hosts.is_empty(), "a simulation needs a host");
        let simulation = self.clone();
        let seed = self.seed;
        let child =
            process::Child::start(seed, process::Way::default(), move || run::run(simulation));
        child.wait().result
    }
}
