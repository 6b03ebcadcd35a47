//! What tasks do with timers, each in a way of its own, one after the other: sleeps, timeouts, aborts, intervals, names,
//! recurring timers, other clocks, jobs on blocking threads. Each checks what it was promised.

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
    Cancel, Outcome, Timer,
    task::{JoinSet, spawn_blocking},
    time::{Instant, interval, sleep, timeout},
};

use super::{
    books::{Books, Meant, PATIENCE},
    tally::Count,
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A task that leads one life after the other, until the soak ends.
pub(super) async fn task(books: Books, number: u64) {
    // All of them once, in an order of its own; and then at random.
    for life in 0.. {
        if books.is_stopping() {
            return;
        }
        let turn = (life + 3 * number) % 16;
        match if life < 16 { turn } else { fastrand::u64(..16) } {
            0..=3 => sleeps(books).await,
            4 | 5 => aborts(books).await,
            6 | 7 => timeouts(books).await,
            8 => ticks(books).await,
            9 | 10 => names(books, number).await,
            11 | 12 => recurs(books).await,
            13 => runs_out(books).await,
            14 => clocks(books).await,
            _ => blocks(books).await,
        }
        sleep(millis(4)).await;
    }
}

/// Some time of so many ms at the most.
fn millis(most: u64) -> Duration {
    Duration::from_micros(fastrand::u64(..most * 1_000))
}

/// Checks that `wait` has passed since `start`, and not more by far.
fn check_passed(books: Books, what: &'static str, start: Instant, wait: Duration) {
    let took = start.elapsed();
    let detail = format_args!("{took:?} in place of {wait:?}");
    books.faults.unless(took >= wait, what, detail);
}

async fn sleeps(books: Books) {
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        tasks.spawn(async move {
            let (start, wait) = (Instant::now(), millis(20));
            sleep(wait).await;
            check_passed(books, "a sleep ended early", start, wait);
            wait
        });
    }
    let mut joined = 0;
    while let Some(task) = tasks.join_next().await {
        books
            .faults
            .unless(task.is_ok(), "a sleeping task failed", "");
        joined += 1;
    }
    books
        .faults
        .unless(joined == 8, "a task was not joined", joined);
    books.tally.add(Count::Sleeps, joined);
}

/// Tasks that are aborted while they wait, and one that panics.
async fn aborts(books: Books) {
    let sleeper = tourbillon::spawn(sleep(HOUR));
    let ends_or_not = tourbillon::spawn(sleep(millis(2)));
    sleep(millis(2)).await;
    sleeper.abort();
    ends_or_not.abort();
    let answer = sleeper.await;
    let was_aborted = matches!(&answer, Err(error) if error.is_cancelled());
    let what = "an aborted task was not told so";
    books
        .faults
        .unless(was_aborted, what, format_args!("{answer:?}"));
    // Whether it was in time or not, it answers.
    drop(ends_or_not.await);
    books.tally.add(Count::Aborted, 2);
    let panics = tourbillon::spawn(async move {
        sleep(millis(2)).await;
        books.tally.count(Count::Panics);
        panic_any(Meant);
    });
    let is_panic = panics.await.is_err_and(|error| error.is_panic());
    books
        .faults
        .unless(is_panic, "a panic was not told to who joined", "");
}

async fn timeouts(books: Books) {
    let (start, wait) = (Instant::now(), millis(10));
    let elapsed = timeout(wait, std::future::pending::<()>()).await;
    check_passed(books, "a timeout elapsed early", start, wait);
    let what = "a timeout answered for what never came";
    books.faults.unless(elapsed.is_err(), what, "");
    let done = timeout(HOUR, sleep(millis(5))).await;
    let what = "a timeout elapsed that had an hour";
    books.faults.unless(done.is_ok(), what, "");
    books.tally.add(Count::Timeouts, 2);
}

async fn ticks(books: Books) {
    let (start, period) = (Instant::now(), MS + millis(3));
    let mut ticks = interval(period);
    // The first is at once.
    for _ in 0..4 {
        ticks.tick().await;
    }
    check_passed(books, "an interval ticked early", start, period * 3);
    books.tally.count(Count::Sleeps);
}

/// Timers that are found by a name, which is this task's own.
async fn names(books: Books, number: u64) {
    let runtime = tourbillon::Handle::current();
    let name = format!("soak {number}");
    let told = Arc::new(AtomicU64::new(0));
    let timers = [(); 3].map(|()| {
        let told = told.clone();
        let timer = Timer::after(HOUR).name(name.as_str());
        timer.start_with(move |how| {
            books.tally.count(Count::Runs);
            let was = matches!(how, Outcome::Cancelled);
            let what = "a named timer ended otherwise than by its name";
            books.faults.unless(was, what, format_args!("{how:?}"));
            told.fetch_add(1, Relaxed);
        })
    });
    let found = [
        runtime.count_named(&name),
        runtime.refresh_named(&name),
        runtime.cancel_named(&name, 1),
        runtime.count_named(&name),
        runtime.cancel_named(&name, usize::MAX),
        runtime.count_named(&name),
    ];
    let what = "a name found other timers than it has";
    books
        .faults
        .unless(found == [3, 3, 1, 2, 2, 0], what, format_args!("{found:?}"));
    for timer in &timers {
        // It comes too late, and waits until the callback has been told.
        let answer = timer.cancel_and_wait().await;
        let late = matches!(answer, Ok(Cancel::Over | Cancel::Running));
        let what = "a timer was cancelled that its name had cancelled";
        books.faults.unless(late, what, format_args!("{answer:?}"));
    }
    let told = told.load(Relaxed);
    books
        .faults
        .unless(told == 3, "a named timer was not told its end", told);
    books.tally.add(Count::Named, 3);
}

/// What a recurring callback owns.
struct Course {
    books: Books,
    start: Instant,
    period: Duration,
    runs: Arc<AtomicU64>,
}

impl Course {
    fn run(&self) {
        self.books.tally.count(Count::Runs);
        let runs = self.runs.fetch_add(1, Relaxed) + 1;
        // Its deadlines are on a grid, of which some may be skipped, and none comes early.
        let wait = self.period * u32::try_from(runs).unwrap_or(u32::MAX);
        check_passed(self.books, "a recurring timer ran early", self.start, wait);
    }
}

fn course(books: Books) -> (Course, Arc<AtomicU64>) {
    let runs = Arc::new(AtomicU64::new(0));
    let course = Course {
        books,
        start: Instant::now(),
        period: MS / 2 + millis(3),
        runs: runs.clone(),
    };
    books.tally.count(Count::Recurring);
    (course, runs)
}

/// A recurring timer that is cancelled: when that is over, it runs no more, and its callback is gone.
async fn recurs(books: Books) {
    let (course, runs) = course(books);
    let timer = tourbillon::every(course.period, move || course.run());
    sleep(millis(20)).await;
    let answer = timer.cancel_and_wait().await;
    let ended = matches!(answer, Ok(Cancel::Cancelled | Cancel::AfterRun));
    let what = "a recurring timer was not cancelled";
    books.faults.unless(ended, what, format_args!("{answer:?}"));
    let gone = Arc::strong_count(&runs) == 1;
    let what = "the callback of a recurring timer outlived it";
    books.faults.unless(gone, what, "");
    let ran = runs.load(Relaxed);
    sleep(millis(8)).await;
    let more = runs.load(Relaxed) - ran;
    let what = "a recurring timer ran after its cancellation was waited for";
    books.faults.unless(more == 0, what, more);
}

/// A recurring timer that has so many runs, one of which may panic.
async fn runs_out(books: Books) {
    let (course, runs) = course(books);
    let panics = fastrand::bool();
    Timer::every(course.period).times(5).start(move || {
        course.run();
        if panics && course.runs.load(Relaxed) == 3 {
            books.tally.count(Count::Panics);
            panic_any(Meant);
        }
    });
    let start = Instant::now();
    while Arc::strong_count(&runs) > 1 && start.elapsed() < PATIENCE {
        sleep(MS).await;
    }
    let what = "a recurring timer of 5 runs had others";
    let ran = runs.load(Relaxed);
    books.faults.unless(ran == 5, what, ran);
}

/// Timers of the other clocks: one comes due, one is cancelled. (The wall clock may be set meanwhile.)
async fn clocks(books: Books) {
    let told = Arc::new(AtomicU64::new(0));
    let tell = || {
        let told = told.clone();
        move |_| {
            books.tally.count(Count::Runs);
            told.fetch_add(1, Relaxed);
        }
    };
    let wall = Timer::at_wall(SystemTime::now() + HOUR).start_with(tell());
    let boot = Timer::after_boot(HOUR).start_with(tell());
    Timer::after_boot(millis(3)).start_with(tell());
    Timer::at_wall(SystemTime::now() + millis(3)).start_with(tell());
    sleep(millis(5)).await;
    let answers = (wall.cancel_and_wait().await, boot.cancel_and_wait().await);
    let what = "a timer of another clock was not cancelled";
    let well = answers == (Ok(Cancel::Cancelled), Ok(Cancel::Cancelled));
    books.faults.unless(well, what, format_args!("{answers:?}"));
    let start = Instant::now();
    while told.load(Relaxed) < 4 && start.elapsed() < PATIENCE {
        sleep(MS).await;
    }
    let told = told.load(Relaxed);
    let what = "timers of other clocks were not told once each";
    books.faults.unless(told == 4, what, told);
    books.tally.add(Count::Clocks, 4);
}

/// Jobs on blocking threads, one of which panics now and then.
async fn blocks(books: Books) {
    let number = fastrand::u64(..);
    let job = spawn_blocking(move || {
        thread::sleep(millis(3));
        number.rotate_left(7)
    });
    let answer = job.await;
    let well = matches!(answer, Ok(answer) if answer == number.rotate_left(7));
    let what = "a blocking job did not answer";
    books.faults.unless(well, what, format_args!("{answer:?}"));
    let job = spawn_blocking(|| panic_any(Meant));
    let is_panic = job.await.is_err_and(|error| error.is_panic());
    let what = "a blocking job's panic was not told to who joined";
    books.faults.unless(is_panic, what, "");
    books.tally.count(Count::Panics);
    books.tally.add(Count::Blocking, 2);
}

/// A task that blocks one worker after the other for a while, now and then: its timers are others' meanwhile.
pub(super) async fn block_workers(books: Books, workers: usize) {
    while !books.is_stopping() {
        sleep(150 * MS + millis(300)).await;
        let blocked = Timer::after(Duration::ZERO).on_worker(fastrand::usize(..workers));
        blocked.start(move || {
            books.tally.count(Count::Runs);
            books.tally.count(Count::Blocked);
            thread::sleep(5 * MS + millis(20));
        });
    }
}
