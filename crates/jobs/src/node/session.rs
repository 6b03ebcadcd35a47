//! One lease of a node, from its grant to its end.

use std::{collections::HashSet, future::pending, sync::Arc, time::Duration};

use futures_lite::future::or;
use tourbillon::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    Shared, count,
    run::{self, Permits},
};
use crate::{
    batch::MOST_BYTES,
    store::{Begin, Deadline, Held, Lease, Span, Start, Store, StoreError},
};

/// How many jobs one request takes from the store, and how many attempts begin at once.
const BATCH: usize = 1024;

/// The longest wait until a node looks for jobs. Stores tell of jobs that are due sooner.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// The longest wait until a full node looks for jobs.
const FULL: Duration = Duration::from_millis(500);

/// The wait until a node looks again for jobs that somebody had locked.
const SKIPPED: Duration = Duration::from_millis(200);

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
    let mut stopping = shared.stopping.subscribe();
    loop {
        // Count the lease from before the request, so that it ends here before it ends in the
        // store.
        let asked = Instant::now();
        let granted = or(
            async { Some(shared.store.register(shared.options.lease).await) },
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
                shared.held.clear();
                // This future is large. Without a box, each move of the task would need that much
                // stack.
                let session = Box::pin(session(shared, lease, asked));
                let is_over = async {
                    shared.tasks.over().await;
                    None
                };
                let stopped = or(async { Some(session.await) }, is_over).await;
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
    let lost = or(
        keep(shared, &until),
        or(
            take(shared, lease),
            or(
                begin(shared, &until),
                or(
                    give_back(shared),
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
    loop {
        sleep_until(until.get() - length * 2 / 3).await;
        let asked = Instant::now();
        match timeout_at(until.get(), shared.store.renew(until.lease.node, length)).await {
            Ok(Ok(true)) => {
                *until.end.lock().unwrap_or_else(|lock| lock.into_inner()) = asked + length;
                // The jobs of a large node may take long. The next renewal goes on with them, also
                // after an error.
                let _ = timeout(length / 4, shared.store.free_others()).await;
            }
            Ok(Ok(false)) => return,
            Ok(Err(_)) if !until.has_run_out() => sleep(PAUSE).await,
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Takes jobs of the window into the timers, and due jobs as far as handlers can run them. Returns
/// if the store fails.
async fn take<S: Store>(shared: &Shared<S>, lease: Lease) {
    let options = &shared.options;
    let mut changes = shared.store.changes();
    let hold = async |span, most: usize| match most.min(BATCH) {
        0 => Ok((Vec::new(), false)),
        most => {
            let held = shared
                .store
                .hold(lease.node, span, &shared.kinds, most)
                .await?;
            let is_all = held.len() < most;
            Ok::<_, StoreError>((held, is_all))
        }
    };
    loop {
        let room = options.most_held.saturating_sub(shared.held.len());
        // A full node takes only jobs that are due within a second, and looks twice as often. With
        // these jobs, it may exceed its limit by a quarter.
        let (window, most) = if room > 0 {
            (options.window, room)
        } else {
            let extra = options.most_held.saturating_add(options.most_held / 4);
            (
                options.window.min(Duration::from_secs(1)),
                extra.saturating_sub(shared.held.len()),
            )
        };
        // Look for due jobs after those of the window. Otherwise a job that comes to be due in
        // between is in neither.
        let looks = async {
            let (held, is_all) = hold(Span::Within(window), most).await?;
            add(shared, held);
            let (held, is_all_due) = hold(Span::Due, room_for_due(shared)).await?;
            add(shared, held);
            Ok::<_, StoreError>((is_all, is_all_due))
        };
        // After an error, the answer may have been lost, and the node may hold jobs that it does
        // not know. The end of the lease frees them.
        let Ok((is_all, is_all_due)) = looks.await else {
            return;
        };
        if room > 0 && !is_all {
            continue;
        }
        // Look again when the second half of the window begins, if nothing happens before.
        let mut pause = (options.window / 2).min(LONGEST);
        let looks = [(Span::Within(window), room > 0), (Span::Due, is_all_due)];
        for (span, has_all) in looks {
            // A job that is locked now may be free in a moment, of which nobody tells.
            if has_all && !matches!(shared.store.skipped(span, &shared.kinds).await, Ok(false)) {
                pause = pause.min(SKIPPED);
            }
        }
        if room == 0 {
            // No timer of this node stands for the jobs that it did not take.
            pause = pause.min(FULL);
        }
        let next = or(changes.wait(), sleep(pause));
        let has_room = async {
            if room > 0 {
                std::future::pending::<()>().await;
            }
            shared.held.wait_for_room().await;
        };
        let has_room_for_due = async {
            if is_all_due {
                std::future::pending::<()>().await;
            }
            while room_for_due(shared) == 0 {
                match Permits::free(shared) {
                    0 => Permits::wait_for_free(shared).await,
                    _ => shared.held.wait_for_room().await,
                }
            }
        };
        or(next, or(has_room, has_room_for_due)).await;
    }
}

/// Returns how many due jobs the node may take: those that handlers can run at once, and as many
/// again, which are ready when these end.
fn room_for_due<S: Store>(shared: &Shared<S>) -> usize {
    let most = Permits::free(shared).saturating_mul(2);
    most.saturating_sub(shared.held.due())
}

/// Gives jobs back that are due and that no handler can run, so that other nodes run them.
async fn give_back<S: Store>(shared: &Shared<S>) {
    loop {
        sleep(OVERDUE / 2).await;
        while Permits::free(shared) == 0 {
            let since = Instant::now() - OVERDUE;
            let overdue = shared.held.take_overdue(since, BATCH);
            if overdue.is_empty() {
                break;
            }
            let jobs: Vec<_> = overdue
                .iter()
                .map(|held| (held.key.clone(), held.token))
                .collect();
            // Until this succeeds, or the lease ends, nobody runs them.
            let locked = loop {
                match shared.store.give_back(jobs.clone()).await {
                    Ok(locked) => break locked,
                    Err(_) => sleep(PAUSE).await,
                }
            };
            // These are still this node's. It begins them when it can, or gives them back later.
            let locked: HashSet<_> = locked.into_iter().map(|(_, token)| token).collect();
            let kept = overdue
                .into_iter()
                .filter(|held| locked.contains(&held.token));
            shared.held.put_back(kept.collect(), true);
        }
    }
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
        let Ok(current) = shared.store.are_current(attempts.clone()).await else {
            continue;
        };
        for ((_, token), is_current) in attempts.into_iter().zip(current) {
            if !is_current {
                shared.running.cancel(token);
            }
        }
    }
}

/// Counts times of jobs again if the store's clock was put back. Does not return.
async fn recount<S: Store>(shared: &Shared<S>) {
    loop {
        // After an error, the next look finds them.
        let _ = shared.store.recount().await;
        sleep(RECOUNT).await;
    }
}

/// Arms timers for jobs.
fn add<S: Store>(shared: &Shared<S>, held: Vec<Held>) {
    let now = shared.store.now();
    shared.held.add(held, |held| {
        let is_due = held.at <= now;
        (!is_due).then(|| shared.store.deadline(held.at))
    });
}

/// Begins the attempts of due jobs. Returns when the lease is over.
async fn begin<S: Store>(shared: &Arc<Shared<S>>, until: &Arc<Until>) {
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
        let mut due: Vec<_> = shared.held.take_due(permits.len(), MOST_BYTES);
        // After the last attempt there is nothing to begin, even if it has not ended.
        let attempts = shared.options.backoff.attempts;
        let mut permits = permits.into_iter();
        for held in due.extract_if(.., |held| held.attempts >= attempts) {
            if let Some(permits) = permits.next() {
                shared
                    .tasks
                    .spawn(run::give_up(shared.clone(), held, permits));
            }
        }
        if due.is_empty() {
            continue;
        }
        // A task of its own goes on if the node stops. So no attempt counts that does not run.
        let permits = permits.collect();
        let started = start(shared.clone(), until.clone(), due, permits);
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
                let again = Deadline::Monotonic(Instant::now() + SKIPPED);
                shared.held.add(locked, |_| Some(again));
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

/// Begins attempts, and runs those that began. Returns those that are early. If the store has
/// failed, returns all, and the keys of those that somebody has locked.
async fn start<S: Store>(
    shared: Arc<Shared<S>>,
    until: Arc<Until>,
    due: Vec<Held>,
    permits: Vec<Permits>,
) -> Result<Vec<Held>, (Vec<Held>, HashSet<String>)> {
    let backoff = &shared.options.backoff;
    let starts = due.iter().map(|held| {
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
    let answers = match shared.store.begin(starts.collect()).await {
        Ok(answers) => answers,
        Err(StoreError::Locked) => {
            let keys: Vec<_> = due.iter().map(|held| held.key.clone()).collect();
            let locked = match due.len() {
                1 => keys.into_iter().collect(),
                _ => shared.store.locked(keys).await.unwrap_or_default(),
            };
            return Err((due, locked));
        }
        Err(_) => return Err((due, HashSet::new())),
    };
    // If the lease ended before the answer came, the jobs may have other holders now.
    if until.has_run_out() {
        return Ok(Vec::new());
    }
    let mut early = Vec::new();
    for ((held, permits), answer) in due.into_iter().zip(permits).zip(answers) {
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
            Begin::No => {}
        }
    }
    Ok(early)
}
