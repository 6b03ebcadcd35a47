//! Scenarios: what tasks do with timers. They sleep, time out, abort, tick, use names, recurring
//! timers, other clocks and blocking jobs. Each scenario checks its results.

use std::{
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, SystemTime},
};

use tourbillon::{
    Timer,
    task::{JoinSet, spawn_blocking},
    time::{Instant, interval, sleep, timeout},
    timer::{Cancel, Outcome},
};

use super::{
    shared::{Deliberate, PATIENCE, Shared},
    tally::Count,
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Runs one scenario after the other, until the soak ends.
pub(super) async fn task(shared: Shared, number: u64) {
    // First each scenario in turn, starting at a different one in each task; then at random.
    for life in 0.. {
        if shared.is_stopping() {
            return;
        }
        let turn = (life + 3 * number) % 16;
        match if life < 16 { turn } else { fastrand::u64(..16) } {
            0..=3 => sleeps(shared).await,
            4 | 5 => aborts(shared).await,
            6 | 7 => timeouts(shared).await,
            8 => ticks(shared).await,
            9 | 10 => names(shared, number).await,
            11 | 12 => recurs(shared).await,
            13 => runs_out(shared).await,
            14 => clocks(shared).await,
            _ => blocks(shared).await,
        }
        sleep(millis(4)).await;
    }
}

/// Returns a random duration below `most` ms.
fn millis(most: u64) -> Duration {
    Duration::from_micros(fastrand::u64(..most * 1_000))
}

/// Records a fault if less than `wait` has passed since `start`.
fn check_passed(shared: Shared, what: &'static str, start: Instant, wait: Duration) {
    let took = start.elapsed();
    let detail = format_args!("after {took:?} instead of {wait:?}");
    shared.check(took >= wait, what, detail);
}

async fn sleeps(shared: Shared) {
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        tasks.spawn(async move {
            let (start, wait) = (Instant::now(), millis(20));
            sleep(wait).await;
            check_passed(shared, "a sleep ended early", start, wait);
            wait
        });
    }
    let mut joined = 0;
    while let Some(task) = tasks.join_next().await {
        shared.check(task.is_ok(), "a sleeping task failed", "");
        joined += 1;
    }
    shared.check(joined == 8, "a task was not joined", joined);
    shared.tally.add(Count::Sleeps, joined);
}

/// Aborts tasks that wait, and joins one that panics.
async fn aborts(shared: Shared) {
    let sleeper = tourbillon::spawn(sleep(HOUR));
    // This one may end before the abort.
    let racer = tourbillon::spawn(sleep(millis(2)));
    sleep(millis(2)).await;
    sleeper.abort();
    racer.abort();
    let answer = sleeper.await;
    let was_aborted = matches!(&answer, Err(error) if error.is_cancelled());
    let what = "an aborted task did not return a cancelled error";
    shared.check(was_aborted, what, format_args!("{answer:?}"));
    // The abort may be too late; both answers are right.
    drop(racer.await);
    shared.tally.add(Count::Aborted, 2);
    let panicker = tourbillon::spawn(async move {
        sleep(millis(2)).await;
        shared.tally.count(Count::Panics);
        panic_any(Deliberate);
    });
    let is_panic = panicker.await.is_err_and(|error| error.is_panic());
    shared.check(
        is_panic,
        "joining a panicked task did not return its panic",
        "",
    );
}

async fn timeouts(shared: Shared) {
    let (start, wait) = (Instant::now(), millis(10));
    let elapsed = timeout(wait, std::future::pending::<()>()).await;
    check_passed(shared, "a timeout elapsed early", start, wait);
    let what = "a timeout on a pending future returned a value";
    shared.check(elapsed.is_err(), what, "");
    let done = timeout(HOUR, sleep(millis(5))).await;
    let what = "a timeout of an hour elapsed";
    shared.check(done.is_ok(), what, "");
    shared.tally.add(Count::Timeouts, 2);
}

async fn ticks(shared: Shared) {
    let (start, period) = (Instant::now(), MS + millis(3));
    let mut ticks = interval(period);
    // The first tick is immediate.
    for _ in 0..4 {
        ticks.tick().await;
    }
    check_passed(shared, "an interval ticked early", start, period * 3);
    shared.tally.count(Count::Sleeps);
}

/// Finds timers by a name that only this task uses.
async fn names(shared: Shared, number: u64) {
    let handle = tourbillon::Handle::current();
    let name = format!("soak {number}");
    let outcomes = Arc::new(AtomicU64::new(0));
    let timers = [(); 3].map(|()| {
        let outcomes = outcomes.clone();
        let timer = Timer::after(HOUR).name(name.as_str());
        timer.start_with(move |how| {
            shared.tally.count(Count::Runs);
            let was = matches!(how, Outcome::Cancelled);
            let what = "a named timer was not cancelled by its name";
            shared.check(was, what, format_args!("{how:?}"));
            outcomes.fetch_add(1, Relaxed);
        })
    });
    // Refresh and count all three, cancel one, then the other two.
    let found = [
        handle.count_named(&name),
        handle.refresh_named(&name),
        handle.cancel_named(&name, 1),
        handle.count_named(&name),
        handle.cancel_all_named(&name),
        handle.count_named(&name),
    ];
    let what = "a name found the wrong timers";
    shared.check(found == [3, 3, 1, 2, 2, 0], what, format_args!("{found:?}"));
    for timer in &timers {
        // The timer is already over. This waits until its callback has taken the outcome.
        let answer = timer.cancel_and_wait().await;
        let late = matches!(answer, Ok(Cancel::Over | Cancel::Running));
        let what = "a timer was cancelled twice, by its name and its handle";
        shared.check(late, what, format_args!("{answer:?}"));
    }
    let outcomes = outcomes.load(Relaxed);
    shared.check(
        outcomes == 3,
        "a named timer did not take its outcome once",
        outcomes,
    );
    shared.tally.add(Count::Named, 3);
}

/// State of a recurring callback.
struct Course {
    shared: Shared,
    start: Instant,
    period: Duration,
    runs: Arc<AtomicU64>,
}

impl Course {
    fn run(&self) {
        self.shared.tally.count(Count::Runs);
        let runs = self.runs.fetch_add(1, Relaxed) + 1;
        // Deadlines lie on a grid. Ticks may be skipped, but none fires early.
        let wait = self.period * u32::try_from(runs).unwrap_or(u32::MAX);
        check_passed(self.shared, "a recurring timer ran early", self.start, wait);
    }
}

fn course(shared: Shared) -> (Course, Arc<AtomicU64>) {
    let runs = Arc::new(AtomicU64::new(0));
    let course = Course {
        shared,
        start: Instant::now(),
        period: MS / 2 + millis(3),
        runs: runs.clone(),
    };
    shared.tally.count(Count::Recurring);
    (course, runs)
}

/// Cancels a recurring timer. Then it must not run again, and its callback must be dropped.
async fn recurs(shared: Shared) {
    let (course, runs) = course(shared);
    let timer = tourbillon::every(course.period, move || course.run());
    sleep(millis(20)).await;
    let answer = timer.cancel_and_wait().await;
    let ended = matches!(answer, Ok(Cancel::Cancelled | Cancel::AfterRun));
    let what = "a recurring timer was not cancelled";
    shared.check(ended, what, format_args!("{answer:?}"));
    // Only this task's reference may be left.
    let gone = Arc::strong_count(&runs) == 1;
    let what = "the callback of a recurring timer outlived it";
    shared.check(gone, what, "");
    let ran = runs.load(Relaxed);
    sleep(millis(8)).await;
    let more = runs.load(Relaxed) - ran;
    let what = "a recurring timer ran after `cancel_and_wait`";
    shared.check(more == 0, what, more);
}

/// A recurring timer with five runs. The third may panic.
async fn runs_out(shared: Shared) {
    let (course, runs) = course(shared);
    let panics = fastrand::bool();
    Timer::every(course.period).times(5).start(move || {
        course.run();
        if panics && course.runs.load(Relaxed) == 3 {
            shared.tally.count(Count::Panics);
            panic_any(Deliberate);
        }
    });
    // The callback is dropped after the last run.
    let start = Instant::now();
    while Arc::strong_count(&runs) > 1 && start.elapsed() < PATIENCE {
        sleep(MS).await;
    }
    let what = "a recurring timer of 5 runs ran another number of times";
    let ran = runs.load(Relaxed);
    shared.check(ran == 5, what, ran);
}

/// Timers of the wall clock and the boot clock: two fire, two are cancelled. The wall clock may be
/// set meanwhile.
async fn clocks(shared: Shared) {
    let outcomes = Arc::new(AtomicU64::new(0));
    let tell = || {
        let outcomes = outcomes.clone();
        move |_| {
            shared.tally.count(Count::Runs);
            outcomes.fetch_add(1, Relaxed);
        }
    };
    // Two of them with a far deadline, to be cancelled, and two that fire.
    let wall = Timer::at_wall(SystemTime::now() + HOUR).start_with(tell());
    let boot = Timer::after_boot(HOUR).start_with(tell());
    Timer::after_boot(millis(3)).start_with(tell());
    Timer::at_wall(SystemTime::now() + millis(3)).start_with(tell());
    sleep(millis(5)).await;
    let answers = (wall.cancel_and_wait().await, boot.cancel_and_wait().await);
    let what = "a timer of another clock was not cancelled";
    let ok = answers == (Ok(Cancel::Cancelled), Ok(Cancel::Cancelled));
    shared.check(ok, what, format_args!("{answers:?}"));
    // Each of the four callbacks takes exactly one outcome.
    let start = Instant::now();
    while outcomes.load(Relaxed) < 4 && start.elapsed() < PATIENCE {
        sleep(MS).await;
    }
    let outcomes = outcomes.load(Relaxed);
    let what = "timers of other clocks did not take one outcome each";
    shared.check(outcomes == 4, what, outcomes);
    shared.tally.add(Count::Clocks, 4);
}

/// Runs two blocking jobs: one returns a value, one panics.
async fn blocks(shared: Shared) {
    let number = fastrand::u64(..);
    let job = spawn_blocking(move || {
        thread::sleep(millis(3));
        number.rotate_left(7)
    });
    let answer = job.await;
    let ok = matches!(answer, Ok(answer) if answer == number.rotate_left(7));
    let what = "a blocking job returned a wrong value";
    shared.check(ok, what, format_args!("{answer:?}"));
    let job = spawn_blocking(|| panic_any(Deliberate));
    let is_panic = job.await.is_err_and(|error| error.is_panic());
    let what = "joining a panicked blocking job did not return its panic";
    shared.check(is_panic, what, "");
    shared.tally.count(Count::Panics);
    shared.tally.add(Count::Blocking, 2);
}

/// Blocks one worker after the other for a while. Meanwhile its peers must rescue its timers.
pub(super) async fn block_workers(shared: Shared, workers: usize) {
    while !shared.is_stopping() {
        sleep(150 * MS + millis(300)).await;
        let blocked = Timer::after(Duration::ZERO).on_worker(fastrand::usize(..workers));
        blocked.start(move || {
            shared.tally.count(Count::Runs);
            shared.tally.count(Count::Blocked);
            thread::sleep(5 * MS + millis(20));
        });
    }
}
