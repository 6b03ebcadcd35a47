//! Nodes whose store or whose handlers misbehave.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tourbillon::time::{Instant, sleep};
use tourbillon_jobs::{
    Backoff, Failure, Node, Queue, Time, When,
    job::{Job, NewJob, Token},
    queue::MAX_PAYLOAD,
    sqlite::Sqlite,
    store::{
        Begin, Cancelled, Changes, Counts, DeadJobs, DeadPart, Deadline, End, Finish, Held, Kinds,
        Lease, Listing, Moved, Replaced, Scheduled, Span, Start, Store, StoreError,
    },
};

use crate::support::{
    self, Dir, HOUR, PATIENCE, begun, fails_by_key, live, node, on_file, run, waiting,
};

/// The embedded store, but it may refuse the ends of some jobs, refuses some texts, and counts its
/// holds, and the bytes of its calls.
struct Stubborn {
    store: Sqlite,
    refuses: AtomicBool,
    /// Whether it says that jobs are locked whose keys end like this.
    locks: AtomicBool,
    /// Whether it says that the queue of each job is paused, and takes none back.
    keeps: AtomicBool,
    holds: AtomicUsize,
    /// The keys of the jobs that nodes got, in this order.
    held: Mutex<Vec<String>>,
    begins: AtomicUsize,
    /// The most bytes of payloads in one call.
    largest: AtomicUsize,
}

impl Stubborn {
    fn open(dir: &Dir) -> Self {
        Self {
            store: Sqlite::open(dir.store()).unwrap(),
            refuses: AtomicBool::new(true),
            locks: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            holds: AtomicUsize::new(0),
            held: Mutex::new(Vec::new()),
            begins: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
        }
    }
}

/// Runs a test on a stubborn store, and on a queue of it.
fn on_stubborn(test: impl AsyncFnOnce(Queue<Stubborn>)) {
    let dir = Dir::new();
    run(async { test(Queue::new(Stubborn::open(&dir))).await });
}

impl Stubborn {
    fn has_locked(&self, key: &str) -> bool {
        self.locks.load(Ordering::Relaxed) && key.ends_with("locked")
    }
}

/// Hands requests to the embedded store.
macro_rules! forward {
    ($($request:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(async fn $request(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
            self.store.$request($($arg),*).await
        })*
    };
}

impl Store for Stubborn {
    forward! {
        schedule_or_replace(jobs: Vec<NewJob>) -> Vec<Replaced>;
        reschedule(moves: Vec<(String, When)>) -> Vec<Moved>;
        cancel(keys: Vec<String>) -> Vec<Cancelled>;
        retry_dead(which: DeadJobs) -> DeadPart;
        discard_dead(which: DeadJobs) -> DeadPart;
        get(key: String) -> Option<Job>;
        list(listing: Listing) -> Vec<Job>;
        count() -> Counts;
        register(length: Duration) -> Lease;
        renew(node: i64, length: Duration) -> bool;
        free_others() -> ();
        release(node: i64) -> ();
        are_current(attempts: Vec<(String, Token)>) -> Vec<bool>;
        recount() -> ();
        set_paused(queue: String, is_paused: bool) -> ();
        paused() -> Vec<String>;
    }

    async fn schedule(&self, jobs: Vec<NewJob>) -> Result<Vec<Scheduled>, StoreError> {
        let bytes = jobs.iter().map(|job| job.payload.len());
        self.largest.fetch_max(bytes.sum(), Ordering::Relaxed);
        self.store.schedule(jobs).await
    }

    async fn give_back(
        &self,
        jobs: Vec<(String, Token)>,
    ) -> Result<Vec<(String, Token)>, StoreError> {
        match self.keeps.load(Ordering::Relaxed) {
            true => Ok(jobs),
            false => self.store.give_back(jobs).await,
        }
    }

    async fn locked(&self, keys: Vec<String>) -> Result<HashSet<String>, StoreError> {
        let locked = keys.into_iter().filter(|key| self.has_locked(key));
        Ok(locked.collect())
    }

    async fn hold(
        &self,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> Result<Vec<Held>, StoreError> {
        self.holds.fetch_add(1, Ordering::Relaxed);
        let held = self.store.hold(node, span, queue, kinds, most).await?;
        let keys = held.iter().map(|job| job.key.clone());
        self.held.lock().unwrap().extend(keys);
        Ok(held)
    }

    async fn begin(&self, attempts: Vec<Start>) -> Result<Vec<Begin>, StoreError> {
        self.begins.fetch_add(1, Ordering::Relaxed);
        if attempts.iter().any(|start| self.has_locked(&start.key)) {
            return Err(StoreError::Locked);
        }
        if self.keeps.load(Ordering::Relaxed) {
            return Ok(attempts.iter().map(|_| Begin::Paused).collect());
        }
        let answers = self.store.begin(attempts).await?;
        let bytes = answers.iter().map(|answer| match answer {
            Begin::Yes { payload, .. } => payload.len(),
            _ => 0,
        });
        self.largest.fetch_max(bytes.sum(), Ordering::Relaxed);
        Ok(answers)
    }

    async fn finish(&self, attempts: Vec<Finish>) -> Result<Vec<bool>, StoreError> {
        let is_refused = attempts.iter().any(|end| end.key.starts_with("refused"));
        if is_refused && self.refuses.load(Ordering::Relaxed) {
            return Err(StoreError::Full);
        }
        let is_strange = |end: &Finish| {
            matches!(&end.end, End::Dead { error }
                if !error.is_ascii() || error.contains("refuse this, too"))
        };
        if attempts.iter().any(is_strange) {
            let why = std::io::Error::other("the text of an error");
            return Err(StoreError::Refused(Arc::new(why)));
        }
        self.store.finish(attempts).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }

    fn now(&self) -> Time {
        self.store.now()
    }

    fn deadline(&self, at: Time) -> Deadline {
        self.store.deadline(at)
    }
}

#[test]
fn an_end_that_the_store_refuses_keeps_no_other_end_waiting() {
    on_stubborn(async |queue| {
        let (node, gate, _, mut ends) = waiting(&queue, |node| node, fails_by_key);
        let keys = (0..100).map(|number| format!("job-{number}"));
        for key in keys.chain(["fails".into(), "refused".into()]) {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        begun(&node, 102).await;
        // All of them end at once.
        gate.add_permits(102);
        for _ in 0..101 {
            let (key, accepted) = ends.recv().await.unwrap();
            assert!(key != "refused" && accepted == Some(true), "{key}");
        }
        // Later ones do not wait, either.
        gate.add_permits(1);
        queue.schedule("later", Duration::ZERO, "").await.unwrap();
        assert_eq!(ends.recv().await.unwrap(), ("later".into(), Some(true)));
        while node.stats().running > 1 {
            sleep(Duration::from_millis(2)).await;
        }
        queue.store().refuses.store(false, Ordering::Relaxed);
        assert_eq!(ends.recv().await.unwrap(), ("refused".into(), Some(true)));
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn ends_of_one_kind_keep_no_end_of_another_kind_waiting() {
    on_stubborn(async |queue| {
        let (node, gate, _, mut ends) = waiting(&queue, |node| node, fails_by_key);
        // More jobs are done than requests may fail in one round, each for itself.
        let keys = (0..60).map(|number| format!("refused-{number}"));
        for key in keys.chain(["fails".into()]) {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        begun(&node, 61).await;
        gate.add_permits(61);
        assert_eq!(ends.recv().await.unwrap(), ("fails".into(), Some(true)));
        queue.store().refuses.store(false, Ordering::Relaxed);
        for _ in 0..60 {
            assert_eq!(ends.recv().await.unwrap().1, Some(true));
        }
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn an_end_whose_text_the_store_refuses_gets_another_text() {
    on_stubborn(async |queue| {
        queue.store().refuses.store(false, Ordering::Relaxed);
        let (node, mut ran) = node(
            &queue,
            |node| node,
            |attempt| Err(Failure::give_up(format!("\u{20ac}\0 {}", attempt.key))),
        );
        let keys = (0..1500).map(|number| format!("job-{number}"));
        for key in keys.chain(["refuse this, too".into()]) {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        // There are more of them than attempts that may wait for the store.
        live(&queue, 0).await;
        let error = async |key: &str| queue.get(key).await.unwrap().unwrap().error.unwrap();
        assert_eq!(error("job-7").await, "\\u{20ac}\\u{0} job-7");
        assert_eq!(
            error("refuse this, too").await,
            "the store cannot take the text of this error"
        );
        while ran.try_recv().is_ok() {}
        assert_eq!(node.stats().dead, 1501);
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn locked_jobs_keep_no_other_attempt_from_its_begin() {
    on_stubborn(async |queue| {
        let store = queue.store();
        store.locks.store(true, Ordering::Relaxed);
        let new = (0..40).map(|number| {
            support::new(
                format!("{number} {}", ["free", "locked"][number % 2]),
                Duration::ZERO,
            )
        });
        store.schedule(new.collect()).await.unwrap();
        let start = Instant::now();
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        for _ in 0..20 {
            let key = ran.recv().await.unwrap().key;
            assert!(key.ends_with("free"), "{key}");
        }
        // All locked ones are asked for at once, and again after 200 ms.
        let begins = store.begins.load(Ordering::Relaxed) as u128;
        let repeats = start.elapsed().as_millis() / 200;
        assert!(begins <= 5 + 2 * repeats, "{begins}");
        store.locks.store(false, Ordering::Relaxed);
        for _ in 0..20 {
            ran.recv().await.unwrap();
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_locked_job_of_a_paused_queue_is_asked_for_seldom() {
    on_stubborn(async |queue| {
        let store = queue.store();
        store.keeps.store(true, Ordering::Relaxed);
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        let start = Instant::now();
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        sleep(Duration::from_secs(1)).await;
        let begins = store.begins.load(Ordering::Relaxed) as u128;
        let repeats = start.elapsed().as_millis() / 200;
        assert!(0 < begins && begins <= 5 + 2 * repeats, "{begins}");
        store.keeps.store(false, Ordering::Relaxed);
        assert_eq!(ran.recv().await.unwrap().key, "job");
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_window_of_zero_asks_the_store_seldom() {
    on_stubborn(async |queue| {
        let (node, mut ran) = node(&queue, |node| node.window(Duration::ZERO), |_| Ok(()));
        let begin = Instant::now();
        sleep(Duration::from_millis(500)).await;
        let holds = queue.store().holds.load(Ordering::Relaxed) as u128;
        // Two each 50 ms, and some at the begin.
        assert!(holds <= 20 + begin.elapsed().as_millis() / 25, "{holds}");
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "job");
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn no_call_has_more_than_some_megabytes() {
    on_stubborn(async |queue| {
        let clients: Vec<_> = (0..60)
            .map(|number| {
                let queue = queue.clone();
                let payload = vec![b'x'; MAX_PAYLOAD];
                tourbillon::spawn(async move {
                    queue
                        .schedule(format!("large-{number}"), Duration::ZERO, payload)
                        .await
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap().unwrap();
        }
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        for _ in 0..60 {
            assert_eq!(ran.recv().await.unwrap().payload, vec![b'x'; MAX_PAYLOAD]);
        }
        live(&queue, 0).await;
        let largest = queue.store().largest.load(Ordering::Relaxed);
        assert!(
            (MAX_PAYLOAD..=8 * MAX_PAYLOAD).contains(&largest),
            "{largest}"
        );
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_busy_node_takes_jobs_above_those_that_it_holds() {
    on_stubborn(async |queue| {
        let store = queue.store();
        let (node, gate, mut begins, _) = waiting(
            &queue,
            |node| node.concurrency(1).window(4 * HOUR),
            |_| Ok(()),
        );
        let add = async |key: &str, at: Duration, priority| {
            let job = support::new(key, at).priority(priority);
            queue.schedule_job(job).await.unwrap();
        };
        // Adds a due job of which the node is told, and waits until it looks.
        let look = async |key: &str| {
            let before = store.holds.load(Ordering::Relaxed);
            add(key, Duration::ZERO, 0).await;
            while store.holds.load(Ordering::Relaxed) == before {
                sleep(Duration::from_millis(2)).await;
            }
        };
        let taken = || {
            let held = store.held.lock().unwrap();
            held.iter().filter(|key| key.starts_with("high")).count()
        };
        add("runs", Duration::ZERO, 4).await;
        assert_eq!(begins.recv().await.unwrap().key, "runs");
        // While it holds nothing else, it leaves what is due to others.
        look("high-1").await;
        look("high-2").await;
        assert_eq!(taken(), 0);
        // With a job of a lower priority in its timers, it has one ready.
        add("later", HOUR, 9).await;
        add("low", Duration::ZERO, 9).await;
        while taken() == 0 {
            sleep(Duration::from_millis(2)).await;
        }
        // As no handler ends, it gives this one back, and takes none again.
        while node.stats().held > 1 {
            sleep(Duration::from_millis(2)).await;
        }
        look("high-3").await;
        look("high-4").await;
        assert_eq!(taken(), 1);
        for key in ["high-1", "high-2", "high-3", "high-4", "low"] {
            gate.add_permits(1);
            let begun = begins.recv().await.unwrap().key;
            assert_eq!(begun, key, "{:?}", store.held.lock().unwrap());
        }
        gate.add_permits(1);
        live(&queue, 1).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_panic_of_a_destructor_or_of_on_end_does_not_leave_an_attempt_running() {
    on_file(async |queue| {
        let node = Node::builder(queue.clone())
            .backoff(Backoff {
                attempts: 1,
                ..Backoff::default()
            })
            .attempt_timeout(Duration::from_millis(20))
            .on_end(|_| panic!("on purpose"))
            .start(|_| async {
                let _bomb = Bomb;
                sleep(HOUR).await;
                Ok(())
            });
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        live(&queue, 0).await;
        let job = queue.get("job").await.unwrap().unwrap();
        let error = job.error.unwrap();
        // If no thread has a turn to drop the future within a second, its panic comes later.
        let is_told = error.contains("on purpose") || error == "it took longer than 20ms";
        assert!(is_told, "{error}");
        while node.stats().running > 0 {
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(node.stats().dead, 1);
        assert!(node.stop(PATIENCE).await);
    });
}
