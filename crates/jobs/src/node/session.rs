//! One lease of a node, from its grant to its end.

use std::{collections::HashSet, future::pending, sync::Arc, time::Duration};

use futures_lite::future::or;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tourbillon::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    Shared, count,
    health::Ask,
    run::{self, Permits},
    take::take,
};
use crate::{
    batch::MOST_BYTES,
    store::{Begin, Deadline, Held, Lease, Start, Store, StoreError},
};

/// How many jobs one request takes from the store, and how many attempts begin at once.
pub(super) const BATCH: usize = 1024;

/// The longest wait until a node looks for jobs. Stores tell of jobs that are due sooner.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// The wait until a node looks again for jobs that somebody had locked.
pub(super) const SKIPPED: Duration = Duration::from_millis(200);

/// How long a job is due at a node that cannot run it, until the node gives it back.
const OVERDUE: Duration = Duration::from_secs(1);

/// How often the node looks whether the jobs that it runs were cancelled.
const LOOK: Duration = Duration::from_secs(1);

/// How often the node looks whether the store's clock was put back.
const RECOUNT: Duration = Duration::from_secs(5);

/// How long the node waits after an error of the store before it asks again.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs the node until it stops, or until the runtime of its user shuts down.
pub(super) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    or(sessions(&shared), stop_with_runtime(&shared)).await;
    if shared.runtime.is_shut_down() {
        // A handler may block its thread for ever. The store need not stay open for it.
        shared.tasks.end();
    }
}

/// Stops the node when the runtime of its user shuts down. Usually the end of that runtime ends the
/// tasks of the node first. But it may have left a handler behind that blocks its thread.
async fn stop_with_runtime<S: Store>(shared: &Shared<S>) {
    while !shared.runtime.is_shut_down() {
        sleep(LOOK).await;
    }
    shared.stop();
    shared.end_attempts(shared.options.lease).await;
    pending().await
}

/// Runs one session after another, each with a new lease, until the node stops.
async fn sessions<S: Store>(shared: &Arc<Shared<S>>) {
    let health = &shared.counters.health;
    let mut stopping = shared.stopping.subscribe();
    loop {
        // Count the lease from before the request, so that it ends here before it ends in the
        // store.
        let asked = Instant::now();
        let granted = or(
            async {
                let lease = shared.store.register(shared.options.lease);
                Some(health.ask(Ask::Register, lease).await)
            },
            async {
                let _ = stopping.wait_for(|&stops| stops).await;
                None
            },
        );
        match granted.await {
            None | Some(Err(StoreError::Closed | StoreError::Forked)) => break,
            Some(Err(_)) => sleep(PAUSE).await,
            Some(Ok(lease)) => {
                count(&shared.counters.leases);
                health.set_lease(true);
                shared.held.clear();
                // This future is large. Without a box, each move of the task would need that much
                // stack.
                let session = Box::pin(session(shared, lease, asked));
                let is_over = async {
                    shared.tasks.over().await;
                    None
                };
                let stopped = or(async { Some(session.await) }, is_over).await;
                health.set_lease(false);
                if stopped == Some(false) {
                    count(&shared.counters.leases_lost);
                }
                shared.held.clear();
                // The end of the user's runtime waits for no server. The lease runs out by itself.
                if stopped.is_some() || !lease.runs_out {
                    let _ = shared.store.release(lease.node).await;
                }
                if stopped != Some(false) {
                    break;
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Runs until the lease is lost, or until the node stops. Returns whether it stops.
async fn session<S: Store>(shared: &Arc<Shared<S>>, lease: Lease, granted: Instant) -> bool {
    let until = Arc::new(Until {
        lease,
        end: std::sync::Mutex::new(granted + shared.options.lease),
    });
    shared.running.begin_lease(lease.node);
    let (refused, mut refusals) = unbounded_channel();
    let lost = or(
        keep(shared, &until),
        or(
            take(shared, lease),
            or(
                begin(shared, &until, refused),
                or(
                    give_back(shared, &mut refusals),
                    or(find_cancelled(shared), recount(shared)),
                ),
            ),
        ),
    );
    let stopped = async {
        let mut stopping = shared.stopping.subscribe();
        let _ = stopping.wait_for(|&stops| stops).await;
        true
    };
    let stops = or(stopped, async {
        lost.await;
        shared.running.lose_lease();
        false
    })
    .await;
    if stops {
        // Keep the lease while the last attempts run, but begin nothing.
        shared.held.clear();
        let lost = async {
            or(keep(shared, &until), find_cancelled(shared)).await;
            shared.running.lose_lease();
        };
        or(lost, shared.held.wait_for_end()).await;
        shared.running.end_lease();
    }
    stops
}

/// The end of a lease, by the clock of this process.
struct Until {
    lease: Lease,
    end: std::sync::Mutex<Instant>,
}

impl Until {
    fn get(&self) -> Instant {
        *self.end.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    fn has_run_out(&self) -> bool {
        self.lease.runs_out && Instant::now() >= self.get()
    }
}

/// Renews the lease. Returns when it is lost.
async fn keep<S: Store>(shared: &Shared<S>, until: &Until) {
    if !until.lease.runs_out {
        std::future::pending::<()>().await;
    }
    let length = shared.options.lease;
    let health = &shared.counters.health;
    loop {
        sleep_until(until.get() - length * 2 / 3).await;
        let asked = Instant::now();
        let renewed = shared.store.renew(until.lease.node, length);
        match timeout_at(until.get(), health.ask(Ask::Renew, renewed)).await {
            Ok(Ok(true)) => {
                *until.end.lock().unwrap_or_else(|lock| lock.into_inner()) = asked + length;
                // The jobs of a large node may take long. The next renewal goes on with them, also
                // after an error.
                let freed = health.ask(Ask::FreeOthers, shared.store.free_others());
                let _ = timeout(length / 4, freed).await;
            }
            Ok(Ok(false)) => return,
            Ok(Err(_)) if !until.has_run_out() => sleep(PAUSE).await,
            Ok(Err(_)) => return,
            Err(_) => return health.unanswered(Ask::Renew, asked.elapsed()),
        }
    }
}

/// Gives jobs back that are due and that no handler can run, so that other nodes run them, and
/// those of queues that are paused. Does not return.
async fn give_back<S: Store>(shared: &Shared<S>, refusals: &mut UnboundedReceiver<Held>) {
    loop {
        let mut refused = Vec::new();
        let some = async {
            refusals.recv_many(&mut refused, BATCH).await;
        };
        or(some, sleep(OVERDUE / 2)).await;
        if !refused.is_empty() {
            give_back_these(shared, refused).await;
            continue;
        }
        loop {
            let (since, of_all) = (Instant::now() - OVERDUE, Permits::free(shared) == 0);
            let overdue = shared.held.take_overdue(since, BATCH, of_all);
            if overdue.is_empty() {
                break;
            }
            give_back_these(shared, overdue).await;
        }
    }
}

/// Gives jobs back, but those that somebody has locked.
async fn give_back_these<S: Store>(shared: &Shared<S>, these: Vec<Held>) {
    let jobs = these.iter().map(|held| (held.key.clone(), held.token));
    let jobs: Vec<_> = jobs.collect();
    // Until this succeeds, or the lease ends, nobody runs them.
    let locked = loop {
        let given = shared.store.give_back(jobs.clone());
        match shared.counters.health.ask(Ask::GiveBack, given).await {
            Ok(locked) => break locked,
            Err(_) => sleep(PAUSE).await,
        }
    };
    // These are still this node's, which tries again in a moment.
    let locked: HashSet<_> = locked.into_iter().map(|(_, token)| token).collect();
    let kept = these
        .into_iter()
        .filter(|held| locked.contains(&held.token));
    try_again(shared, kept.collect());
}

/// Makes jobs that somebody has locked due again in a moment.
fn try_again<S: Store>(shared: &Shared<S>, locked: Vec<Held>) {
    let again = Deadline::Monotonic(Instant::now() + SKIPPED);
    shared.held.add(locked, |_| Some(again));
}

/// Tells attempts that run, and whose jobs were cancelled or moved. Does not return.
async fn find_cancelled<S: Store>(shared: &Shared<S>) {
    loop {
        sleep(LOOK).await;
        let attempts = shared.running.current();
        if attempts.is_empty() {
            continue;
        }
        // After an error, the next look finds them.
        let current = shared.store.are_current(attempts.clone());
        let Ok(current) = shared.counters.health.ask(Ask::AreCurrent, current).await else {
            continue;
        };
        for ((_, token), is_current) in attempts.into_iter().zip(current) {
            if !is_current && shared.running.cancel(token) {
                count(&shared.counters.cancelled);
            }
        }
    }
}

/// Counts times of jobs again if the store's clock was put back. Does not return.
async fn recount<S: Store>(shared: &Shared<S>) {
    loop {
        // After an error, the next look finds them.
        let recounted = shared.store.recount();
        let _ = shared.counters.health.ask(Ask::Recount, recounted).await;
        sleep(RECOUNT).await;
    }
}

/// Arms timers for jobs.
pub(super) fn add<S: Store>(shared: &Shared<S>, held: Vec<Held>) {
    let now = shared.store.now();
    shared.held.add(held, |held| {
        let is_due = held.at <= now;
        (!is_due).then(|| shared.store.deadline(held.at))
    });
}

/// Begins the attempts of due jobs. Returns when the lease is over. Jobs whose queues are paused go
/// to `refused`.
async fn begin<S: Store>(
    shared: &Arc<Shared<S>>,
    until: &Arc<Until>,
    refused: UnboundedSender<Held>,
) {
    // How many attempts one request begins. A request that fails is divided, so that an attempt
    // which the store cannot begin keeps no other one waiting.
    let mut most = BATCH;
    loop {
        let due = shared.held.wait_for_due().await;
        let mut permits = vec![Permits::acquire(shared).await];
        run::wait_for_thread(shared).await;
        while permits.len() < due.min(most) {
            match Permits::try_acquire(shared) {
                Some(more) => permits.push(more),
                None => break,
            }
        }
        if until.has_run_out() {
            return;
        }
        let taken = shared.held.take_due(permits.len(), MOST_BYTES);
        let both = taken.into_iter().zip(permits);
        let mut due: Vec<_> = both
            .map(|((held, seat), permits)| (held, permits.with(seat)))
            .collect();
        // After the last attempt there is nothing to begin, even if it has not ended.
        let attempts = shared.options.backoff.attempts;
        for (held, permits) in due.extract_if(.., |(held, _)| held.attempts >= attempts) {
            let given_up = run::give_up(shared.clone(), held, permits);
            shared.tasks.spawn(given_up);
        }
        if due.is_empty() {
            continue;
        }
        // A task of its own goes on if the node stops. So no attempt counts that does not run.
        let started = start(shared.clone(), until.clone(), due, refused.clone());
        match shared.tasks.spawn(started).await {
            Ok(Some(Ok(early))) => {
                most = (2 * most).min(BATCH);
                // The clock was put back, or this machine's runs faster than the store's.
                if !early.is_empty() {
                    add(shared, early);
                }
            }
            Ok(Some(Err((failed, locked)))) if !locked.is_empty() => {
                let is_locked = |held: &Held| locked.contains(&held.key);
                let (locked, free) = failed.into_iter().partition(is_locked);
                shared.held.put_back(free, false);
                // Begin the others without these.
                try_again(shared, locked);
            }
            Ok(Some(Err((failed, _)))) => {
                most = failed.len().div_ceil(2);
                let is_alone = failed.len() == 1;
                shared.held.put_back(failed, is_alone);
                if is_alone {
                    sleep(PAUSE).await;
                }
            }
            // The runtime ends.
            Ok(None) | Err(_) => return,
        }
    }
}

/// Begins attempts, and runs those that began. Returns those that are early, and sends those to
/// `refused` whose queues are paused. If the store has failed, returns all, and the keys of those
/// that somebody has locked.
async fn start<S: Store>(
    shared: Arc<Shared<S>>,
    until: Arc<Until>,
    due: Vec<(Held, Permits)>,
    refused: UnboundedSender<Held>,
) -> Result<Vec<Held>, (Vec<Held>, HashSet<String>)> {
    let backoff = &shared.options.backoff;
    let starts = due.iter().map(|(held, _)| {
        let number = held.attempts + 1;
        Start {
            key: held.key.clone(),
            token: held.token,
            // No other attempt follows the last one: if it does not end, the job can be dead at
            // once.
            wait: match number < backoff.attempts {
                true => backoff.wait(number),
                false => Duration::ZERO,
            },
        }
    });
    let begun = shared.store.begin(starts.collect());
    let answers = match shared.counters.health.ask(Ask::Begin, begun).await {
        Ok(answers) => answers,
        Err(error) => {
            let keys: Vec<_> = due.iter().map(|(held, _)| held.key.clone()).collect();
            let locked = match error {
                StoreError::Locked if due.len() == 1 => keys.into_iter().collect(),
                StoreError::Locked => shared.store.locked(keys).await.unwrap_or_default(),
                _ => HashSet::new(),
            };
            return Err((due.into_iter().map(|(held, _)| held).collect(), locked));
        }
    };
    // If the lease ended before the answer came, the jobs may have other holders now.
    if until.has_run_out() {
        return Ok(Vec::new());
    }
    let mut early = Vec::new();
    for ((held, permits), answer) in due.into_iter().zip(answers) {
        match answer {
            Begin::Yes { number, payload } => {
                let (key, token) = (held.key.clone(), held.token);
                let Some(place) = shared.running.add(until.lease.node, key, token) else {
                    continue;
                };
                let running = run::run(shared.clone(), held, number, payload, place, permits);
                shared.tasks.spawn(running);
            }
            Begin::Early => early.push(held),
            // If the session has ended, the end of the lease frees the job.
            Begin::Paused => drop(refused.send(held)),
            Begin::No => {}
        }
    }
    Ok(early)
}
