use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    time::Duration,
};

use http::{Response, request::Parts};
use tourbillon::sync::Notify;

use crate::{AdmissionLayer, Priority, Shed, answer, probe, shares::Shares};

/// Decides which requests a server takes, by how long tasks wait for a worker.
///
/// A clone is another handle to the same one. It measures until the last clone, and the last
/// service with its layer, are dropped.
#[derive(Clone)]
pub struct Admission {
    pub(crate) shared: Arc<Shared>,
}

type PriorityOf = dyn Fn(&Parts) -> Priority + Send + Sync;

pub(crate) struct Shared {
    pub(crate) shares: Shares,
    pub(crate) priority: Box<PriorityOf>,
    pub(crate) answer: Box<answer::Answer>,
    retry_after: Duration,
    ended: AtomicU64,
    /// Whether the task measures. If not, the next request wakes it.
    measures: AtomicBool,
    pub(crate) bell: Arc<Notify>,
    /// In nanoseconds: the last measured delay.
    delay: AtomicU64,
    /// The part of the requests that was to be refused in the last window, as the bits of an `f64`.
    pressure: AtomicU64,
}

/// What was counted since the start.
pub(crate) struct Totals {
    pub(crate) arrived: [u64; 3],
    pub(crate) ended: u64,
}

impl Shared {
    /// Decides about a request.
    pub(crate) fn admit(&self, priority: Priority) -> bool {
        if priority == Priority::Always {
            return true;
        }
        if !self.measures.load(Relaxed) && !self.measures.swap(true, AcqRel) {
            self.bell.notify_one();
        }
        self.shares.admit(priority)
    }

    /// Counts an answer to a request that may be refused.
    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Relaxed);
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            arrived: self.shares.counts().map(|(arrived, _)| arrived),
            ended: self.ended.load(Relaxed),
        }
    }

    pub(crate) fn apply(&self, rate: Option<f64>, arrived: [f64; 3], delay: Duration) {
        self.shares.set(rate, arrived);
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.delay.store(nanos, Relaxed);
        let pressure = self.shares.refused(arrived);
        self.pressure.store(pressure.to_bits(), Relaxed);
    }

    /// Lets the next request wake the task.
    pub(crate) fn rest(&self) {
        self.measures.store(false, Release);
    }

    pub(crate) fn shed(&self, priority: Priority) -> Shed {
        Shed {
            priority,
            delay: self.delay(),
            retry_after: self.retry_after,
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.load(Relaxed))
    }
}

/// How many requests came and were refused, from [`Admission::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many requests came, but for those of [`Priority::Always`].
    pub arrived: u64,
    /// How many of them were refused.
    pub refused: u64,
}

impl Admission {
    /// Starts with the defaults, on the current runtime, which should be that of the server: it
    /// measures how long the tasks of this runtime wait. The target is 2 ms, and all requests have
    /// the priority [`Normal`](Priority::Normal) but those of the paths `/health`, `/healthz`,
    /// `/livez` and `/readyz`, which are never refused.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Begins an `Admission` with other settings.
    pub fn builder() -> Builder {
        Builder {
            target: Duration::from_millis(2),
            retry_after: Duration::from_secs(1),
            priority: Box::new(by_path),
            answer: Box::new(answer::default),
        }
    }

    /// A layer that answers requests that are refused.
    ///
    /// Add it after the routes, and after all layers that a refused request should not cost: axum
    /// calls the layer that was added last first.
    pub fn layer(&self) -> AdmissionLayer {
        AdmissionLayer(self.clone())
    }

    /// How long tasks have waited for a worker, at least, in the last window of some 10 ms in which
    /// requests came.
    pub fn delay(&self) -> Duration {
        self.shared.delay()
    }

    /// The part of the requests that is refused at present, from 0 to 1.
    pub fn pressure(&self) -> f64 {
        f64::from_bits(self.shared.pressure.load(Relaxed))
    }

    /// What was counted of a priority since the start. That of [`Priority::Always`] is zero.
    pub fn counts(&self, priority: Priority) -> Counts {
        let counts = self.shared.shares.counts();
        let counts = counts.get(priority as usize).copied().unwrap_or_default();
        Counts {
            arrived: counts.0,
            refused: counts.1,
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("delay", &self.delay())
            .field("pressure", &self.pressure())
            .finish_non_exhaustive()
    }
}

fn by_path(request: &Parts) -> Priority {
    match request.uri.path() {
        "/health" | "/healthz" | "/livez" | "/readyz" => Priority::Always,
        _ => Priority::Normal,
    }
}

/// Settings of an [`Admission`], from [`Admission::builder`].
#[must_use = "nothing is measured before `start`"]
pub struct Builder {
    target: Duration,
    retry_after: Duration,
    priority: Box<PriorityOf>,
    answer: Box<answer::Answer>,
}

impl Builder {
    /// How long tasks may wait for a worker before requests are refused, 2 ms by default.
    ///
    /// The response time of admitted requests is longer by about this than without load. A wait that
    /// each task has for a tenth of a second counts, or one of ten times the target in two windows.
    pub fn target(mut self, target: Duration) -> Self {
        self.target = target;
        self
    }

    /// What `Retry-After` says: one second by default. It is rounded up to whole seconds.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Asks this function for the priority of each request, in place of the default by path.
    ///
    /// In a layer of axum's router, the request has its matched path among its extensions.
    pub fn priority<F>(mut self, priority: F) -> Self
    where
        F: Fn(&Parts) -> Priority + Send + Sync + 'static,
    {
        self.priority = Box::new(priority);
        self
    }

    /// Answers refused requests by this function. The default answer has the status 503, the header
    /// `Retry-After`, and a sentence as its body.
    pub fn answer<F>(mut self, answer: F) -> Self
    where
        F: Fn(Shed) -> Response<String> + Send + Sync + 'static,
    {
        self.answer = Box::new(answer);
        self
    }

    /// Starts to measure, in a task of the current runtime, which should be that of the server. If
    /// the runtime ends, everything is admitted from then on.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn start(self) -> Admission {
        let shared = Arc::new(Shared {
            shares: Shares::new(),
            priority: self.priority,
            answer: self.answer,
            retry_after: self.retry_after,
            ended: AtomicU64::new(0),
            measures: AtomicBool::new(false),
            bell: Arc::new(Notify::new()),
            delay: AtomicU64::new(0),
            pressure: AtomicU64::new(0),
        });
        probe::start(&shared, self.target);
        Admission { shared }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("target", &self.target)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The task waits for a request, and has to see that none will come.
        self.bell.notify_one();
    }
}
