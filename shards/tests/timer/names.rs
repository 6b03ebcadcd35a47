//! Timers are found by their names while they can be cancelled, and no name is left behind.

use std::{
    cell::Cell,
    panic::resume_unwind,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{Calls, Drops, Random, Scripted, both_ways, expire, times, turn};
use tourbillon_shards::{
    Cancel, Flow, Kind, Name, Names, Options, Outcome, Owner, Reset, Shard, Started, Status, Timer,
};

type Table = Arc<Names<Scripted>>;

fn named(names: &Table, name: &str) -> Options<Scripted> {
    Options {
        name: Some(Name::new(names, name)),
        ..Options::default()
    }
}

fn built(
    shard: &Arc<Shard<Scripted>>,
    options: Options<Scripted>,
    calls: &Calls,
) -> Timer<Scripted> {
    Timer::build(shard, 10, options, calls.callback())
}

fn started(shard: &Arc<Shard<Scripted>>, names: &Table, name: &str) -> Timer<Scripted> {
    let timer = built(shard, named(names, name), &Calls::default());
    assert_eq!(timer.start(0), Started::Pending);
    timer
}

fn empty(names: &Table) {
    assert_eq!(names.list(), [], "a name is left behind");
}

#[test]
fn a_name_without_timers_does_not_exist() {
    let names = Table::new(Names::new(0));
    let name = Name::new(&names, "session");
    assert_eq!(names.count("session"), 0);
    assert_eq!(names.cancel("session", usize::MAX), 0);
    assert_eq!(names.refresh("session", || 5), 0);
    drop(name);
    drop(named(&names, "session"));
    empty(&names);
}

#[test]
fn timers_are_counted_and_listed_by_name() {
    both_ways(|shard| {
        let names = Table::new(Names::new(3));
        let one: Vec<_> = (0..5).map(|_| started(shard, &names, "one")).collect();
        let two: Vec<_> = (0..2).map(|_| started(shard, &names, "two")).collect();
        let idle = built(shard, named(&names, "two"), &Calls::default());
        let strange = started(shard, &names, "");
        assert_eq!(names.count("one"), 5);
        assert_eq!(names.count("two"), 3, "with the one that was not started");
        assert_eq!((names.count(""), names.count("three")), (1, 0));
        let mut list = names.list();
        list.sort();
        let list: Vec<_> = list.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(list, [("", 1), ("one", 5), ("two", 3)]);
        assert!(format!("{names:?}").contains("\"one\": 5"));
        drop((one, two, strange));
        assert_eq!(names.count("one"), 5, "a dropped handle ends nothing");
        drop(idle);
        assert_eq!(names.count("two"), 2, "but one that was never started");
        assert_eq!(turn(shard, 10), 8);
        empty(&names);
    });
}

#[test]
fn cancel_named_takes_the_oldest_first_up_to_a_limit() {
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        // More than the table takes at a time.
        let timers: Vec<_> = (0..600).map(|_| started(shard, &names, "n")).collect();
        let other = started(shard, &names, "other");
        assert_eq!(names.cancel("n", 0), 0);
        assert_eq!(names.cancel("n", 1), 1);
        assert_eq!(names.cancel("n", 300), 300);
        assert_eq!(names.count("n"), 299);
        for (at, timer) in timers.iter().enumerate() {
            let expected = match at {
                0..301 => Status::Over(Outcome::Cancelled),
                _ => Status::Pending,
            };
            assert_eq!(timer.status(), expected, "timer {at}");
        }
        assert_eq!(timers[300].cancel(), Cancel::Over);
        assert_eq!(names.cancel("n", usize::MAX), 299);
        assert_eq!(names.cancel("n", usize::MAX), 0);
        assert_eq!(other.status(), Status::Pending);
        assert_eq!(other.cancel(), Cancel::Cancelled);
        empty(&names);
    });
}

/// Timers of two names end anywhere in their lists and others are named, in any order. A cancel by
/// name finds the oldest of those that are left.
#[test]
fn the_order_of_a_name_survives_the_ends_of_its_timers() {
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        let mut random = Random(7);
        let mut lists: [Vec<Timer<Scripted>>; 2] = Default::default();
        for _ in 0..times(3_000) {
            let which = random.below(2) as usize;
            let (name, list) = (["a", "b"][which], &mut lists[which]);
            match random.below(5) {
                0 if !list.is_empty() => {
                    let timer = list.remove(random.below(list.len() as u64) as usize);
                    assert_eq!(timer.cancel(), Cancel::Cancelled);
                }
                1 => {
                    let max = random.below(4) as usize;
                    let oldest: Vec<_> = list.drain(..max.min(list.len())).collect();
                    assert_eq!(names.cancel(name, max), oldest.len());
                    for timer in oldest {
                        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
                    }
                }
                _ => list.push(started(shard, &names, name)),
            }
            assert_eq!(names.count(name), list.len());
            assert!(list.iter().all(|timer| timer.status() == Status::Pending));
        }
        for (name, list) in ["a", "b"].into_iter().zip(lists) {
            assert_eq!(names.refresh(name, || 100), list.len());
            assert_eq!(names.cancel(name, usize::MAX), list.len());
        }
        empty(&names);
    });
}

/// A timer that is cancelled names another one, by its destructor. The call that cancels all ends.
#[test]
fn a_cancel_by_name_ends_although_each_names_another() {
    struct Another(Arc<Shard<Scripted>>, Table, usize);
    impl Drop for Another {
        fn drop(&mut self) {
            // Without a limit, a call that goes on would never end, and the test would not fail.
            if self.2 > 0 {
                name_another(&self.0, &self.1, self.2 - 1);
            }
        }
    }
    fn name_another(shard: &Arc<Shard<Scripted>>, names: &Table, more: usize) {
        let another = Another(shard.clone(), names.clone(), more);
        let callback = move |how| {
            let _ = &another;
            Flow::Break(how)
        };
        Timer::build(shard, 10, named(names, "n"), callback).start(0);
    }
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        for _ in 0..300 {
            name_another(shard, &names, 9);
        }
        for _ in 0..10 {
            assert_eq!(names.cancel("n", usize::MAX), 300);
        }
        assert_eq!(names.cancel("n", usize::MAX), 0);
        empty(&names);
    });
}

#[test]
fn all_timers_of_a_name_are_refreshed() {
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        let timers: Vec<_> = (0..400).map(|_| started(shard, &names, "n")).collect();
        let idle = built(shard, named(&names, "n"), &Calls::default());
        let over = started(shard, &names, "n");
        assert_eq!(over.cancel(), Cancel::Cancelled);
        assert_eq!(names.refresh("n", || 100), 400, "those that wait");
        assert_eq!(names.refresh("other", || 100), 0);
        assert_eq!(names.count("n"), 401);
        for timer in &timers {
            assert_eq!(timer.deadline(), Some(110));
        }
        assert_eq!(idle.deadline(), None);
        assert_eq!(turn(shard, 109), 0);
        assert_eq!(turn(shard, 110), 400);
    });
}

/// During the walk the clock goes on, and timers are started and refreshed.
#[test]
fn the_clock_is_read_for_each_timer_of_a_name() {
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        let timers: Vec<_> = (0..3).map(|_| started(shard, &names, "n")).collect();
        let idle = built(shard, named(&names, "n"), &Calls::default());
        let readings = Cell::new(0);
        let clock = || {
            readings.set(readings.get() + 1);
            let now = 100 * readings.get();
            if now == 200 {
                // Other threads would do this if they had read the clock a little later.
                assert_eq!(timers[2].refresh(230), Reset::Pending);
                assert_eq!(idle.start(240), Started::Pending);
            }
            now
        };
        assert_eq!(names.refresh("n", clock), 4);
        let deadlines = timers.iter().chain([&idle]).map(|timer| timer.deadline());
        assert!(deadlines.eq([110, 210, 310, 410].map(Some)));
    });
}

/// Each way in which a single timer can end.
#[test]
fn no_name_is_left_behind_by_any_end() {
    type Way = fn(&Arc<Shard<Scripted>>, &Table, &Timer<Scripted>);
    let ways: [(&str, Way); 10] = [
        ("fired", |shard, _, _| {
            turn(shard, 10);
        }),
        ("cancelled", |_, _, timer| {
            assert_eq!(timer.cancel(), Cancel::Cancelled);
        }),
        ("cancelled by name", |_, names, _| {
            assert_eq!(names.cancel("n", 5), 1);
        }),
        ("cancelled while due", |shard, _, timer| {
            let due = expire(shard, 10, 1);
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            drop(due);
        }),
        ("cancelled by name while due", |shard, names, _| {
            let due = expire(shard, 10, 1);
            assert_eq!(names.cancel("n", 5), 1);
            drop(due);
        }),
        ("dropped while due", |shard, _, _| {
            drop(expire(shard, 10, 1));
        }),
        ("cancelled by its carrier", |shard, _, _| {
            expire(shard, 10, 1).pop().unwrap().cancel();
        }),
        ("closed", |shard, _, _| drop(shard.close())),
        ("put back into a closed shard", |shard, _, timer| {
            let due = expire(shard, 10, 1).pop().unwrap();
            let _ = timer.reset_at(20);
            drop(shard.close());
            due.run(|| 10);
        }),
        ("ended by its answer, or used up", |shard, _, timer| {
            turn(shard, 10);
            // The callback ends the timer at its second run.
            if timer.status() == Status::Pending {
                turn(shard, 20);
            }
        }),
    ];
    for (way, end) in ways {
        for (recurring, outcome) in [(false, false), (false, true), (true, false), (true, true)] {
            if recurring && way == "fired" {
                continue;
            }
            both_ways(|shard| {
                let names = Table::new(Names::new(2));
                let calls = Calls::default();
                let options = Options {
                    recurring,
                    outcome,
                    ..named(&names, "n")
                };
                let f = calls.answering(|count| match count {
                    2 => Flow::Break(Outcome::Fired),
                    _ => Flow::Continue(()),
                });
                let timer = Timer::build(shard, 10, options, f);
                assert_eq!(timer.start(0), Started::Pending);
                assert_eq!(names.count("n"), 1);
                end(shard, &names, &timer);
                assert!(matches!(timer.status(), Status::Over(_)), "{way}");
                assert_eq!(names.list(), [], "{way}");
                drop(timer);
                empty(&names);
            });
        }
    }
}

#[test]
fn no_name_is_left_behind_before_the_start() {
    for outcome in [false, true] {
        both_ways(|shard| {
            let names = Table::new(Names::new(1));
            let calls = Calls::default();
            let options = || Options {
                outcome,
                ..named(&names, "n")
            };
            drop(built(shard, options(), &calls));
            assert_eq!(names.list(), [], "dropped");

            let timer = built(shard, options(), &calls);
            assert_eq!(names.cancel("n", 9), 1);
            assert_eq!(names.list(), []);
            assert_eq!(timer.start(0), Started::Cancelled);
            drop(timer);

            let timer = built(shard, options(), &calls);
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_eq!(names.list(), [], "it can be cancelled no more");
            assert_eq!(names.cancel("n", 9), 0);
            assert_eq!(timer.start(0), Started::Cancelled);
            drop(timer);
            assert_eq!(calls.get().len(), if outcome { 2 } else { 0 });

            drop(shard.close());
            let timer = built(shard, options(), &calls);
            assert_eq!(timer.start(0), Started::Shutdown);
            assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
            drop(timer);
            empty(&names);
        });
    }
}

#[test]
fn no_name_is_left_behind_by_a_panic() {
    for outcome in [false, true] {
        both_ways(|shard| {
            let names = Table::new(Names::new(1));
            let options = Options {
                outcome,
                ..named(&names, "n")
            };
            let timer = Timer::build(shard, 10, options, |_| resume_unwind(Box::new(())));
            timer.start(0);
            turn(shard, 10);
            assert_eq!(names.list(), []);
            assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Fired), 1);
            drop(timer);
            empty(&names);
        });
    }
}

#[test]
fn no_name_is_left_behind_by_a_condition() {
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        let options = Options {
            condition: Some(Box::new(|| false)),
            ..named(&names, "n")
        };
        let timer = built(shard, options, &Calls::default());
        timer.start(0);
        turn(shard, 10);
        drop(timer);
        empty(&names);
    });
}

/// A callback may use its own name: no lock of the table is held while it runs.
#[test]
fn a_callback_may_cancel_its_own_name() {
    both_ways(|shard| {
        let names = Table::new(Names::new(1));
        let others: Vec<_> = (0..3).map(|_| started(shard, &names, "n")).collect();
        for timer in &others {
            let _ = timer.reset_at(1_000);
        }
        let (table, home) = (Arc::downgrade(&names), Arc::downgrade(shard));
        let options = Options {
            recurring: true,
            outcome: true,
            ..named(&names, "n")
        };
        let calls = Calls::default();
        let f = calls.answering(move |count| {
            let names = table.upgrade().expect("the test has it");
            if count == 1 {
                assert_eq!(names.refresh("n", || 2_000), 4);
                assert_eq!(names.cancel("n", usize::MAX), 4, "its own among them");
                assert_eq!(names.count("n"), 0);
                drop(started(&home.upgrade().expect("too"), &names, "n"));
                assert_eq!(names.count("n"), 1);
            }
            Flow::Continue(())
        });
        let timer = Timer::build(shard, 10, options, f);
        timer.start(0);
        turn(shard, 10);
        assert_eq!(calls.get(), [Outcome::Fired, Outcome::Cancelled]);
        assert_eq!(names.count("n"), 1);
        turn(shard, 20);
        drop((timer, others));
        assert_eq!(names.list(), []);
    });
}

/// With a linear search this would take days. Only that exceeds the time limit.
#[test]
#[cfg_attr(miri, ignore = "needs a million timers")]
fn a_million_timers_of_one_name_end_in_constant_time_each() {
    const COUNT: usize = 1_000_000;
    let shard = Scripted::shard(true);
    let names = Table::new(Names::new(1));
    let drops = Drops::default();
    let begun = Instant::now();
    let timers: Vec<_> = (0..COUNT)
        .map(|at| {
            let probe = drops.probe();
            let options = named(&names, "all of them");
            let timer = Timer::build(&shard, 10 + at as u64, options, move |_| {
                let _ = &probe;
                Flow::Continue(())
            });
            timer.start(0);
            timer
        })
        .collect();
    assert_eq!(names.count("all of them"), COUNT);
    // Cancel from the front, which is the worst case of a removal from a list.
    for timer in &timers[..COUNT / 4] {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    assert_eq!(turn(&shard, 9 + COUNT as u64 / 2), COUNT / 4);
    assert_eq!(names.count("all of them"), COUNT / 2);
    assert_eq!(names.cancel("all of them", COUNT), COUNT / 2);
    assert_eq!(drops.get() as usize, COUNT);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(7200), "it took {took:?}");
    drop(timers);
    empty(&names);
}

#[test]
fn there_may_be_many_names() {
    both_ways(|shard| {
        let names = Table::new(Names::new(8));
        let count = times(5_000);
        let timers: Vec<_> = (0..4 * count)
            .map(|at| started(shard, &names, &format!("name {}", at % count)))
            .collect();
        assert_eq!(names.list().len(), count);
        assert!(names.list().iter().all(|(_, count)| *count == 4));
        for at in 0..count {
            assert_eq!(names.cancel(&format!("name {at}"), 3), 3);
        }
        assert_eq!(names.list().len(), count);
        drop(timers);
        assert_eq!(turn(shard, 10), count);
        empty(&names);
    });
}

/// Threads name, cancel, refresh and run timers. Each timer ends once, and then the table is empty.
#[test]
fn threads_share_the_table_of_names() {
    let shard = Scripted::shard(false);
    let names = Table::new(Names::new(2));
    let done = AtomicBool::new(false);
    let text = |at: u64| format!("{at}");
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                turn(&shard, 10);
            }
        });
        let meddlers: Vec<_> = (1..=2)
            .map(|seed| {
                let (shard, names) = (&shard, &names);
                scope.spawn(move || {
                    let mut random = Random(seed * 31);
                    for _ in 0..times(20_000) {
                        let name = text(random.below(5));
                        match random.below(6) {
                            0 => _ = names.cancel(&name, random.below(4) as usize),
                            1 => {
                                let now = random.below(5);
                                names.refresh(&name, || now);
                            }
                            2 => _ = built(shard, named(names, &name), &Calls::default()),
                            which => {
                                let timer = built(shard, named(names, &name), &Calls::default());
                                // Another thread may have cancelled it by its name before.
                                timer.start(0);
                                if which == 3 {
                                    timer.cancel();
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = meddlers.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Release);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    // One turn reads a part of the inbox, and that part may hold no due timers.
    while turn(&shard, 100) > 0 || shard.has_updates() {}
    empty(&names);
    drop(shard.close());
    assert_eq!(Arc::strong_count(&names), 1, "a node has the table");
    assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
}

/// An owner that looks up the timers of a name when a timer is armed.
#[derive(Default)]
struct Looks {
    names: OnceLock<Arc<Names<Looks>>>,
    armed: AtomicUsize,
    over: AtomicUsize,
}

impl Owner for Looks {
    fn wake(&self) {}

    fn is_current(&self) -> bool {
        true
    }

    fn armed(&self, _: Kind, _: bool, _: u64) {
        let found = self.names.get().unwrap().count("found");
        assert_eq!(found, self.armed.fetch_add(1, Ordering::Relaxed));
    }

    fn over(&self, _: Kind, _: Outcome) {
        self.over.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that finds a timer by its name may end it. If the timer were counted later, more timers
/// would have ended than were armed.
#[test]
fn a_timer_is_counted_before_it_can_be_found() {
    let shard = Arc::new(Shard::new(Looks::default()));
    let names = Arc::new(Names::new(1));
    let owner = shard.owner();
    assert!(owner.names.set(names.clone()).is_ok());
    let timers = [10, 20, 30].map(|wait| {
        let name = Some(Name::new(&names, "found"));
        let options = Options {
            name,
            ..Options::default()
        };
        Timer::build(&shard, wait, options, Flow::Break)
    });
    assert_eq!(names.cancel("found", usize::MAX), 3);
    drop(timers);
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert_eq!((count(&owner.armed), count(&owner.over)), (3, 3));
    assert!(names.list().is_empty());
    shard.close();
}
