//! Every option of `TimerBuilder`, alone and combined.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::{Duration, Instant, SystemTime},
};

use crate::common::{
    Drops, HOUR, PATIENCE, alarm, eventually, message, on_worker, runtime,
    told::{Told, read_inboxes, worker_number},
};
use tourbillon::{
    ArmError, Handle, Runtime, Timer,
    time::BootInstant,
    timer::{Cancel, Outcome, Reset, Status},
};

const SOON: Duration = Duration::from_millis(2);

/// Evaluates `$start` once for each schedule, with its builder as `$builder`. Returns how often.
macro_rules! each_schedule {
    ($builder:ident => $start:expr) => {{
        let mut count = 0;
        {
            let $builder = Timer::after(SOON);
            $start;
            count += 1;
        }
        {
            let $builder = Timer::at(Instant::now() + SOON);
            $start;
            count += 1;
        }
        {
            let $builder = Timer::at_wall(SystemTime::now() + SOON);
            $start;
            count += 1;
        }
        {
            let $builder = Timer::after_boot(SOON);
            $start;
            count += 1;
        }
        {
            let $builder = Timer::at_boot(BootInstant::now() + SOON);
            $start;
            count += 1;
        }
        {
            let $builder = Timer::every(SOON).times(1);
            $start;
            count += 1;
        }
        count
    }};
}

/// Callbacks that report whether they ran in a runtime, on which worker, and when.
struct Callbacks {
    sender: mpsc::Sender<(bool, Option<usize>, Instant)>,
    receiver: mpsc::Receiver<(bool, Option<usize>, Instant)>,
}

impl Callbacks {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver }
    }

    fn make(&self) -> impl FnMut() + Send + 'static {
        let sender = self.sender.clone();
        move || {
            let inside = Handle::try_current().is_ok();
            let _ = sender.send((inside, worker_number(), Instant::now()));
        }
    }

    /// Checks that exactly `count` callbacks ran, all on workers and none before `earliest`.
    #[track_caller]
    fn ran(self, count: usize, earliest: Instant) {
        drop(self.sender);
        for _ in 0..count {
            let (inside, worker, ran) = self.receiver.recv_timeout(PATIENCE).expect("all run");
            assert!(inside && worker.is_some());
            assert!(ran >= earliest);
        }
        let more = self.receiver.recv_timeout(PATIENCE);
        assert_eq!(more, Err(mpsc::RecvTimeoutError::Disconnected));
    }
}

#[test]
fn every_schedule_runs_on_the_given_runtime() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (callbacks, earliest) = (Callbacks::new(), Instant::now() + SOON);
    let mut count = each_schedule!(builder => {
        let _detached = builder.on(runtime.handle()).start(callbacks.make());
    });
    count += each_schedule!(builder => {
        let mut f = callbacks.make();
        let _detached = builder.on(runtime.handle()).start_with(move |how| {
            assert_eq!(how, Outcome::Fired);
            f();
        });
    });
    count += each_schedule!(builder => {
        builder.on(runtime.handle()).try_start(callbacks.make()).unwrap();
    });
    count += each_schedule!(builder => {
        let mut f = callbacks.make();
        let told = move |how| {
            assert_eq!(how, Outcome::Fired);
            f();
        };
        builder.on(runtime.handle()).try_start_with(told).unwrap();
    });
    callbacks.ran(count, earliest);
}

#[test]
fn without_a_handle_a_timer_uses_the_current_runtime() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (callbacks, earliest) = (Callbacks::new(), Instant::now() + SOON);
    let mut count = {
        let _entered = runtime.enter();
        each_schedule!(builder => drop(builder.start(callbacks.make())))
    };
    count += runtime.block_on(async {
        each_schedule!(builder => drop(builder.try_start(callbacks.make()).unwrap()))
    });
    let theirs = Callbacks {
        sender: callbacks.sender.clone(),
        ..Callbacks::new()
    };
    count += on_worker(
        &runtime,
        move || each_schedule!(builder => drop(builder.start(theirs.make()))),
    );
    callbacks.ran(count, earliest);
}

#[test]
fn a_given_handle_takes_precedence_over_the_current_runtime() {
    let _alarm = alarm();
    let (inside, other) = (runtime(1), runtime(1));
    let _entered = inside.enter();
    let mut wall = Vec::new();
    for _ in 0..3 {
        let _detached = Timer::after(HOUR).on(other.handle()).start(|| ());
        wall.push(
            Timer::at_wall(SystemTime::now() + HOUR)
                .on(other.handle())
                .start(|| ()),
        );
    }
    eventually("they wait there", || {
        read_inboxes(other.handle());
        other.timers().pending() == 6
    });
    assert_eq!(other.timers().wall.pending, 3);
    assert_eq!(inside.timers().pending(), 0);
    assert_eq!(inside.metrics().total().armed(), 0);
}

/// Waits until each worker's shard has as many pending timers as `pending` says.
#[track_caller]
fn pending_is(runtime: &Runtime, pending: &[usize]) {
    eventually("they wait where they should", || {
        read_inboxes(runtime.handle());
        let timers = runtime.timers();
        let each: Vec<_> = timers.workers.iter().map(|worker| worker.pending).collect();
        each == pending
    });
}

#[test]
fn on_worker_puts_a_timer_on_that_workers_shard() {
    let _alarm = alarm();
    let runtime = runtime(3);
    let mut timers = Vec::new();
    for (worker, count) in [(0, 2), (1, 5), (2, 3)] {
        for i in 0..count {
            let handle = runtime.handle().clone();
            let start = move || {
                Timer::after(HOUR)
                    .on(&handle)
                    .on_worker(worker)
                    .start(|| ())
            };
            timers.push(if i == 0 {
                start()
            } else {
                on_worker(&runtime, start)
            });
        }
    }
    pending_is(&runtime, &[2, 5, 3]);
    let every = Timer::every(HOUR)
        .on(runtime.handle())
        .on_worker(1)
        .start(|| ());
    pending_is(&runtime, &[2, 6, 3]);
    // Timers that are moved or refreshed stay on their shard.
    assert_eq!(every.reset_after(2 * HOUR), Reset::Pending);
    assert_eq!(timers[0].reset_after(HOUR / 2), Reset::Pending);
    for timer in timers.drain(..) {
        assert_eq!(timer.refresh(), Reset::Pending);
    }
    pending_is(&runtime, &[2, 6, 3]);
    assert_eq!(every.cancel(), Cancel::Cancelled);
    pending_is(&runtime, &[2, 5, 3]);
}

#[test]
fn an_unknown_worker_is_refused() {
    let _alarm = alarm();
    let (drops, told) = (Drops::new(), Told::new());
    let runtime = runtime(2);
    let refused = Some(ArmError::NoSuchWorker {
        worker: 2,
        workers: 2,
    });
    let builder = || Timer::after(HOUR).on(runtime.handle()).on_worker(2);
    let token = drops.token();
    assert_eq!(builder().try_start(move || drop(token)).err(), refused);
    assert_eq!(drops.count(), 1);
    assert_eq!(builder().try_start_with(told.once()).err(), refused);
    let every = Timer::every(HOUR)
        .on(runtime.handle())
        .on_worker(usize::MAX);
    let error = every.try_start(|| ()).unwrap_err();
    assert!(
        error.to_string().contains(&usize::MAX.to_string()),
        "{error}"
    );
    let panic = catch_unwind(AssertUnwindSafe(|| builder().start(|| ())));
    let panic = panic.expect_err("start cannot refuse");
    assert!(message(&*panic).contains("no worker 2"));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        builder().manual().start_with(told.once())
    }));
    assert!(panic.is_err());
    assert_eq!((told.total(), runtime.timers().pending()), (0, 0));
    assert_eq!(runtime.metrics().total().armed(), 0);
}

#[test]
fn all_options_work_together() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let session = Arc::new(String::from("session"));
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    let once = {
        let sender = sender.clone();
        Timer::after(SOON)
            .on(runtime.handle())
            .on_worker(1)
            .name(String::from("all"))
            .tolerance(SOON)
            .jitter(SOON)
            .while_alive(Arc::downgrade(&session))
            .start_with(move |how, session| sender.send((how, session, Instant::now())).unwrap())
    };
    let (how, alive, ran) = receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!((how, alive.as_deref()), (Outcome::Fired, Some(&*session)));
    assert!(ran >= start + SOON);
    eventually("it is over", || {
        once.status() == Status::Over(Outcome::Fired)
    });

    // A recurring timer, with the options in another order.
    let start = Instant::now();
    let every = Timer::every(SOON)
        .while_alive(Arc::downgrade(&session))
        .times(3)
        .jitter(SOON / 4)
        .tolerance(SOON / 4)
        .name("all")
        .on_worker(0)
        .on(runtime.handle())
        .start_with(move |how, session| sender.send((how, session, Instant::now())).unwrap());
    for n in 1..=3 {
        let (how, alive, ran) = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!((how, alive.is_some()), (Outcome::Fired, true));
        assert!(ran >= start + n * SOON);
    }
    // The timer has run out: no further outcome comes, and the callback is dropped.
    assert!(receiver.recv_timeout(PATIENCE).is_err());
    eventually("it is over", || {
        every.status() == Status::Over(Outcome::Fired)
    });
    assert_eq!(
        (
            runtime.handle().count_named("all"),
            runtime.timers().pending()
        ),
        (0, 0)
    );

    let debug = format!("{:?}", Timer::every(HOUR).name("debugged").times(7));
    for part in ["TimerBuilder", "3600s", "debugged", "7"] {
        assert!(debug.contains(part), "{debug}");
    }
}

#[test]
fn a_handle_builds_timers_on_its_runtime() {
    let _alarm = alarm();
    let (one, other) = (runtime(1), runtime(1));
    // The thread is in the other runtime.
    let _entered = other.enter();
    let handle = one.handle();
    let (sender, ids) = mpsc::channel();
    let send = || {
        let sender = sender.clone();
        move || sender.send(Handle::current().id()).unwrap()
    };
    Timer::after(SOON).on(handle).start(send());
    Timer::at(Instant::now() + SOON).on(handle).start(send());
    Timer::every(SOON).on(handle).times(1).start(send());
    for _ in 0..3 {
        assert_eq!(ids.recv_timeout(PATIENCE), Ok(handle.id()));
    }
}
