//! `TimerBuilder::while_alive`: a timer runs only while its value lives, and its callback gets the
//! value.

use std::{
    sync::{Arc, Weak, mpsc},
    time::{Duration, SystemTime},
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, alarm, eventually, on_worker, panics::panics, runtime, told::Told,
};
use tourbillon::{
    Timer,
    timer::{Cancel, Outcome, Status},
};

const SOON: Duration = Duration::from_millis(2);

#[test]
fn a_callback_gets_the_value_of_while_alive() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let alive = Arc::new(7_u64);
    let (sender, given) = mpsc::channel();
    let weak = || Arc::downgrade(&alive);
    let give = || {
        let sender = sender.clone();
        move |alive| sender.send(alive).unwrap()
    };
    let tell = || {
        let sender = sender.clone();
        move |how, alive: Option<Arc<u64>>| {
            assert_eq!(how, Outcome::Fired);
            sender.send(alive.expect("it is alive")).unwrap();
        }
    };
    let _ = Timer::after(SOON)
        .on(handle)
        .while_alive(weak())
        .start(give());
    let _ = Timer::after(SOON)
        .on(handle)
        .while_alive(weak())
        .start_with(tell());
    let wall = SystemTime::now() + SOON;
    let _ = Timer::at_wall(wall)
        .on(handle)
        .while_alive(weak())
        .start(give());
    let _ = Timer::after_boot(SOON)
        .on(handle)
        .while_alive(weak())
        .start_with(tell());
    let _ = Timer::every(SOON)
        .on(handle)
        .while_alive(weak())
        .times(2)
        .start(give());
    let every = Timer::every(SOON).on(handle).times(2).while_alive(weak());
    let _ = every.start_with(tell());
    let built = Timer::after(SOON)
        .on(handle)
        .while_alive(weak())
        .manual()
        .start(give());
    _ = built.start();
    drop(built);
    for _ in 0..9 {
        let given = given.recv_timeout(PATIENCE).expect("it runs");
        assert!(Arc::ptr_eq(&given, &alive));
    }
    eventually("none keeps it", || Arc::strong_count(&alive) == 1);
    eventually("none refers to it", || Arc::weak_count(&alive) == 0);
    // A callback that takes outcomes also gets the value with `Cancelled`.
    for recurring in [false, true] {
        let (sender, told) = mpsc::channel();
        let timer = if recurring {
            let every = Timer::every(HOUR).on(handle).while_alive(weak());
            every.start_with(move |how, alive| sender.send((how, alive)).unwrap())
        } else {
            let once = Timer::after(HOUR).on(handle).while_alive(weak());
            once.start_with(move |how, alive| sender.send((how, alive)).unwrap())
        };
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        let (how, given) = told.recv_timeout(PATIENCE).expect("it is told");
        assert_eq!(how, Outcome::Cancelled);
        assert!(Arc::ptr_eq(&given.expect("it is alive"), &alive));
    }
}

#[test]
fn a_timer_whose_value_is_dropped_ends_as_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let drops = Drops::new();
    let alive = Arc::new(());
    let weak = || Arc::downgrade(&alive);
    let (sender, told) = mpsc::channel();
    let token = || drops.token();
    let plain = || {
        let token = token();
        move |_| drop(token)
    };
    let tell = || {
        let (token, sender) = (token(), sender.clone());
        move |how, alive: Option<Arc<()>>| {
            let _ = &token;
            sender.send((how, alive.is_some())).unwrap();
        }
    };
    let timers = [
        Timer::after(SOON)
            .on(handle)
            .while_alive(weak())
            .start_with(tell()),
        Timer::every(SOON)
            .on(handle)
            .while_alive(weak())
            .manual()
            .start_with(tell()),
        Timer::every(SOON)
            .on(handle)
            .times(3)
            .while_alive(weak())
            .manual()
            .start_with(tell()),
        Timer::after(SOON)
            .on(handle)
            .while_alive(weak())
            .manual()
            .start(plain()),
        Timer::after(Duration::ZERO)
            .on(handle)
            .while_alive(Weak::new())
            .start_with({
                let tell = tell();
                move |how, never: Option<Arc<String>>| tell(how, never.map(|_| Arc::new(())))
            }),
    ];
    let boot = Timer::after_boot(SOON)
        .on(handle)
        .while_alive(weak())
        .manual()
        .start_with(tell());
    drop(alive);
    for timer in &timers {
        _ = timer.start();
    }
    _ = boot.start();
    // The first timer may have fired before the value was dropped.
    for _ in 0..5 {
        let (how, alive) = told.recv_timeout(PATIENCE).expect("it is told");
        assert_eq!(how == Outcome::Fired, alive);
        assert!(how != Outcome::Shutdown);
    }
    for timer in &timers[1..] {
        eventually("it is over", || {
            timer.status() == Status::Over(Outcome::Cancelled)
        });
    }
    eventually("it is over", || {
        boot.status() == Status::Over(Outcome::Cancelled)
    });
    eventually("the callbacks are dropped", || drops.count() == 6);
    assert_eq!(panics(&runtime), 0);
    drop(runtime);
    assert!(told.try_recv().is_err(), "nobody is told twice");
}

#[test]
fn a_value_dropped_during_a_run_ends_the_timer_after_it() {
    let _alarm = alarm();
    for fails in [false, true] {
        let runtime = runtime(1);
        let alive = Arc::new(());
        let (started, go_on, told) = (Gate::new(), Gate::new(), Told::new());
        let (gate, wait, note) = (started.clone(), go_on.clone(), told.clone());
        let every = Timer::every(Duration::from_micros(300)).on(runtime.handle());
        let every = every.while_alive(Arc::downgrade(&alive));
        let timer = every.start_with(move |how, alive| {
            note.note(how);
            if how == Outcome::Fired {
                gate.open();
                wait.wait();
                assert!(!fails, "on purpose");
            }
            // In the first run, this drops the last reference, as a panic does.
            drop(alive);
        });
        started.wait();
        drop(alive);
        assert!(timer.is_pending());
        go_on.open();
        eventually("it ends", || {
            timer.status() == Status::Over(Outcome::Cancelled)
        });
        assert_eq!(told.all(), [1, 1, 0]);
        assert_eq!(panics(&runtime), u64::from(fails));
    }
}

trait Greets: Send + Sync {
    fn greeting(&self) -> String;
}

struct Polite;

impl Greets for Polite {
    fn greeting(&self) -> String {
        "good day".to_owned()
    }
}

#[test]
fn while_alive_takes_unsized_values() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle();
    let object: Arc<dyn Greets> = Arc::new(Polite);
    let text: Arc<str> = "text".into();
    let slice: Arc<[u8]> = [1, 2, 3].into();
    let (sender, said) = mpsc::channel();
    let say = || {
        let sender = sender.clone();
        move |text: String| sender.send(text).unwrap()
    };
    let (one, two, three) = (say(), say(), say());
    let weak = Arc::downgrade(&object);
    let _ = Timer::after(SOON)
        .on(handle)
        .while_alive(weak.clone())
        .start(move |object| {
            one(object.greeting());
        });
    let every = Timer::every(2 * SOON).on(handle).times(1);
    let _ = every
        .while_alive(Arc::downgrade(&text))
        .start_with(move |_, text| {
            two(text.unwrap().to_string());
        });
    let boot = Timer::after_boot(3 * SOON).on(handle);
    let _ = boot
        .while_alive(Arc::downgrade(&slice))
        .start(move |slice| three(format!("{slice:?}")));
    let mut all: Vec<_> = (0..3)
        .map(|_| said.recv_timeout(PATIENCE).unwrap())
        .collect();
    all.sort();
    assert_eq!(all, ["[1, 2, 3]", "good day", "text"]);
    // Armed on a worker, in its context.
    let (done, ended) = mpsc::channel();
    on_worker(&runtime, move || {
        let every = Timer::every(SOON).while_alive(weak);
        let _ = every.start_with(move |how, object| done.send((how, object.is_some())).unwrap());
    });
    assert_eq!(ended.recv_timeout(PATIENCE), Ok((Outcome::Fired, true)));
    drop(object);
    eventually("it is told", || {
        ended.try_recv() == Ok((Outcome::Cancelled, false))
    });
}
