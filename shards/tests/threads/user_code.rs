//! User code that panics, or waits for itself, while others depend on what comes after it.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::common::{Scripted, expire};
use tourbillon_shards::{
    Cancel, Due, Flow, InsideCallback, Name, Names, Options, Outcome, Ran, Shard, Started, Status,
    Timer,
};

/// A waker that counts its calls, and that panics on request.
struct Counts(AtomicUsize, bool);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(!self.1, "this waker panics");
    }
}

fn counts(panics: bool) -> (Arc<Counts>, Waker) {
    let counts = Arc::new(Counts(AtomicUsize::new(0), panics));
    (counts.clone(), counts.into())
}

/// Calls its function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn due(home: &Shard<Scripted>, now: u64) -> Due<Scripted> {
    let mut due = Vec::new();
    assert_eq!(home.expire(now, usize::MAX, &mut due).count, 1);
    due.pop().expect("one is due")
}

#[test]
fn a_waker_that_panics_does_not_lose_other_wake_ups() {
    let home = Scripted::shard(true);
    let wakers = [counts(true), counts(false), counts(true), counts(false)];
    let own: Arc<Mutex<Option<Arc<Timer<_>>>>> = Arc::default();
    let cancelled = own.clone();
    let options = Options {
        recurring: true,
        ..Options::default()
    };
    let waits = Arc::new(Mutex::new(Vec::new()));
    let (waiting, all) = (waits.clone(), wakers.each_ref().map(|it| it.1.clone()));
    let timer = Timer::build(&home, 5, options, move |_| {
        let timer = cancelled.lock().unwrap().take().expect("it runs once");
        assert_eq!(timer.cancel(), Cancel::AfterRun);
        let (timer, waiting, all) = (timer.clone(), waiting.clone(), all.clone());
        // On another thread, since a callback cannot wait for its own end.
        let waiters = std::thread::spawn(move || {
            for waker in &all {
                let mut ended = Box::pin(timer.ended());
                let poll = ended.as_mut().poll(&mut Context::from_waker(waker));
                assert_eq!(poll, Poll::Pending);
                waiting.lock().unwrap().push(ended);
            }
        });
        waiters.join().unwrap();
        Flow::Continue(())
    });
    assert_eq!(timer.start(0), Started::Pending);
    *own.lock().unwrap() = Some(Arc::new(timer));

    let due = due(&home, 5);
    let run = catch_unwind(AssertUnwindSafe(|| due.run(|| 5)));
    assert!(run.is_err(), "the wakers' panic is not swallowed");
    for (waker, _) in &wakers {
        assert_eq!(waker.0.load(Ordering::Relaxed), 1);
    }
    waits.lock().unwrap().clear();
    home.close();
}

#[test]
fn a_callback_that_panics_when_dropped_does_not_stop_other_cancels() {
    let home = Scripted::shard(true);
    let names = Arc::new(Names::new(1));
    let timers: Vec<_> = (0..5)
        .map(|i| {
            let options = Options {
                name: Some(Name::new(&names, "n")),
                ..Options::default()
            };
            let bomb = OnDrop(move || assert_ne!(i, 2, "this one panics"));
            let timer = Timer::build(&home, 5, options, move |_| {
                let _ = &bomb;
                Flow::Continue(())
            });
            assert_eq!(timer.start(0), Started::Pending);
            timer
        })
        .collect();
    let cancel = catch_unwind(AssertUnwindSafe(|| names.cancel("n", 5)));
    assert!(cancel.is_err(), "the destructor's panic is not swallowed");
    for timer in &timers {
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
    }
    assert_eq!(names.list(), []);
    assert_eq!(home.stored(), 0);
    home.close();
}

#[test]
fn a_destructor_that_waits_for_its_own_callback_gets_an_error() {
    let home = Scripted::shard(true);
    let own: Arc<Mutex<Option<Timer<Scripted>>>> = Arc::default();
    let found = Arc::new(Mutex::new(None));
    let options = Options {
        recurring: true,
        ..Options::default()
    };
    let timer = Timer::build(&home, 5, options, {
        let (own, found) = (own.clone(), found.clone());
        let waits = OnDrop(move || {
            let timer = own.lock().unwrap().take().expect("it is dropped once");
            assert_eq!(timer.cancel(), Cancel::AfterRun);
            let poll = pin!(timer.ended()).poll(&mut Context::from_waker(Waker::noop()));
            *found.lock().unwrap() = Some(poll);
        });
        move |_| {
            let _ = &waits;
            Flow::Break(Outcome::Fired)
        }
    });
    assert_eq!(timer.start(0), Started::Pending);
    *own.lock().unwrap() = Some(timer);
    assert!(matches!(due(&home, 5).run(|| 5), Ran::Fired));
    let found = found.lock().unwrap().take();
    assert_eq!(found, Some(Poll::Ready(Err(InsideCallback))));
    home.close();
}

/// Panics when it is dropped.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("the destructor panics");
    }
}

/// Each timer ends although the destructors of several callbacks panic, whoever drops them, and the
/// process goes on.
#[test]
fn callbacks_that_panic_when_dropped_do_not_stop_the_end_of_others() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let arm = |shard: &Arc<Shard<Scripted>>| {
        for _ in 0..3 {
            let bomb = Bomb(dropped.clone());
            drop(Timer::once(shard, 5, 5, move || drop(bomb)));
        }
    };
    let panics = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
    let shard = Scripted::shard(true);
    arm(&shard);
    let mut drained = Some(shard.close());
    assert!(panics(&mut || drop(drained.take())));
    assert_eq!(dropped.load(Ordering::Relaxed), 3);

    // A list of due timers is the owner's: a `Vec` here, whose drop goes on after a first panic.
    let shard = Scripted::shard(true);
    arm(&shard);
    let mut due = expire(&shard, 5, usize::MAX);
    assert!(panics(&mut || due.clear()));
    assert_eq!(dropped.load(Ordering::Relaxed), 6);
    assert_eq!(Arc::strong_count(&shard), 1);
    drop(shard.close());
}
