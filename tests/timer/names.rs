//! Named timers: a name finds a timer for as long as the timer can be cancelled, and no longer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::common::{
    Gate, HOUR, Random, alarm, eventually, panics::panics, runtime, timers::assert_over, told::Told,
};
use tourbillon::{
    Timer,
    timer::{Cancel, Outcome, Reset, Status},
};

#[test]
fn any_number_of_names_and_any_text_work() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let mut timers = Vec::new();
    for i in 0..3_000 {
        let builder = Timer::after(HOUR).on(runtime.handle());
        timers.push(builder.name(format!("session {i}")).start(|| ()));
    }
    for odd in ["", " ", "\0", "é", "session 1 ", "SESSION 1"] {
        assert_eq!(runtime.handle().count_named(odd), 0);
        timers.push(
            Timer::after(HOUR)
                .on(runtime.handle())
                .name(odd)
                .start(|| ()),
        );
        assert_eq!(runtime.handle().count_named(odd), 1);
    }
    let long = "x".repeat(1 << 20);
    timers.push(
        Timer::every(HOUR)
            .on(runtime.handle())
            .name(&long)
            .start(|| ()),
    );
    let named = runtime.timers().named;
    assert_eq!(named.len(), timers.len());
    assert!(named.is_sorted() && named.iter().all(|(_, count)| *count == 1));
    for i in (0..3_000).rev() {
        assert_eq!(
            runtime.handle().cancel_all_named(&format!("session {i}")),
            1
        );
    }
    assert_eq!(runtime.handle().cancel_named(&long, 1), 1);
    for odd in ["", " ", "\0", "é", "session 1 ", "SESSION 1"] {
        assert_eq!(runtime.handle().cancel_all_named(odd), 1);
    }
    assert_eq!(runtime.timers().named, []);
    assert!(timers.iter().all(|timer| !timer.is_pending()));
}

#[test]
fn refresh_named_refreshes_all_timers_with_a_delay() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let builder = || Timer::after(HOUR).on(runtime.handle()).name("alive");
    let timers: Vec<_> = (0..100).map(|_| builder().start(|| ())).collect();
    let other = Timer::after(HOUR)
        .on(runtime.handle())
        .name("other")
        .start(|| ());
    let earlier = Instant::now();
    for timer in timers.iter().chain([&other]) {
        assert_eq!(timer.reset_at(earlier + HOUR / 2), Reset::Pending);
    }
    let every = Timer::every(2 * HOUR).on(runtime.handle()).name("alive");
    let every = every.start(|| ());
    let wall_time = SystemTime::now() + HOUR;
    let wall = Timer::at_wall(wall_time).on(runtime.handle()).name("alive");
    let wall = wall.start(|| ());
    let boot = Timer::after_boot(HOUR)
        .on(runtime.handle())
        .name("alive")
        .start(|| ());
    let boot_time = boot.deadline();
    let built = builder().manual().start(|| ());
    assert_eq!(timers[0].cancel(), Cancel::Cancelled);
    assert_eq!(runtime.handle().count_named("alive"), 103);

    let before = Instant::now();
    assert_eq!(runtime.handle().refresh_named("alive"), 100);
    let after = Instant::now();
    // For a thread that reads the clock many times in a row, the clock may be a few µs ahead.
    let after = after + Duration::from_micros(3);
    for timer in &timers[1..] {
        let deadline = timer.deadline().unwrap().into_std();
        assert!(deadline >= before + HOUR && deadline <= after + HOUR);
    }
    let deadline = every.deadline().unwrap().into_std();
    assert!(deadline >= before + 2 * HOUR && deadline <= after + 2 * HOUR);
    // All other timers keep their deadlines.
    assert_eq!(other.deadline().unwrap().into_std(), earlier + HOUR / 2);
    assert_eq!(wall.deadline(), Some(wall_time));
    assert_eq!(boot.deadline(), boot_time);
    assert_eq!(
        (built.status(), timers[0].deadline()),
        (Status::NotStarted, None)
    );
    assert_eq!(runtime.handle().refresh_named("nobody"), 0);
    // Timers of all clocks share the name, and `max` counts them all.
    assert_eq!(runtime.handle().cancel_named("alive", 102), 102);
    assert_eq!(runtime.handle().count_named("alive"), 1);
    assert_eq!(runtime.handle().cancel_all_named("alive"), 1);
    assert!(!wall.is_pending() && !boot.is_pending());
}

/// `refresh_named` walks over many timers. Others are started and refreshed during the walk.
#[test]
fn timers_started_during_refresh_named_are_never_early() {
    /// A guard that ends the walks, also if an assertion fails.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let _alarm = alarm();
    let runtime = runtime(1);
    let named = |delay| Timer::after(delay).on(runtime.handle()).name("n");
    let many: Vec<_> = (0..5_000).map(|_| named(HOUR).start(|| ())).collect();
    // Built timers have a name already. They are built last, so the walk reaches them last.
    let delay = Duration::from_millis(20);
    let built: Vec<_> = (0..100)
        .map(|_| {
            let (sender, fired) = mpsc::channel();
            let timer = named(delay)
                .manual()
                .start(move || sender.send(Instant::now()).unwrap());
            (timer, fired)
        })
        .collect();
    let mut dues = Vec::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                runtime.handle().refresh_named("n");
            }
        });
        let _ends = Ends(&over);
        for (timer, _) in &built {
            thread::sleep(Duration::from_micros(200));
            dues.push(Instant::now() + delay);
            timer.start();
        }
        for timer in &many[4_500..] {
            thread::sleep(Duration::from_micros(20));
            let due = Instant::now() + HOUR;
            timer.refresh();
            thread::yield_now();
            let deadline = timer.deadline().unwrap().into_std();
            assert!(deadline >= due, "refreshed by the past");
        }
    });
    for ((_, fired), due) in built.into_iter().zip(dues) {
        assert!(fired.recv().unwrap() >= due, "early");
    }
}

#[test]
fn a_name_disappears_when_its_timers_end() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let told = Told::new();
    let gone = |what| {
        eventually(what, || handle.timers().named.is_empty());
        assert_eq!(handle.count_named("gone"), 0);
        assert_eq!(handle.cancel_all_named("gone"), 0);
    };
    let after = |delay| Timer::after(delay).on(&handle).name("gone");
    // Timers that fired, with and without outcomes, and one that panicked.
    let _detached = after(Duration::ZERO).start(|| ());
    let _detached = after(Duration::ZERO).start_with(told.once());
    let _detached = after(Duration::ZERO).start(|| panic!("on purpose"));
    let _detached = Timer::at_wall(SystemTime::now())
        .on(&handle)
        .name("gone")
        .start(|| ());
    let every = Timer::every(Duration::from_micros(100)).on(&handle);
    let _detached = every.name("gone").times(3).start(|| ());
    gone("all are gone that fired");
    // Cancelled timers.
    assert_eq!(after(HOUR).start(|| ()).cancel(), Cancel::Cancelled);
    assert_eq!(
        after(HOUR).start_with(told.once()).cancel(),
        Cancel::Cancelled
    );
    let boot = Timer::after_boot(HOUR)
        .on(&handle)
        .name("gone")
        .start(|| ());
    assert_eq!(boot.cancel(), Cancel::Cancelled);
    drop(after(HOUR).start(|| ()).cancel_on_drop());
    gone("all are gone that were cancelled");
    // Timers that were never started.
    drop(after(HOUR).manual().start(|| ()));
    drop(after(HOUR).manual().start_with(told.once()));
    drop(
        Timer::after_boot(HOUR)
            .on(&handle)
            .name("gone")
            .manual()
            .start(|| ()),
    );
    gone("all are gone that were dropped");
    // A timer whose `while_alive` value is dropped.
    let alive = Arc::new(());
    let _detached = after(Duration::from_millis(1))
        .while_alive(Arc::downgrade(&alive))
        .start(|_| unreachable!());
    drop(alive);
    gone("all are gone that died");
    // Timers that the shutdown ends.
    let kept = [
        after(HOUR).start(|| ()),
        after(HOUR).start_with(told.once()),
    ];
    let wall = Timer::at_wall(SystemTime::now() + HOUR)
        .on(&handle)
        .name("gone");
    let _detached = wall.start(|| ());
    assert_eq!(handle.count_named("gone"), 3);
    let unstarted = after(HOUR).manual().start(|| ());
    drop(runtime);
    assert_eq!(
        handle.timers().named,
        [("gone".to_owned(), 1)],
        "it was not started"
    );
    assert_eq!(handle.cancel_named("gone", 2), 1);
    gone("all are gone that were shut down");
    assert_eq!(unstarted.status(), Status::Over(Outcome::Cancelled));
    kept.iter()
        .for_each(|timer| assert_over(timer, Outcome::Shutdown));
    assert_eq!(told.all(), [1, 1, 1]);
}

#[test]
fn a_running_timer_is_found_by_name_if_it_recurs() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (started, go_on) = (Gate::new(), Gate::new());
    let hold = || {
        let (started, go_on) = (started.clone(), go_on.clone());
        move || {
            started.open();
            go_on.wait();
        }
    };
    let every = Timer::every(Duration::from_micros(100)).on(runtime.handle());
    let every = every.name("runs").start(hold());
    started.wait();
    assert_eq!(runtime.handle().refresh_named("runs"), 1, "after this run");
    assert_eq!(runtime.handle().cancel_all_named("runs"), 1);
    assert_eq!(every.status(), Status::Running { last: true });
    assert_eq!(
        (
            runtime.handle().count_named("runs"),
            runtime.handle().cancel_named("runs", 1)
        ),
        (0, 0)
    );
    go_on.open();
    eventually("it is over", || {
        every.status() == Status::Over(Outcome::Cancelled)
    });

    let (started, go_on) = (Gate::new(), Gate::new());
    let (gate, wait) = (started.clone(), go_on.clone());
    let once = Timer::after(Duration::ZERO)
        .on(runtime.handle())
        .name("runs");
    let once = once.start(move || {
        gate.open();
        wait.wait();
    });
    started.wait();
    assert_eq!(runtime.handle().refresh_named("runs"), 0, "too late");
    assert_eq!(runtime.handle().cancel_all_named("runs"), 0, "too late");
    go_on.open();
    eventually("it is over", || {
        once.status() == Status::Over(Outcome::Fired)
    });
    assert_eq!(runtime.handle().count_named("runs"), 0);
}

#[test]
fn concurrent_operations_on_names_keep_the_counts_balanced() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let told = Told::new();
    let (armed, by_name, by_handle) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let stop = AtomicBool::new(false);
    let name = |random: &mut Random| format!("n{}", random.below(7));
    thread::scope(|scope| {
        for seed in 1..=2 {
            let (runtime, told, armed, by_handle) = (&runtime, &told, &armed, &by_handle);
            let stop = &stop;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut kept = Vec::new();
                for i in 0..6_000_u64 {
                    let delay = match random.below(3) {
                        0 => HOUR,
                        _ => Duration::from_micros(random.below(2_000)),
                    };
                    let name = name(&mut random);
                    if i % 8 == 0 {
                        let boot = Timer::after_boot(delay).on(runtime.handle()).name(name);
                        let _detached = boot.start_with(told.once());
                    } else {
                        let timer = Timer::after(delay).on(runtime.handle()).name(name);
                        kept.push(timer.start_with(told.once()));
                    }
                    armed.fetch_add(1, Ordering::SeqCst);
                    if random.below(4) == 0 && !kept.is_empty() {
                        let at = random.below(kept.len() as u64) as usize;
                        if kept.swap_remove(at).cancel() == Cancel::Cancelled {
                            by_handle.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
                stop.store(true, Ordering::SeqCst);
            });
        }
        for seed in 3..=4 {
            let (runtime, by_name, stop) = (&runtime, &by_name, &stop);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !stop.load(Ordering::SeqCst) {
                    let name = name(&mut random);
                    let max = random.below(20) as usize;
                    let cancelled = runtime.handle().cancel_named(&name, max);
                    assert!(cancelled <= max);
                    by_name.fetch_add(cancelled, Ordering::SeqCst);
                    runtime.handle().refresh_named(&name);
                    let _ = (runtime.handle().count_named(&name), runtime.timers());
                    thread::yield_now();
                }
            });
        }
    });
    let mut left = 0;
    for n in 0..7 {
        left += runtime.handle().cancel_all_named(&format!("n{n}"));
    }
    let [armed, by_name, by_handle] = [armed, by_name, by_handle].map(AtomicUsize::into_inner);
    assert_eq!(armed, 12_000);
    eventually("all are told", || told.total() >= armed);
    assert_eq!(told.count(Outcome::Cancelled), by_name + by_handle + left);
    assert_eq!((told.total(), told.count(Outcome::Shutdown)), (armed, 0));
    eventually("no name is left", || runtime.timers().named.is_empty());
    assert_eq!(panics(&runtime), 0);
}
