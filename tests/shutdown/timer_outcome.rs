//! Every kind of shutdown delivers one outcome to each timer, at once on workers that are not
//! blocked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, SystemTime},
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, alarm, eventually, runtime,
    told::{Told, read_inboxes, stick_a_worker, worker_number},
};
use tourbillon::{
    Handle, Runtime, Timer,
    timer::{Cancel, Outcome, Status},
};

/// Arms timers of each kind on each worker. Returns how many.
fn arm(handle: &Handle, workers: usize, told: &Told) -> usize {
    let mut count = 0;
    for _ in 0..20 {
        for worker in 0..workers {
            let once = Timer::after(HOUR).on(handle).on_worker(worker);
            let _detached = once.name("ends").start_with(told.once());
            let every = Timer::every(HOUR).on(handle).on_worker(worker);
            let note = told.clone();
            let _detached = every.start_with(move |how| note.note(how));
            count += 2;
        }
        let wall = Timer::at_wall(SystemTime::now() + HOUR).on(handle);
        let _detached = wall.name("ends").start_with(told.once());
        let _detached = Timer::after_boot(HOUR).on(handle).start_with(told.once());
        count += 2;
    }
    count
}

/// A way to end a runtime.
type End = fn(Runtime);

const ENDS: [End; 4] = [
    |runtime| drop(runtime),
    |runtime| runtime.shutdown_background(),
    |runtime| assert!(runtime.shutdown_timeout(PATIENCE)),
    |runtime| _ = runtime.shutdown_timeout(Duration::ZERO),
];

#[test]
fn every_kind_of_shutdown_delivers_an_outcome_to_every_timer() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        for end in ENDS {
            let runtime = runtime(workers);
            let told = Told::new();
            let count = arm(runtime.handle(), workers, &told);
            if workers == 2 {
                read_inboxes(runtime.handle());
            }
            let handle = runtime.handle().clone();
            end(runtime);
            eventually("all are told", || told.total() >= count);
            assert_eq!(told.all(), [0, 0, count]);
            eventually("it has ended", || handle.metrics().num_workers() == 0);
            assert_eq!(handle.timers().named, []);
            assert_eq!(handle.count_named("ends"), 0);
            assert_eq!(told.total(), count);
        }
    }
}

#[test]
fn a_runtime_dropped_by_a_worker_delivers_all_outcomes() {
    let _alarm = alarm();
    let (outer, inner) = (runtime(1), runtime(2));
    let told = Told::new();
    let count = arm(inner.handle(), 2, &told);
    crate::common::on_worker(&outer, move || drop(inner));
    eventually("all are told", || told.all() == [0, 0, count]);

    // The callback of a cancelled timer drops its own runtime.
    let own = Arc::new(std::sync::Mutex::new(Some(outer)));
    let told = Told::new();
    let (place, note) = (own.clone(), told.clone());
    let guard = own.lock().unwrap();
    let handle = guard.as_ref().unwrap().handle().clone();
    let count = arm(&handle, 1, &told);
    let last = Timer::after(HOUR).on(&handle).start_with(move |how| {
        note.note(how);
        drop(place.lock().unwrap().take());
    });
    assert_eq!(last.cancel(), Cancel::Cancelled);
    drop(guard);
    eventually("all are told", || told.all() == [0, 1, count]);
}

#[test]
fn a_blocked_worker_delays_no_outcome_of_other_workers() {
    let _alarm = alarm();
    let ends: [End; 3] = [
        |runtime| runtime.shutdown_background(),
        |runtime| assert!(!runtime.shutdown_timeout(Duration::from_millis(1))),
        |runtime| _ = thread::spawn(move || drop(runtime)),
    ];
    for end in ends {
        let runtime = runtime(3);
        let told = Told::new();
        let (stuck, release) = stick_a_worker(runtime.handle());
        let count = arm(runtime.handle(), 3, &told);
        // This timer may still be in the inbox of the blocked worker.
        let (sender, where_told) = mpsc::channel();
        let its = Timer::after(HOUR).on(runtime.handle()).on_worker(stuck);
        let its = its.start_with(move |how| sender.send((how, worker_number())).unwrap());
        let handle = runtime.handle().clone();
        end(runtime);
        // All outcomes are delivered while the worker is stuck, also those of its own timers.
        eventually("all are told", || told.total() >= count);
        assert_eq!(told.all(), [0, 0, count]);
        let (how, worker) = where_told.recv_timeout(PATIENCE).expect("it is told");
        assert_eq!(how, Outcome::Shutdown);
        assert!(worker.is_some_and(|worker| worker != stuck));
        eventually("it is over", || {
            its.status() == Status::Over(Outcome::Shutdown)
        });
        assert!(!release.is_open());
        assert_eq!(handle.metrics().num_workers(), 3, "it has not ended");

        // A timer that is started now is over immediately. Its callback takes the outcome at the
        // latest when the runtime has ended.
        let late = Told::new();
        let timer = Timer::after(HOUR).on(&handle).start_with(late.once());
        assert_eq!(timer.cancel(), Cancel::Over);
        let drops = Drops::new();
        let token = drops.token();
        let plain = Timer::after(HOUR).on(&handle).start(move || drop(token));
        assert_eq!(
            (plain.status(), drops.count()),
            (Status::Over(Outcome::Shutdown), 1)
        );
        release.open();
        eventually("it ends", || handle.metrics().num_workers() == 0);
        eventually("it is told", || late.total() > 0);
        assert_eq!(late.all(), [0, 0, 1]);
        assert_eq!(told.all(), [0, 0, count], "nobody is told twice");
    }
}

#[test]
fn callbacks_can_use_the_runtime_during_shutdown() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (told, late) = (Told::new(), Told::new());
    for i in 0..100 {
        let (told, late) = (told.clone(), late.clone());
        let handle = runtime.handle().clone();
        let builder = Timer::after(HOUR).on(runtime.handle()).name("old");
        let _detached = builder.start_with(move |how| {
            told.note(how);
            // The callback arms timers in its context and by the handle, cancels, takes a snapshot
            // and spawns.
            let new = Timer::after(Duration::ZERO).name("new");
            let _detached = new.start_with(late.once());
            let new = Timer::every(HOUR).on(&handle).name("new");
            let note = late.clone();
            let _detached = new.start_with(move |how| note.note(how));
            let _ = (handle.cancel_named("old", 1), handle.timers());
            tourbillon::spawn(async {});
            assert!(i % 10 != 0, "on purpose");
        });
    }
    drop(runtime);
    let [fired, cancelled, shut_down] = told.all();
    assert_eq!((fired, cancelled + shut_down), (0, 100));
    // Callbacks that take `Shutdown` start timers, too: these are dropped without an outcome.
    assert_eq!(late.all(), [0, 0, 2 * cancelled]);
}

/// Arms a timer that arms itself again whatever its outcome is, like a careless retry.
fn again(handle: &Handle, runs: &Arc<AtomicUsize>) {
    let (handle, runs) = (handle.clone(), runs.clone());
    let builder = Timer::after(Duration::from_millis(1)).on(&handle.clone());
    let _detached = builder.start_with(move |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        again(&handle, &runs);
    });
}

#[test]
fn a_callback_that_always_rearms_itself_does_not_block_shutdown() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let runs = Arc::new(AtomicUsize::new(0));
    again(&handle, &runs);
    eventually("it runs again", || runs.load(Ordering::SeqCst) > 2);
    assert!(runtime.shutdown_timeout(PATIENCE));
    // After the runtime has ended, the callback runs once, and not for ever.
    let before = runs.load(Ordering::SeqCst);
    again(&handle, &runs);
    assert_eq!(runs.load(Ordering::SeqCst), before + 1);
}

#[test]
fn a_timer_running_at_shutdown_gets_its_own_outcome() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (once, every) = (Told::new(), Told::new());
    let go_on = Gate::new();
    let (sender, runs) = mpsc::channel();
    let run = |told: &Told| {
        let (told, go_on, sender) = (told.clone(), go_on.clone(), sender.clone());
        move |how| {
            told.note(how);
            if how == Outcome::Fired {
                sender.send(worker_number()).unwrap();
                go_on.wait();
            }
        }
    };
    let recurring = Timer::every(Duration::from_millis(1)).on(runtime.handle());
    let recurring = recurring.start_with(run(&every));
    let busy = runs.recv_timeout(PATIENCE).expect("it runs");
    let other = 1 - busy.expect("on a worker");
    let single = Timer::after(Duration::ZERO).on(runtime.handle());
    let single = single.on_worker(other).start_with(run(&once));
    runs.recv_timeout(PATIENCE).expect("it runs");
    let end = thread::spawn(move || drop(runtime));
    // It makes no difference whether the shutdown has begun by then.
    thread::sleep(Duration::from_millis(5));
    assert_eq!((single.cancel(), once.all()), (Cancel::Running, [1, 0, 0]));
    assert_eq!(every.all(), [1, 0, 0]);
    go_on.open();
    end.join().unwrap();
    assert_eq!(once.all(), [1, 0, 0]);
    assert_eq!(single.status(), Status::Over(Outcome::Fired));
    let [fired, cancelled, shut_down] = every.all();
    assert!(fired >= 1 && (cancelled, shut_down) == (0, 1));
    assert_eq!(recurring.status(), Status::Over(Outcome::Shutdown));
}
