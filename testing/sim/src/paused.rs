//! The paused clock: it stands while code runs or is about to, and then jumps to the next deadline.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tourbillon::{
    Runtime,
    task::{block_in_place, yield_now},
    time::{Instant, advance, pause, sleep, timeout},
};
use tourbillon_sim::raw::{self as sim, below, thread};

use crate::{
    cast::Cast,
    ledger::tally,
    life::Life,
    plan::Plan,
    scenario::until,
    work::{compute, connect, is_ending, read_all, write_all},
};

const MS: u64 = 1_000_000;
/// The maximum number of tasks of a seed.
const MOST: u64 = 60;

/// The state that all tasks of the scene share.
struct Stage {
    cast: Arc<Cast>,
    /// Set when the clock is paused.
    is_paused: AtomicBool,
    /// Whether a task moves the clock by `advance`. Then a sleep may last longer than it says.
    advances: bool,
    /// The number of outside threads that have not ended. The clock does not wait for them.
    outside: AtomicU32,
}

/// A future on the heap. It has a known type, so that a task can spawn another task of this type.
type Program = Pin<Box<dyn Future<Output = u64> + Send>>;

pub fn run(plan: &Plan) {
    let starts_paused = below(4) > 0;
    let runtime = plan.builder().start_paused(starts_paused).build();
    let runtime = runtime.unwrap_or_else(|error| sim::fail(&format!("{error}")));
    let stage = Arc::new(Stage {
        cast: Cast::new(plan.clone(), runtime.handle().clone()),
        is_paused: AtomicBool::new(starts_paused),
        advances: below(2) == 0,
        outside: AtomicU32::new(plan.actors),
    });
    stage.cast.maybe_limit();
    let actors: Vec<_> = (0..plan.actors)
        .map(|_| {
            let stage = stage.clone();
            thread::spawn(move || outside(&stage))
        })
        .collect();
    runtime.block_on(root(&stage));
    for actor in actors {
        if actor.join().is_err() {
            sim::fail("a thread from outside panicked");
        }
    }
    end(runtime, stage);
}

fn end(runtime: Runtime, stage: Arc<Stage>) {
    tally(|tally| tally.ending = Some((sim::moment(), sim::now())));
    stage.cast.over.store(true, Relaxed);
    // A write that was dropped may have been the last that a worker waits for.
    sim::drop_no_more();
    drop(runtime);
    drop(stage);
    until("threads of the runtime are left", || sim::alive() == 1);
}

/// Runs an outside thread. The clock does not wait for it.
fn outside(stage: &Arc<Stage>) {
    for _ in 0..below(4) {
        sim::block(below(MS));
        stage.cast.maybe_limit();
        match below(4) {
            0 => stage.cast.notify.notify_waiters(),
            1 => drop(spawn(stage, program(stage.clone(), 0))),
            2 => timer_from_outside(stage),
            // While the thread is in `block_on`, the clock waits for it.
            _ => _ = stage.cast.handle.block_on(program(stage.clone(), 0)),
        }
    }
    stage.outside.fetch_sub(1, Relaxed);
    stage.cast.notify.notify_waiters();
}

/// Arms a timer, and waits until it has run. Before that, cancels an earlier one, for which a
/// worker may have announced that it wakes.
fn timer_from_outside(stage: &Stage) {
    let handle = &stage.cast.handle;
    let (sooner, more) = (below(10 * MS), below(10 * MS));
    let gone = handle.after(Duration::from_nanos(sooner), || ());
    sim::block(below(10_000));
    gone.cancel();
    let ran = Arc::new(AtomicBool::new(false));
    let runs = ran.clone();
    drop(handle.after(Duration::from_nanos(sooner + more), move || {
        runs.store(true, Relaxed);
    }));
    until("a timer from outside never ran", || ran.load(Relaxed));
}

async fn root(stage: &Arc<Stage>) {
    let tasks: Vec<_> = (0..1 + below(4))
        .map(|_| spawn(stage, program(stage.clone(), 0)))
        .collect();
    if !stage.is_paused.load(Relaxed) {
        // Helpers and blocked workers are at work when the clock is paused.
        sleep(Duration::from_nanos(below(5 * MS))).await;
        pause();
        stage.is_paused.store(true, Relaxed);
    }
    if stage.advances {
        for _ in 0..1 + below(8) {
            jump().await;
        }
    }
    for task in tasks.into_iter().flatten() {
        let (task, life) = task;
        life.joined(task.await);
    }
    // Wait for the outside threads: without this thread the clock would stand, and their timers
    // would not run.
    loop {
        let notified = stage.cast.notify.notified();
        if stage.outside.load(Relaxed) == 0 {
            break;
        }
        notified.await;
    }
}

/// Moves the clock. The jump comes before the next deadline, and nothing moves the clock after it
/// until this task has run.
async fn jump() {
    let (by, from) = (Duration::from_nanos(below(20 * MS)), Instant::now());
    advance(by).await;
    let took = from.elapsed();
    if took != by {
        sim::fail(&format!(
            "`advance` moved the clock by {took:?}, not {by:?}"
        ));
    }
}

type Spawned = (tourbillon::JoinHandle<u64>, Arc<Life>);

fn spawn(stage: &Stage, future: Program) -> Option<Spawned> {
    (stage.cast.spawned.fetch_add(1, Relaxed) < MOST).then(|| {
        let life = Life::new(false);
        (stage.cast.spawn(life.of(future)), life)
    })
}

/// Waits for `future`, which always has something to run: meanwhile the clock must stand.
async fn stands<R>(stage: &Stage, what: &str, future: impl Future<Output = R>) -> R {
    let is_paused = stage.is_paused.load(Relaxed);
    let from = Instant::now();
    sim::note(|| format!("begins {what}"));
    let result = future.await;
    sim::note(|| format!("ends {what}"));
    let took = from.elapsed();
    if is_paused && !took.is_zero() && !is_ending() {
        sim::fail(&format!("the clock went on by {took:?} during {what}"));
    }
    result
}

fn program(stage: Arc<Stage>, depth: u32) -> Program {
    Box::pin(async move {
        let rounds = 1 + below(4);
        for _ in 0..rounds {
            match below(6) {
                0..3 => nap(&stage).await,
                3 => wait(&stage).await,
                4 => timers(&stage),
                _ => stage.cast.notify.notify_waiters(),
            }
            busy(&stage, depth, false).await;
        }
        rounds
    })
}

/// Returns a task that always has something to run. `is_awaited` tells whether a worker in
/// `block_in_place` waits for it.
fn busy_program(stage: Arc<Stage>, depth: u32, is_awaited: bool) -> Program {
    Box::pin(async move {
        let rounds = 1 + below(2);
        for _ in 0..rounds {
            busy(&stage, depth, is_awaited).await;
        }
        rounds
    })
}

/// Does one operation for which the clock stands.
async fn busy(stage: &Arc<Stage>, depth: u32, is_awaited: bool) {
    let cast = &stage.cast;
    match below(9) {
        0 => stands(stage, "a computation", async { compute(cast) }).await,
        1 => stands(stage, "a yield", yield_now()).await,
        2 => {
            stands(stage, "`block_in_place`", async {
                block_in_place(|| compute(cast))
            })
            .await
        }
        3 if !is_awaited => stands(stage, "a connection", talk(stage)).await,
        4 => {
            let cast_of = cast.clone();
            let job = cast.handle.spawn_blocking(move || compute(&cast_of));
            // A job may have to wait until a thread is free. Meanwhile the clock stands.
            _ = stands(stage, "a blocking job", job).await;
        }
        // A pinned task waits while its worker is in `block_in_place`, which may wait for this
        // task. A current-thread runtime refuses it.
        5 if !is_awaited && !cast.plan.is_current_thread => {
            let (life, cast_of) = (Life::new(true), cast.clone());
            let unmade = life.unmade();
            let create = move || {
                unmade.make(async move {
                    yield_now().await;
                    compute(&cast_of);
                    0
                })
            };
            let task = cast.handle.spawn_pinned(create);
            life.joined(stands(stage, "a pinned task", task).await);
        }
        which if depth < 2 => {
            let is_awaited = is_awaited || (which == 6 && !cast.plan.is_current_thread);
            let program = busy_program(stage.clone(), depth + 1, is_awaited);
            let Some((task, life)) = spawn(stage, program) else {
                return;
            };
            let result = match which {
                // The thread that would run the task is this one.
                6 if !cast.plan.is_current_thread => {
                    let blocks = async { block_in_place(|| cast.handle.block_on(task)) };
                    stands(stage, "`block_on` in `block_in_place`", blocks).await
                }
                _ => stands(stage, "a task", task).await,
            };
            life.joined(result);
        }
        _ => {}
    }
}

async fn talk(stage: &Arc<Stage>) {
    let cast = &stage.cast;
    let reads = Life::new(false);
    let unmade = reads.unmade();
    let spawn = |theirs| tourbillon::spawn(unmade.make(read_all(theirs, cast.clone())));
    let Some((ours, task)) = connect(|ours, theirs| (ours, spawn(theirs))) else {
        return;
    };
    let sent = write_all(&ours, 1 + below(8), cast).await;
    drop(ours);
    let got = reads.joined(task.await);
    if got != Some(sent) && !is_ending() {
        sim::fail(&format!("{sent} bytes were sent, and {got:?} came"));
    }
}

/// Checks that `took` is at least `asked`. It must be equal if the clock was paused all the time
/// and no task moves it.
fn check(stage: &Stage, was_paused: bool, what: &str, took: Duration, asked: Duration) {
    let is_exact = was_paused && !stage.advances;
    if (took < asked || is_exact && took != asked) && !is_ending() {
        sim::fail(&format!("{what} of {asked:?} took {took:?}"));
    }
}

async fn nap(stage: &Stage) {
    let was_paused = stage.is_paused.load(Relaxed);
    let (length, from) = (Duration::from_nanos(below(20 * MS)), Instant::now());
    sleep(length).await;
    check(stage, was_paused, "a sleep", from.elapsed(), length);
}

/// Waits for a notification, with a time limit.
async fn wait(stage: &Stage) {
    let was_paused = stage.is_paused.load(Relaxed);
    let (limit, from) = (Duration::from_nanos(below(20 * MS)), Instant::now());
    if timeout(limit, stage.cast.notify.notified()).await.is_err() {
        check(stage, was_paused, "a timeout", from.elapsed(), limit);
    }
}

/// Arms timers that are due at the same time.
fn timers(stage: &Arc<Stage>) {
    let was_paused = stage.is_paused.load(Relaxed);
    let (length, from) = (Duration::from_nanos(below(20 * MS)), Instant::now());
    for _ in 0..1 + below(3) {
        let stage_of = stage.clone();
        let timer = stage.cast.handle.after(length, move || {
            check(&stage_of, was_paused, "a timer", from.elapsed(), length);
            compute(&stage_of.cast);
        });
        drop(timer);
    }
}
