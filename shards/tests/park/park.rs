//! A shard is the sleeper of a worker, on one thread.

use crate::common::{Scripted, turn};
use tourbillon_sched::{Parked, SearchClaim, Searchers};
use tourbillon_shards::{NEVER, Timer};

const AWAKE: Parked = Parked {
    slept: false,
    searching: false,
};

#[test]
fn a_worker_does_not_sleep_over_work_or_updates() {
    let shard = Scripted::shard(false);
    let searchers = Searchers::new(2);
    let sleep = |_| panic!("it sleeps");
    // A worker that sees work searches for it, unless enough others search.
    let found = Parked {
        searching: true,
        ..AWAKE
    };
    assert_eq!(searchers.sleep(&*shard, false, || true, sleep), found);
    assert_eq!((searchers.parked(), searchers.searching()), (0, 1));
    assert_eq!(searchers.sleep(&*shard, false, || true, sleep), AWAKE);
    let _timer = Timer::once(&shard, 500, 500, || ());
    assert_eq!(searchers.sleep(&*shard, true, || false, sleep), AWAKE);
    assert_eq!((searchers.parked(), searchers.searching()), (0, 0));
    assert_eq!(turn(&shard, 0), 0);
    let slept = Parked {
        slept: true,
        ..AWAKE
    };
    let sleep = |until| assert_eq!(until, 500);
    assert_eq!(searchers.sleep(&*shard, false, || false, sleep), slept);
    drop(shard.close());
}

#[test]
fn a_worker_that_is_woken_to_search_searches() {
    let shard = Scripted::shard(true);
    let searchers = Searchers::new(2);
    let parked = searchers.sleep(
        &*shard,
        false,
        || false,
        |until| {
            assert_eq!((until, searchers.parked()), (NEVER, 1));
            let claim = || shard.parker().claim_for_search() == SearchClaim::Asleep;
            assert!(searchers.wake_one(claim, || true));
        },
    );
    assert!(parked.slept && parked.searching);
    assert_eq!((searchers.parked(), searchers.searching()), (0, 1));
}
