//! References to the home shard: their count, which shares one reference of the `Arc`, and a
//! thread's cache of them.
//!
//! A surplus reference shows as a leak of the shard; a missing one as a shard that is freed while a
//! thread refers to it. In the loom build a cache counts two references at a time.
#![cfg(loom)]

use loom::thread;
use loom_tests::{close, model, shard};
use tourbillon_shards::{Home, Spares, Timer};

/// Two threads raise the count from zero and lower it back, while the shard's creator drops the
/// shard.
#[test]
fn two_threads_make_the_count_leave_zero() {
    model!(None, || {
        let home = shard();
        let other = thread::spawn({
            let home = home.clone();
            move || drop(Home::new(&home))
        });
        drop(Home::new(&home));
        drop(home);
        other.join().unwrap();
    });
}

/// A reference outlives all `Arc`s, while another thread clones it.
#[test]
fn the_last_references_keep_the_shard() {
    model!(None, || {
        let home = shard();
        let first = Home::new(&home);
        let second = first.clone();
        let other = thread::spawn(move || {
            let third = second.clone();
            drop(second);
            assert_eq!(third.stored(), 0);
        });
        drop(home);
        assert_eq!(first.stored(), 0);
        drop(first);
        other.join().unwrap();
    });
}

/// A thread with a cache takes references that another thread drops.
#[test]
fn a_cache_is_emptied_while_another_thread_gives_references_up() {
    model!(None, || {
        let home = shard();
        let spares = Spares::new(&home);
        let given = [Home::new(&home), Home::new(&home), Home::new(&home)];
        let other = thread::spawn(move || drop(given));
        let kept = Home::new(&home);
        drop((kept, spares));
        drop(home);
        other.join().unwrap();
    });
}

/// Two threads have a cache of one shard, and each drops references that the other has counted.
#[test]
fn two_caches_exchange_references() {
    model!(None, || {
        let home = shard();
        let other = thread::spawn({
            let (home, given) = (home.clone(), Home::new(&home));
            move || {
                let _spares = Spares::new(&home);
                drop(given);
                [(); 2].map(|()| Home::new(&home))
            }
        });
        let spares = Spares::new(&home);
        let mine = Home::new(&home);
        drop(other.join().unwrap());
        drop((mine, spares));
        assert_eq!(home.references(), 0);
    });
}

/// The owner has a cache, and a remote thread frees the node of its timer.
#[test]
fn a_remote_thread_frees_a_timer_of_an_owner_with_a_cache() {
    model!(Some(3), || {
        let home = shard();
        let spares = Spares::new(&home);
        let timer = Timer::once(&home, 5, 5, || ());
        let other = thread::spawn(move || _ = timer.cancel());
        close(&home);
        drop(spares);
        other.join().unwrap();
        assert_eq!(home.references(), 0);
    });
}
