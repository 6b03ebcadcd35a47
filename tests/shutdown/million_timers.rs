//! A million timers that are pending at shutdown get one outcome each, from all workers together.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use crate::common::{Gate, HOUR, PATIENCE, Random, alarm, runtime, told::Told};
use tourbillon::{
    Handle, Timer,
    timer::{Cancel, Outcome, Status},
};

/// Callbacks that note their outcome and the thread that delivers it. The first one waits until
/// another thread delivers an outcome, too. If one thread delivered all, it would wait in vain.
#[derive(Clone)]
struct Crowd(Arc<Inner>);

struct Inner {
    told: Told,
    threads: Mutex<HashSet<ThreadId>>,
    /// The threads that have delivered outcomes.
    count: AtomicUsize,
    second: Gate,
    waited_in_vain: AtomicUsize,
}

thread_local! {
    static TELLS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Crowd {
    fn new() -> Self {
        Self(Arc::new(Inner {
            told: Told::new(),
            threads: Mutex::default(),
            count: AtomicUsize::new(0),
            second: Gate::new(),
            waited_in_vain: AtomicUsize::new(0),
        }))
    }

    fn note(&self, how: Outcome) {
        let inner = &*self.0;
        inner.told.note(how);
        if how != Outcome::Shutdown || TELLS.replace(true) {
            return;
        }
        inner.threads.lock().unwrap().insert(thread::current().id());
        if inner.count.fetch_add(1, Ordering::SeqCst) == 0 {
            let came = inner.second.wait_for(PATIENCE);
            inner
                .waited_in_vain
                .fetch_add(usize::from(!came), Ordering::SeqCst);
        } else {
            inner.second.open();
        }
    }

    fn once(&self) -> impl FnOnce(Outcome) + Send + 'static {
        let crowd = self.clone();
        move |how| crowd.note(how)
    }

    /// Checks that several threads delivered the outcomes, and how many of each kind there are.
    #[track_caller]
    fn check(&self, all: [usize; 3]) {
        assert_eq!(self.0.told.all(), all);
        assert_eq!(
            self.0.waited_in_vain.load(Ordering::SeqCst),
            0,
            "one thread told them all"
        );
        let threads = self.0.threads.lock().unwrap();
        assert!(threads.len() >= 2, "{threads:?}");
        assert!(
            !threads.contains(&thread::current().id()),
            "delivered by the thread that drops the runtime"
        );
    }
}

/// Arms `count` timers on a worker, or on all.
fn arm(handle: &Handle, count: usize, worker: Option<usize>, crowd: &Crowd) {
    for i in 0..count {
        let builder = Timer::after(HOUR + Duration::from_nanos(i as u64)).on(handle);
        let builder = match worker {
            Some(worker) => builder.on_worker(worker),
            None => builder,
        };
        let _detached = builder.start_with(crowd.once());
    }
}

const MILLION: usize = 1_000_000;

#[test]
fn all_workers_deliver_a_million_outcomes_of_one_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let crowd = Crowd::new();
    arm(runtime.handle(), MILLION, Some(1), &crowd);
    drop(runtime);
    crowd.check([0, 0, MILLION]);
}

#[test]
fn all_workers_deliver_a_million_outcomes_of_all_workers() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let crowd = Crowd::new();
    thread::scope(|scope| {
        scope.spawn(|| arm(runtime.handle(), MILLION / 2, None, &crowd));
        let (handle, theirs) = (runtime.handle().clone(), crowd.clone());
        crate::common::on_worker(&runtime, move || arm(&handle, MILLION / 2, None, &theirs));
    });
    drop(runtime);
    crowd.check([0, 0, MILLION]);
}

#[test]
fn threads_can_arm_and_cancel_during_shutdown() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let crowd = Crowd::new();
    const MANY: usize = 200_000;
    arm(&handle, MANY, Some(0), &crowd);
    let (started, ended) = (Gate::new(), Gate::new());
    let threads: Vec<_> = (0..2)
        .map(|seed| {
            let (handle, started, ended) = (handle.clone(), started.clone(), ended.clone());
            thread::spawn(move || {
                let told = Told::new();
                let mut random = Random::new(seed + 1);
                let mut timers: Vec<Timer> = Vec::new();
                let (mut armed, mut cancelled) = (0, 0);
                while !ended.is_open() {
                    let builder = Timer::after(HOUR).on(&handle).name("other");
                    timers.push(builder.start_with(told.once()));
                    armed += 1;
                    if random.below(3) == 0 {
                        let at = random.below(timers.len() as u64) as usize;
                        let answer = timers.swap_remove(at).cancel();
                        cancelled += usize::from(answer == Cancel::Cancelled);
                    }
                    if armed == 100 {
                        started.open();
                    }
                }
                for timer in timers {
                    assert_eq!(timer.cancel(), Cancel::Over);
                    assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
                }
                (told, armed, cancelled)
            })
        })
        .collect();
    started.wait();
    drop(runtime);
    ended.open();
    for thread in threads {
        let (told, armed, cancelled) = thread.join().expect("nothing panics");
        assert_eq!(told.all(), [0, cancelled, armed - cancelled]);
    }
    crowd.check([0, 0, MANY]);
    assert_eq!(handle.timers().named, []);
}
