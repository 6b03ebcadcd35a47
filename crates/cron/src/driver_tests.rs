use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tourbillon::{
    ArmError,
    timer::{Cancel, Outcome},
};

use crate::{
    builder::Cron,
    driver::{Alarm, Host, Ring, Run},
    error::CronError,
    handle::CronJob,
    job::Occurrence,
    policy::{Missed, Overlap},
};

const MINUTE: Duration = Duration::from_secs(60);

fn at(minute: u32) -> SystemTime {
    UNIX_EPOCH + minute * MINUTE
}

/// A host whose clock and workers the test controls.
#[derive(Clone)]
struct Fake(Arc<Mutex<World>>);

struct World {
    now: SystemTime,
    alarms: Vec<(u64, SystemTime, Ring)>,
    count: u64,
    runs: VecDeque<Run>,
    is_down: bool,
    /// If set, the next alarm rings at this time before `set_alarm` returns.
    hasty: Option<SystemTime>,
}

impl Fake {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(World {
            now: UNIX_EPOCH,
            alarms: Vec::new(),
            count: 0,
            runs: VecDeque::new(),
            is_down: false,
            hasty: None,
        })))
    }

    fn with<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }

    /// Sets the clock forward or back, and rings the alarms that are due.
    fn set_clock(&self, now: SystemTime) {
        self.with(|world| world.now = now);
        loop {
            let due = self.with(|world| {
                let due = world.alarms.iter().position(|(_, at, _)| *at <= now)?;
                Some(world.alarms.remove(due).2)
            });
            match due {
                Some(ring) => ring.ring(),
                None => return,
            }
        }
    }

    /// Performs one run like a worker. Returns `false` if there is none.
    fn work(&self) -> bool {
        let run = self.with(|world| world.runs.pop_front());
        run.map(|run| {
            let _ = catch_unwind(AssertUnwindSafe(|| run.run()));
        })
        .is_some()
    }

    fn shut_down(&self) {
        let left = self.with(|world| {
            world.is_down = true;
            let alarms = std::mem::take(&mut world.alarms);
            (alarms, std::mem::take(&mut world.runs))
        });
        drop(left);
    }

    fn alarms(&self) -> Vec<SystemTime> {
        self.with(|world| world.alarms.iter().map(|(_, at, _)| *at).collect())
    }

    fn start(&self, cron: &Cron, f: impl Fn(&Occurrence) + Send + Sync + 'static) -> CronJob {
        cron.launch(Box::new(self.clone()), || (), Arc::new(f))
            .unwrap()
    }
}

/// Cancels the alarm when it is dropped.
struct Set(Fake, u64);

impl Drop for Set {
    fn drop(&mut self) {
        let ring = self.0.with(|world| {
            let alarm = world.alarms.iter().position(|(id, ..)| *id == self.1)?;
            Some(world.alarms.remove(alarm))
        });
        drop(ring);
    }
}

impl Host for Fake {
    fn now(&self) -> SystemTime {
        self.with(|world| world.now)
    }

    fn set_alarm(&self, at: SystemTime, ring: Ring) -> Alarm {
        if self.with(|world| world.is_down) {
            drop(ring);
            return Box::new(());
        }
        let id = self.with(|world| {
            world.count += 1;
            world.alarms.push((world.count, at, ring));
            world.count
        });
        if let Some(now) = self.with(|world| world.hasty.take()) {
            self.set_clock(now);
        }
        Box::new(Set(self.clone(), id))
    }

    fn run(&self, run: Run) {
        let refused = self.with(|world| match world.is_down {
            true => Some(run),
            false => {
                world.runs.push_back(run);
                None
            }
        });
        drop(refused);
    }
}

/// Records each run, and the number of drops of the callback.
#[derive(Clone, Default)]
struct Notes {
    runs: Arc<Mutex<Vec<(SystemTime, u64)>>>,
    drops: Arc<AtomicU64>,
}

impl Notes {
    fn taker(&self) -> impl Fn(&Occurrence) + Send + Sync + 'static {
        struct Token(Arc<AtomicU64>);
        impl Drop for Token {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let (runs, token) = (self.runs.clone(), Token(self.drops.clone()));
        move |occurrence| {
            let _ = &token;
            let note = (occurrence.scheduled(), occurrence.missed());
            runs.lock().unwrap().push(note);
        }
    }

    fn take(&self) -> Vec<(SystemTime, u64)> {
        std::mem::take(&mut self.runs.lock().unwrap())
    }

    fn drops(&self) -> u64 {
        self.drops.load(SeqCst)
    }
}

fn minutely() -> Cron {
    Cron::parse("* * * * *").unwrap()
}

#[test]
fn it_runs_by_the_clock() {
    let (fake, notes) = (Fake::new(), Notes::default());
    let job = fake.start(&minutely(), notes.taker());
    assert_eq!((job.next_at(), fake.alarms()), (Some(at(1)), vec![at(1)]));
    assert_eq!(
        job.next_zoned().unwrap().to_string(),
        "1970-01-01T00:01:00+00:00[UTC]"
    );
    fake.set_clock(at(1));
    assert_eq!(
        (job.num_running(), job.runs()),
        (1, 0),
        "handed to a worker"
    );
    assert_eq!(fake.alarms(), [at(2)], "the next is armed before the run");
    assert!(fake.work());
    assert_eq!((job.is_running(), job.runs()), (false, 1));
    // Forward, back, and forward again.
    fake.set_clock(at(10));
    fake.work();
    fake.set_clock(at(5));
    fake.set_clock(at(10) + MINUTE / 2);
    assert_eq!(fake.alarms(), [at(11)]);
    fake.set_clock(at(11));
    fake.work();
    assert_eq!(notes.take(), [(at(1), 0), (at(10), 8), (at(11), 0)]);
    assert_eq!((job.skipped(), job.outcome()), (8, None));
    drop(job);
    fake.set_clock(at(12));
    fake.work();
    assert_eq!(notes.take(), [(at(12), 0)], "it was detached");
}

#[test]
fn a_panic_ends_neither_the_job_nor_its_queue() {
    for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Both] {
        let fake = Fake::new();
        let cron = minutely().overlap(overlap).missed(Missed::All);
        let job = fake.start(&cron, |_| panic!("as the test wants it"));
        fake.set_clock(at(3));
        for _ in 0..3 {
            assert!(fake.work());
        }
        assert!(!fake.work());
        assert_eq!((job.runs(), job.is_running()), (3, false));
        fake.set_clock(at(4));
        assert!(job.is_running());
    }
}

#[test]
fn cancelling_drops_the_callback_and_the_alarm() {
    let (fake, notes) = (Fake::new(), Notes::default());
    let job = fake.start(&minutely(), notes.taker());
    assert_eq!(job.cancel(), Cancel::Cancelled);
    assert_eq!((notes.drops(), fake.alarms()), (1, vec![]));
    assert_eq!((job.cancel(), job.next_at()), (Cancel::Over, None));
    assert_eq!(job.outcome(), Some(Outcome::Cancelled));

    // After a run was handed over, before it begins.
    let notes = Notes::default();
    let job = fake.start(&minutely(), notes.taker());
    fake.set_clock(at(1));
    assert_eq!(job.cancel(), Cancel::AfterRun);
    assert_eq!(notes.drops(), 1);
    assert!(fake.work());
    assert_eq!(
        (notes.take(), job.runs(), job.is_running()),
        (vec![], 0, false)
    );
}

#[test]
fn a_run_may_cancel_its_job() {
    let (fake, notes) = (Fake::new(), Notes::default());
    let slot = Arc::new(Mutex::new(None::<CronJob>));
    let (own, note) = (slot.clone(), notes.taker());
    let cron = minutely().missed(Missed::All);
    let job = fake.start(&cron, move |occurrence| {
        note(occurrence);
        let answer = own.lock().unwrap().as_ref().unwrap().cancel();
        assert_eq!(answer, Cancel::AfterRun);
    });
    *slot.lock().unwrap() = Some(job);
    fake.set_clock(at(3));
    while fake.work() {}
    assert_eq!((notes.take(), notes.drops()), (vec![(at(1), 0)], 1));
}

#[test]
fn guards_cancel_and_detach() {
    let (fake, notes) = (Fake::new(), Notes::default());
    drop(fake.start(&minutely(), notes.taker()).cancel_on_drop());
    assert_eq!((notes.drops(), fake.alarms()), (1, vec![]));
    let guard = fake.start(&minutely(), notes.taker()).cancel_on_drop();
    assert_eq!(guard.next_at(), Some(at(1)));
    drop(guard.detach());
    assert_eq!((notes.drops(), fake.alarms()), (1, vec![at(1)]));
}

#[test]
fn a_shutdown_ends_the_job_wherever_it_is() {
    for has_run_waiting in [false, true] {
        let (fake, notes) = (Fake::new(), Notes::default());
        let job = fake.start(&minutely(), notes.taker());
        if has_run_waiting {
            fake.set_clock(at(1));
        }
        fake.shut_down();
        assert_eq!(job.outcome(), Some(Outcome::Shutdown));
        assert_eq!((job.next_at(), job.is_running()), (None, false));
        assert_eq!((notes.drops(), job.cancel()), (1, Cancel::Over));
    }
}

#[test]
fn jobs_that_cannot_start_are_refused() {
    let (fake, notes) = (Fake::new(), Notes::default());
    let start = |cron: &str| {
        let cron = Cron::parse(cron).unwrap();
        let started = cron.try_launch(Box::new(fake.clone()), || (), Arc::new(notes.taker()));
        started.unwrap_err()
    };
    let pattern = "0 0 30 2 *".to_owned();
    assert_eq!(start(&pattern), CronError::Never { pattern });
    fake.shut_down();
    assert_eq!(start("* * * * *"), CronError::Arm(ArmError::Shutdown));
    assert_eq!(notes.drops(), 2);
    let over = fake.start(&minutely(), notes.taker());
    assert_eq!(over.outcome(), Some(Outcome::Shutdown));
    assert_eq!(notes.drops(), 3);
}

#[test]
fn an_alarm_may_ring_before_it_is_known() {
    let (fake, notes) = (Fake::new(), Notes::default());
    fake.with(|world| world.hasty = Some(at(1)));
    let job = fake.start(&minutely(), notes.taker());
    assert_eq!(
        fake.alarms(),
        [at(2)],
        "and is not taken for the one that follows it"
    );
    // The alarm is too early, because the clock was put back: it is armed again.
    fake.with(|world| world.hasty = Some(at(0)));
    fake.set_clock(at(2));
    fake.set_clock(at(3));
    fake.set_clock(at(4));
    while fake.work() {}
    assert_eq!(fake.alarms(), [at(5)]);
    assert_eq!(job.cancel(), Cancel::Cancelled);
    assert_eq!((fake.alarms(), notes.drops()), (vec![], 1));
}

#[test]
fn cancelling_races_with_alarms_and_runs() {
    let begun = Instant::now();
    for round in 0..200 {
        // On a loaded machine the threads may have to wait for a core in each round.
        if begun.elapsed() > 5 * MINUTE {
            break;
        }
        let (fake, notes) = (Fake::new(), Notes::default());
        let overlap = [Overlap::Skip, Overlap::Queue, Overlap::Both][round % 3];
        let cron = minutely().overlap(overlap);
        let job = fake.start(&cron, notes.taker());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for minute in 1..50 {
                    fake.set_clock(at(minute));
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while fake.work() || !is_over.load(SeqCst) {
                        thread::yield_now();
                    }
                });
            }
            for _ in 0..round {
                thread::yield_now();
            }
            match job.cancel() {
                Cancel::Cancelled => assert_eq!(notes.drops(), 1),
                Cancel::AfterRun => {}
                other => panic!("{other:?}"),
            }
            is_over.store(true, SeqCst);
        });
        while fake.work() {}
        let ran = notes.take();
        assert_eq!((ran.len() as u64, job.num_running()), (job.runs(), 0));
        assert_eq!((fake.alarms(), notes.drops()), (vec![], 1));
    }
}
