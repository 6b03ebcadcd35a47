//! Clients and handlers that write the history.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::Args;
use tourbillon::time::{Instant, sleep};
use tourbillon_jobs::{
    Attempt, Backoff, Failure, NewJob, Node, Queue, QueueError, Time,
    job::LOWEST_PRIORITY,
    node::NodeBuilder,
    queue::{MAX_KEY, MAX_PAYLOAD},
    store::{Cancelled, End, Listing, Moved, Replaced, Scheduled, Store},
};

use crate::{
    history::{Event, History, Kind, Place},
    say::say,
};

/// The attempts of each job, and the waits between them.
pub const BACKOFF: Backoff = Backoff {
    attempts: 5,
    first: Duration::from_millis(40),
    longest: Duration::from_secs(1),
};

/// The end of the keys of jobs whose handlers abort their process.
const ABORTS: &str = "-aborts";

/// The end of the keys of jobs whose handlers never end.
const HANGS: &str = "-hangs";

/// The end of the keys of jobs with large payloads.
const LARGE: &str = "-large";

/// The options of the clients.
#[derive(Clone)]
pub struct Load {
    /// The start of each key.
    pub prefix: String,
    /// How many clients work at once.
    pub clients: usize,
    /// How many jobs they schedule together.
    pub jobs: u64,
    /// The jobs are due within this time.
    pub within: Duration,
    /// How long each client waits after a job.
    pub pause: Duration,
    /// Which jobs are hard.
    pub hard: Hard,
}

/// How many jobs are hard to run. Zero: none.
#[derive(Args, Clone, Copy, Default)]
pub struct Hard {
    /// Let the handler of one in so many jobs abort its process, at each attempt.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub abort: u64,
    /// Let the handler of one in so many jobs never end, at each attempt.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub hang: u64,
    /// Give one in so many jobs a payload of a megabyte.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub large: u64,
}

impl Load {
    /// Schedules all jobs; moves, cancels and replaces some of them.
    pub async fn run<S: Store>(self, queue: Queue<S>, history: Arc<History>) {
        let next = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..self.clients)
            .map(|_| {
                let (load, queue) = (self.clone(), queue.clone());
                let (history, next) = (history.clone(), next.clone());
                tourbillon::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= load.jobs {
                            break;
                        }
                        let is_one = |of: u64| of > 0 && number % of == of / 2;
                        let end = match () {
                            () if is_one(load.hard.abort) => ABORTS,
                            () if is_one(load.hard.hang) => HANGS,
                            () if is_one(load.hard.large) => LARGE,
                            () => "",
                        };
                        let key = format!("{}-{number}{end}", load.prefix);
                        one(&queue, &history, key, load.within).await;
                        sleep(load.pause).await;
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("clients do not panic");
        }
    }
}

/// Asks again until the store answers, as a client has to. Calls `failed` after each error.
async fn persist<A, F: Future<Output = Result<A, QueueError>>>(
    mut ask: impl FnMut() -> F,
    failed: impl Fn(),
) -> A {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(_) => failed(),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn one<S: Store>(queue: &Queue<S>, history: &History, key: String, within: Duration) {
    let some_time = || queue.store().now().after(within.mul_f64(fastrand::f64()));
    let at = some_time();
    history.write(&key, Event::Asks { at });
    // The answer is `Exists` if an earlier request added the job and its answer was lost.
    let job = |at, is_other| {
        let priority = fastrand::u8(..=LOWEST_PRIORITY);
        NewJob::new(&key, at, payload(&key, is_other)).priority(priority)
    };
    let first = job(at, false);
    let ask = || queue.schedule_job(first.clone());
    match persist(ask, || history.write(&key, Event::Failed)).await {
        Scheduled::Created { .. } | Scheduled::Exists { .. } => {
            history.write(&key, Event::Scheduled);
        }
        Scheduled::Never => unreachable!("it is no cron job"),
    }
    match fastrand::u8(..20) {
        0 | 1 => {
            let at = some_time();
            history.write(&key, Event::Moves { at });
            let event = match queue.reschedule(&key, at).await {
                Ok(Moved::Moved { at }) => Event::Moved { at },
                Ok(_) => Event::TooLate,
                // The client does not know whether the job was moved. It does not ask again,
                // because another move could run the job once more.
                Err(_) => return,
            };
            history.write(&key, event);
        }
        2 | 3 => {
            history.write(&key, Event::Cancels);
            let event = match queue.cancel(&key).await {
                Ok(Cancelled::Cancelled) => Event::Cancelled,
                Ok(_) => Event::TooLate,
                Err(_) => return,
            };
            history.write(&key, event);
        }
        4 | 5 => {
            let at = some_time();
            history.write(&key, Event::Replaces { at });
            let place = match queue.schedule_or_replace(job(at, true)).await {
                Ok(Replaced::Created { .. }) => Place::Free,
                Ok(Replaced::Replaced { .. }) => Place::Idle,
                Ok(Replaced::WhileRunning { .. }) => Place::Running,
                Ok(Replaced::Never) => unreachable!("it is no cron job"),
                // As for a move: another request could run the job once more.
                Err(_) => return,
            };
            history.write(&key, Event::Replaced { place });
        }
        _ => {}
    }
}

/// Starts a node whose handlers fail now and then. `clock` returns a time that the store's clock
/// has reached.
pub fn node<S: Store>(
    queue: &Queue<S>,
    history: &Arc<History>,
    clock: impl Fn() -> Time + Send + Sync + 'static,
    options: impl FnOnce(NodeBuilder<S>) -> NodeBuilder<S>,
) -> Node<S> {
    let ends = history.clone();
    let history = history.clone();
    let builder = Node::builder(queue.clone())
        .backoff(BACKOFF)
        .attempt_timeout(Duration::from_secs(1))
        .on_end(move |ended| {
            let kind = match ended.end {
                End::Done | End::Next { .. } => Kind::Done,
                End::Retry { .. } | End::Snooze { .. } => Kind::Retry,
                End::Dead { .. } => Kind::Dead,
            };
            let event = Event::Ended {
                token: ended.token,
                kind,
                accepted: ended.accepted,
            };
            ends.write(&ended.key, event);
        });
    options(builder).start(move |attempt: Attempt| {
        let is_other = is_other(&attempt.key, &attempt.payload);
        let event = Event::Runs {
            token: attempt.token,
            number: attempt.number,
            at: attempt.at,
            now: clock(),
            is_other,
        };
        history.write(&attempt.key, event);
        if attempt.key.ends_with(ABORTS) {
            std::process::abort();
        }
        let wanted = payload(&attempt.key, is_other);
        assert!(attempt.payload == wanted, "{}", attempt.key);
        let hangs = attempt.key.ends_with(HANGS);
        async move {
            match hangs {
                true => std::future::pending().await,
                false => handle().await,
            }
        }
    })
}

/// What the payload of a job has after the key if the job took the place of another one.
const OTHER: u8 = b'+';

/// Returns the payload of a job. `is_other` says whether the job takes the place of another one.
fn payload(key: &str, is_other: bool) -> Vec<u8> {
    let mut payload = key.as_bytes().to_vec();
    payload.extend(is_other.then_some(OTHER));
    if key.ends_with(LARGE) {
        payload.resize(MAX_PAYLOAD, b'.');
    }
    payload
}

/// Returns whether this is the payload of a job that took the place of another one.
fn is_other(key: &str, payload: &[u8]) -> bool {
    payload.get(key.len()) == Some(&OTHER)
}

/// Handles a job: sometimes takes a while, fails or panics.
async fn handle() -> Result<(), Failure> {
    let chance = fastrand::u8(..100);
    if chance < 30 {
        sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
    }
    match chance % 25 {
        0 => Err(Failure::retry("this one fails by chance")),
        1 if chance < 50 => panic!("this one panics by chance"),
        _ => Ok(()),
    }
}

/// Writes which jobs are dead in the end.
pub async fn bury<S: Store>(queue: &Queue<S>, history: &History) {
    let mut after = None;
    loop {
        let listing = || Listing {
            dead: Some(true),
            after: after.clone(),
            limit: 1000,
            beginning: MAX_KEY + 1,
            ..Listing::default()
        };
        let found = persist(|| queue.list(listing()), || {}).await;
        for job in &found {
            let is_other = is_other(&job.key, &job.payload);
            history.write(&job.key, Event::Buried { is_other });
        }
        match found.last() {
            Some(last) => after = Some(last.key.clone()),
            None => break,
        }
    }
}

/// Waits until the store has no live jobs. Calls `look` with their number now and then.
pub async fn drain<S: Store>(queue: &Queue<S>, mut look: impl FnMut(u64)) {
    loop {
        let start = Instant::now();
        let live = persist(|| queue.count(), || {}).await.live;
        if live == 0 {
            break;
        }
        look(live);
        // Counting a million jobs keeps the store busy, and the nodes need it, too. So wait fifty
        // times as long as the count took.
        let pause = start.elapsed() * 50;
        sleep(pause.clamp(Duration::from_millis(20), Duration::from_secs(10))).await;
    }
}

/// Prints the lateness of first attempts.
pub fn print_lateness(lateness: &[u64]) {
    if let Some(last) = lateness.len().checked_sub(1) {
        let at = |part: usize| lateness[last * part / 1000];
        say(format_args!(
            "lateness of first attempts: p50 {} µs, p99 {} µs, p99.9 {} µs, most {} µs",
            at(500),
            at(990),
            at(999),
            at(1000)
        ));
    }
}

/// Returns the time of the wall clock, in microseconds since 1970.
pub fn stamp() -> i64 {
    Time::wall().as_micros()
}
