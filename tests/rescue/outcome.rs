//! Peers do each piece of work of a blocked worker once, calls answer exactly, and the worker
//! continues from there when it returns.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Drops, HOUR, PATIENCE, Random, alarm,
    blocked::{Blocked, REST, SOON, Says, all_come_elsewhere, assert_ends, nothing_comes, settle},
    eventually,
    net::connections,
    on_worker, rounds, runtime,
    told::Told,
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    Timer,
    net::TcpStream,
    timer::{Cancel, Outcome, Reset},
};

/// A timer of a blocked worker that one thread moves and cancels, and the outcome that it took.
struct Meddled {
    timer: Timer,
    told: Told,
    /// When the callback took the outcome, in ns from `epoch`.
    at: Arc<AtomicU64>,
}

impl Meddled {
    /// Arms a timer on the calling worker.
    fn new(delay: Duration, epoch: Instant) -> Self {
        let told = Told::new();
        let at = Arc::new(AtomicU64::new(0));
        let (note, noted) = (told.once(), at.clone());
        let timer = Timer::after(delay).start_with(move |how| {
            noted.store(epoch.elapsed().as_nanos() as u64, SeqCst);
            note(how);
        });
        Self { timer, told, at }
    }

    /// Checks that the callback took one outcome, not before the timer's last deadline, and that
    /// all answers agree with it. Returns the outcome.
    #[track_caller]
    fn check(&self, meddling: &Meddling, epoch: Instant) -> Outcome {
        let how = match self.told.all() {
            [1, 0, 0] => Outcome::Fired,
            [0, 1, 0] => Outcome::Cancelled,
            told => panic!("told {told:?}"),
        };
        assert_ends(&self.timer, how);
        let cancelled = usize::from(how == Outcome::Cancelled);
        assert_eq!(meddling.cancelled, cancelled, "{how:?}");
        let at = epoch + Duration::from_nanos(self.at.load(SeqCst));
        let not_before = meddling.not_before;
        assert!(
            how == Outcome::Cancelled || at >= not_before,
            "early by {:?}",
            not_before - at
        );
        how
    }
}

/// The effect of the meddling thread's calls on one timer, according to their answers.
struct Meddling {
    not_before: Instant,
    cancelled: usize,
}

impl Meddling {
    fn meddle(&mut self, timer: &Timer, delay: Duration, random: &mut Random) {
        let now = Instant::now();
        let (answer, deadline) = match random.below(256) {
            0 => {
                self.cancelled += usize::from(timer.cancel() == Cancel::Cancelled);
                return;
            }
            1..64 => (timer.refresh(), now + delay),
            _ => {
                let deadline = now + Duration::from_micros(random.below(5_000));
                (timer.reset_at(deadline), deadline)
            }
        };
        if answer == Reset::Pending {
            self.not_before = deadline;
        }
    }
}

#[test]
fn cancel_and_reset_on_a_blocked_worker_answer_exactly() {
    // On a loaded machine, all timers may fire before another thread gets a core. Then the test
    // tries again.
    let both = rounds(1_000).any(|_| ends_of_meddled_timers().iter().all(|&count| count > 0));
    assert!(
        both,
        "no round had timers that fired and timers that were cancelled"
    );
}

/// Lets threads move and cancel the timers of a blocked worker, and checks each timer. Returns how
/// many fired and how many were cancelled.
fn ends_of_meddled_timers() -> [usize; 2] {
    const TIMERS: usize = 2_000;
    const THREADS: usize = 2;
    const MEDDLE: Duration = Duration::from_millis(200);
    let _alarm = alarm();
    let runtime = runtime(2);
    let epoch = Instant::now();
    let delay = |index: usize| SOON + Duration::from_micros(25) * index as u32;
    let (blocked, timers) = Blocked::after(runtime.handle(), move || {
        let arm = |index| Meddled::new(delay(index), epoch);
        (0..TIMERS).map(arm).collect::<Vec<_>>()
    });
    let meddle = |thread: usize| {
        let mut random = Random::new(thread as u64);
        let mine = thread * TIMERS / THREADS..(thread + 1) * TIMERS / THREADS;
        let unmoved = |_| Meddling {
            not_before: epoch,
            cancelled: 0,
        };
        let mut meddling: Vec<_> = mine.clone().map(unmoved).collect();
        while epoch.elapsed() < MEDDLE {
            let at = random.below(meddling.len() as u64) as usize;
            let index = mine.start + at;
            meddling[at].meddle(&timers[index].timer, delay(index), &mut random);
        }
        meddling
    };
    let meddling: Vec<Meddling> = thread::scope(|scope| {
        let meddle = &meddle;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || meddle(thread)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<_>>| thread.join().unwrap();
        threads.into_iter().flat_map(join).collect()
    });
    let told = || timers.iter().map(|timer| timer.told.total()).sum::<usize>();
    eventually("all are told while their worker is blocked", || {
        told() >= TIMERS
    });
    drop(blocked);
    settle(&runtime);
    thread::sleep(REST);
    let mut ends = [0; 2];
    for (timer, meddling) in timers.iter().zip(&meddling) {
        ends[timer.check(meddling, epoch) as usize] += 1;
    }
    ends
}

/// The worker is blocked and released again and again. Nothing is lost, nothing is done twice, and
/// the data of a connection comes in order.
#[test]
fn a_worker_that_returns_continues_after_its_rescuers() {
    const ROUNDS: usize = 10;
    const SOCKETS: usize = 10;
    const TIMERS: usize = 100;
    let _alarm = alarm();
    let runtime = runtime(2);
    let (reads, read) = Says::new();
    let (ours, theirs) = connections(SOCKETS);
    let since = Instant::now();
    on_worker(&runtime, move || {
        for (index, stream) in ours.into_iter().enumerate() {
            let (mut stream, reads) = (TcpStream::from_std(stream).unwrap(), reads.clone());
            tourbillon::spawn(async move {
                for round in 0..2 * ROUNDS {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).await.unwrap();
                    assert_eq!(usize::from(byte[0]), round);
                    reads.came(index, since);
                }
            });
        }
    });
    let write = |round: usize| {
        for mut stream in &theirs {
            stream.write_all(&[round as u8]).unwrap();
        }
    };
    for round in 0..ROUNDS {
        let (now, came_now) = Says::new();
        let (later, came_later) = Says::new();
        let (blocked, timers) = Blocked::after(runtime.handle(), move || {
            let due = Instant::now() + Duration::from_millis(2);
            for index in 0..TIMERS {
                drop(tourbillon::at(due, now.comes(index, due)));
            }
            // These timers stay in the store while those beside them are taken.
            let arm = |index| tourbillon::after(HOUR, later.comes(index, due));
            (0..TIMERS).map(arm).collect::<Vec<_>>()
        });
        write(2 * round);
        all_come_elsewhere(&blocked, &came_now, TIMERS);
        all_come_elsewhere(&blocked, &read, SOCKETS);
        drop(blocked);
        write(2 * round + 1);
        let now = Instant::now();
        for timer in &timers {
            assert_eq!(timer.reset_at(now), Reset::Pending);
        }
        let mut left = [vec![1; TIMERS], vec![1; SOCKETS]];
        for (left, receiver) in left.iter_mut().zip([&came_later, &read]) {
            for _ in 0..left.len() {
                let came = receiver.recv_timeout(PATIENCE).expect("it comes");
                left[came.index] -= 1;
            }
            assert!(left.iter().all(|&left| left == 0), "twice");
        }
        nothing_comes(&runtime, &came_now);
        nothing_comes(&runtime, &came_later);
        for timer in &timers {
            assert_ends(timer, Outcome::Fired);
        }
    }
    assert!(read.try_recv().is_err(), "twice");
    eventually("each timer that was armed has fired, once", || {
        let total = runtime.metrics().total();
        total.armed() == total.fired() && total.cancelled() + total.shut_down() == 0
    });
}

/// The shutdown may begin at any moment of a rescue.
#[test]
fn each_timer_of_a_blocked_worker_gets_one_outcome_at_shutdown() {
    const DUE: usize = 200;
    const LATER: usize = 100;
    let _alarm = alarm();
    let mut ends = [0; 3];
    for round in 0..20 {
        let runtime = runtime(2);
        let drops = Drops::new();
        let token = drops.clone();
        let step = Duration::from_micros(20);
        let (blocked, timers) = Blocked::after(runtime.handle(), move || {
            let soon = Instant::now() + SOON;
            let arm = |index: usize| {
                let (told, token) = (Told::new(), token.token());
                let due = if index < DUE {
                    soon + step * index as u32
                } else {
                    soon + HOUR
                };
                let note = told.once();
                let timer = Timer::at(due).start_with(move |how| {
                    let _token = token;
                    note(how);
                });
                (timer, told)
            };
            (0..DUE + LATER).map(arm).collect::<Vec<_>>()
        });
        // The shutdown begins before the first timer is due in the first round, and ever later in
        // the next.
        thread::sleep(SOON + step * 10 * round);
        if round % 2 == 0 {
            runtime.shutdown_background();
        } else {
            let all_ended = runtime.shutdown_timeout(Duration::from_millis(5));
            assert!(!all_ended, "one is blocked");
        }
        drop(blocked);
        eventually("each is told", || drops.count() == DUE + LATER);
        for (index, (timer, told)) in timers.iter().enumerate() {
            let how = match told.all() {
                [1, 0, 0] if index < DUE => Outcome::Fired,
                [0, 0, 1] => Outcome::Shutdown,
                told => panic!("told {told:?}"),
            };
            assert_ends(timer, how);
            ends[how as usize] += 1;
        }
    }
    assert!(ends[0] > 0 && ends[2] > 0, "one-sided: {ends:?}");
}
