//! Workers that serve each other's timers: one that leans sleeps past its deadlines, and relies on
//! those that are awake, or that wake up in time.
//!
//! A timer that no worker serves shows as a deadlock.
#![cfg(loom)]

use std::sync::Arc as Plain;

use loom::thread;
use loom_tests::{Crew, HORIZON, Probe, close, model};
use tourbillon_shards::Timer;

/// The moment to which a worker defers its wake-up.
const DEFERRED: u64 = 20;

/// Makes the calling thread the first worker, which has a timer and defers it to `deferred`.
fn begin(crew: &Crew, deadline: u64, deferred: u64) -> Probe {
    let (home, probe) = (crew.begin(0), Probe::new());
    drop(Timer::once(home, deadline, 5, probe.once()));
    home.defer(deferred);
    probe
}

fn end(crew: &Crew) {
    crew.homes.iter().for_each(close);
}

/// A worker defers its wake-up and may lean on another one, which goes to sleep for ever at this
/// moment: one of the two runs the timer.
#[test]
fn a_worker_leans_on_one_that_goes_to_sleep() {
    model!(Some(3), || {
        let crew = Crew::new(2);
        let probe = begin(&crew, 5, DEFERRED);
        let other = thread::spawn({
            let (crew, probe) = (crew.clone(), probe.clone());
            move || crew.run_until(1, || probe.runs() == 1)
        });
        let now = crew.run_until(0, || probe.runs() == 1);
        let later = other.join().unwrap();
        assert!(now <= DEFERRED && later <= DEFERRED);
        end(&crew);
    });
}

/// Two workers on which a third one leans go to sleep for ever: one of them runs the timer.
#[test]
fn the_last_worker_that_goes_to_sleep_serves_the_one_that_leans() {
    model!(Some(3), || {
        let crew = Crew::new(3);
        let probe = begin(&crew, 5, DEFERRED);
        let mut threads = Vec::new();
        crew.lean(0, || {
            threads.extend([1, 2].map(|place| {
                let (crew, probe): (Plain<Crew>, _) = (crew.clone(), probe.clone());
                thread::spawn(move || crew.run_until(place, || probe.runs() == 1))
            }));
        });
        for thread in threads {
            assert!(thread.join().unwrap() <= DEFERRED);
        }
        end(&crew);
    });
}

/// A thread arms a timer of a worker that leans, while the other worker goes to sleep for long: one
/// of the two runs it.
#[test]
fn a_remote_thread_arms_a_timer_of_a_worker_that_leans() {
    model!(Some(3), || {
        let crew = Crew::new(2);
        begin(&crew, HORIZON + 50, HORIZON + 51);
        let probe = Probe::new();
        let mut threads = Vec::new();
        crew.lean(0, || {
            threads.push(thread::spawn({
                let (crew, probe) = (crew.clone(), probe.clone());
                move || _ = crew.run_until(1, || probe.runs() == 1)
            }));
            threads.push(thread::spawn({
                let (home, probe) = (crew.homes[0].clone(), probe.clone());
                move || drop(Timer::once(&home, 9, 5, probe.once()))
            }));
        });
        // The thread that arms it may have woken this one, or the other worker when it was done.
        crew.homes[0].defer(0);
        crew.run_until(0, || probe.runs() == 1);
        threads.into_iter().for_each(|it| it.join().unwrap());
        end(&crew);
    });
}

/// A worker leans on one that is blocked, while a peer begins to watch that one: the worker does
/// not rely on it, or is woken.
#[test]
fn a_worker_does_not_lean_on_one_that_is_watched() {
    model!(Some(3), || {
        let crew = Crew::watched(2);
        let probe = begin(&crew, 5, DEFERRED);
        crew.homes[1].beat(0);
        let peer = thread::spawn({
            let crew = crew.clone();
            move || crew.watch(1, HORIZON)
        });
        assert!(crew.run_until(0, || probe.runs() == 1) <= DEFERRED);
        peer.join().unwrap();
        end(&crew);
    });
}
