//! The store of the example `ttl_cache` by itself, on a paused clock.

#[path = "../../ttl_cache/stats.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod stats;
#[path = "../../ttl_cache/store.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod store;

use std::{sync::Arc, thread, time::Duration};

use crate::common::paused::paused;
use stats::{Count, Stats};
use store::{Deadline, Expiry, Full, Only, Store, Visit, Was, When};
use tourbillon::time::{Instant, sleep};

fn store(max_bytes: u64) -> (Store, Arc<Stats>) {
    let stats = Arc::new(Stats::default());
    (Store::new(max_bytes, stats.clone()), stats)
}

const MS: Duration = Duration::from_millis(1);

fn set(store: &Store, key: &str, value: &str, expiry: Expiry) -> bool {
    let was = store.set(
        key.as_bytes(),
        value.as_bytes(),
        expiry,
        When::Always,
        false,
    );
    was.unwrap().set
}

/// Returns a deadline whose milliseconds do not matter.
fn deadline(at: Instant) -> Deadline {
    let at = Some(at);
    Deadline { unix_ms: 0, at }
}

fn until(at: Instant) -> Expiry {
    Expiry::At(deadline(at))
}

fn get(store: &Store, key: &str) -> Option<Vec<u8>> {
    store.get(key.as_bytes(), Expiry::Keep, |value| {
        value.map(<[u8]>::to_vec)
    })
}

#[test]
fn a_key_expires_to_the_nanosecond() {
    paused(1).block_on(async {
        let (store, stats) = store(u64::MAX);
        let start = Instant::now();
        set(&store, "key", "value", until(start + 10 * MS));
        sleep(10 * MS - Duration::from_nanos(1)).await;
        assert_eq!(get(&store, "key").unwrap(), b"value");
        sleep(Duration::from_nanos(1)).await;
        assert_eq!(start.elapsed(), 10 * MS);
        assert_eq!(get(&store, "key"), None);
        // The timer or the access expired the key, whichever came first.
        assert_eq!(
            stats.expired_by_timer.get() + stats.expired_on_access.get(),
            1
        );
        assert_eq!((stats.keys.get(), stats.bytes.get()), (0, 0));
    });
}

#[test]
fn a_timer_removes_keys_that_no_command_reads() {
    paused(1).block_on(async {
        let (store, stats) = store(u64::MAX);
        let start = Instant::now();
        for n in 1..=1_000 {
            set(&store, &n.to_string(), "value", until(start + n * MS));
        }
        sleep(500 * MS + MS / 2).await;
        assert_eq!((stats.keys.get(), stats.expired_by_timer.get()), (500, 500));
        sleep(500 * MS).await;
        assert_eq!((stats.keys.get(), stats.expired_by_timer.get()), (0, 1_000));
        assert_eq!(stats.expired_on_access.get(), 0);
        assert_eq!(stats.lateness.max(), Duration::ZERO);
    });
}

#[test]
fn a_changed_deadline_replaces_the_old_timer() {
    paused(1).block_on(async {
        let (store, stats) = store(u64::MAX);
        let soon = Instant::now() + 10 * MS;
        let later = Instant::now() + 100 * MS;
        for key in [
            "plain",
            "again",
            "kept",
            "moved",
            "persisted",
            "removed",
            "got",
        ] {
            set(&store, key, "old", until(soon));
        }
        set(&store, "plain", "new", Expiry::Never);
        set(&store, "again", "new", until(later));
        set(&store, "kept", "new", Expiry::Keep);
        assert!(store.expire_at(b"moved", deadline(later), Only::default()));
        assert!(store.persist(b"persisted"));
        assert!(store.remove(b"removed").is_some());
        set(&store, "removed", "new", Expiry::Never);
        store.get(b"got", Expiry::Never, |_| ());
        sleep(50 * MS).await;
        let there = [
            "plain",
            "again",
            "kept",
            "moved",
            "persisted",
            "removed",
            "got",
        ]
        .map(|key| get(&store, key).is_some());
        assert_eq!(there, [true, true, false, true, true, true, true]);
        sleep(100 * MS).await;
        assert_eq!(stats.keys.get(), 4);
        assert_eq!(stats.expired_by_timer.get(), 3);
        drop(store.clear());
        assert_eq!((stats.keys.get(), stats.bytes.get()), (0, 0));
    });
}

#[test]
fn no_command_sees_a_key_whose_timer_is_late() {
    let runtime = crate::common::runtime(1);
    crate::common::on_worker(&runtime, || {
        // This runs on the only worker, so no timer can fire.
        let (store, stats) = store(u64::MAX);
        let keys = [
            "got",
            "asked",
            "removed",
            "moved",
            "persisted",
            "absent",
            "present",
        ];
        let at = Instant::now() + MS;
        for key in keys {
            set(&store, key, "old", until(at));
        }
        while Instant::now() < at {
            std::hint::spin_loop();
        }
        let set = |key: &[u8], when| store.set(key, b"new", Expiry::Keep, when, true).unwrap();
        let was = |set| Was { set, old: None };
        assert_eq!(get(&store, "got"), None);
        assert_eq!(store.deadline(b"asked"), None);
        assert_eq!(store.remove(b"removed"), None);
        let later = Instant::now() + crate::common::HOUR;
        assert!(!store.expire_at(b"moved", deadline(later), Only::default()));
        assert!(!store.persist(b"persisted"));
        assert_eq!(set(b"absent", When::Absent), was(true));
        assert_eq!(set(b"present", When::Present), was(false));
        // A new key does not have the deadline of the old one.
        assert_eq!(store.deadline(b"absent"), Some(None));
        assert_eq!(stats.expired_on_access.get(), 7);
        assert_eq!(stats.expired_by_timer.get(), 0);
        assert_eq!(stats.keys.get(), 1);
    });
    assert_eq!(runtime.metrics().total().cancelled, 7);
}

#[test]
fn a_deadline_that_is_moved_while_the_timer_runs_has_a_timer_of_its_own() {
    let runtime = crate::common::runtime(1);
    let _context = runtime.handle().enter();
    let (store, stats) = store(u64::MAX);
    let mut moved = false;
    while !moved {
        set(&store, "key", "value", until(Instant::now() + 20 * MS));
        let later = Instant::now() + 100 * MS;
        moved = store.get(b"key", until(later), |value| {
            // The key's part is locked here, so the callback begins and has to wait.
            std::thread::sleep(50 * MS);
            // Without a value, the machine was too slow, and the key has expired.
            value.is_some()
        });
    }
    crate::common::eventually("the key is removed", || stats.keys.get() == 0);
    assert_eq!(stats.expired_by_timer.get(), 1);
}

#[test]
fn conditions_of_set_are_respected() {
    paused(1).block_on(async {
        let (store, _) = store(u64::MAX);
        let set = |value: &[u8], when| store.set(b"key", value, Expiry::Never, when, true).unwrap();
        let was = |set, old: Option<&str>| Was {
            set,
            old: old.map(|old| old.as_bytes().into()),
        };
        assert_eq!(set(b"a", When::Present), was(false, None));
        assert_eq!(set(b"b", When::Absent), was(true, None));
        assert_eq!(set(b"c", When::Absent), was(false, Some("b")));
        assert_eq!(set(b"d", When::Present), was(true, Some("b")));
        assert_eq!(set(b"e", When::Always), was(true, Some("d")));
        // An expired key counts as absent.
        store.expire_at(b"key", deadline(Instant::now() + MS), Only::default());
        sleep(MS).await;
        assert_eq!(set(b"f", When::Absent), was(true, None));
        // A deadline in the past removes the key.
        assert!(store.expire_at(b"key", deadline(Instant::now()), Only::default()));
        assert_eq!(store.deadline(b"key"), None);
    });
}

#[test]
fn later_and_earlier_compare_the_milliseconds_of_clients() {
    paused(1).block_on(async {
        let (store, _) = store(u64::MAX);
        let later = Only {
            later: true,
            ..Only::default()
        };
        let earlier = Only {
            earlier: true,
            ..Only::default()
        };
        let ms = |unix_ms| Deadline {
            unix_ms,
            at: Some(Instant::now() + 100 * MS),
        };
        // The same deadline in milliseconds, but taken at another moment of the runtime's clock.
        let same = Deadline {
            at: Some(Instant::now() + 101 * MS),
            ..ms(1_000)
        };
        set(&store, "key", "value", Expiry::At(ms(1_000)));
        assert!(!store.expire_at(b"key", same, later));
        assert!(!store.expire_at(b"key", same, earlier));
        assert_eq!(store.deadline(b"key"), Some(Some(ms(1_000))));
        // A difference of one millisecond is enough.
        assert!(!store.expire_at(b"key", ms(1_001), earlier));
        assert!(store.expire_at(b"key", ms(1_001), later));
        assert!(!store.expire_at(b"key", ms(1_000), later));
        assert!(store.expire_at(b"key", ms(1_000), earlier));
        assert_eq!(store.deadline(b"key"), Some(Some(ms(1_000))));
    });
}

#[test]
fn a_deadline_beyond_the_clocks_range_has_no_timer() {
    let runtime = crate::common::runtime(1);
    let _context = runtime.handle().enter();
    let (store, _) = store(u64::MAX);
    let far = Deadline {
        unix_ms: i64::MAX,
        at: None,
    };
    let armed = || runtime.metrics().total().armed();
    set(
        &store,
        "key",
        "value",
        until(Instant::now() + crate::common::HOUR),
    );
    assert_eq!(armed(), 1);
    // The deadline replaces one with a timer, which is cancelled. Then one with a timer replaces
    // it.
    assert!(store.expire_at(b"key", far, Only::default()));
    assert_eq!(store.deadline(b"key"), Some(Some(far)));
    assert_eq!(get(&store, "key").unwrap(), b"value");
    assert_eq!(runtime.metrics().total().cancelled, 1);
    assert!(store.expire_at(
        b"key",
        deadline(Instant::now() + crate::common::HOUR),
        Only::default()
    ));
    assert_eq!(armed(), 2);
}

#[test]
fn without_active_expiry_commands_remove_expired_keys() {
    paused(1).block_on(async {
        let (store, stats) = store(u64::MAX);
        store.set_active(false);
        for key in ["asked", "left"] {
            set(&store, key, "value", until(Instant::now() + MS));
        }
        sleep(2 * MS).await;
        assert_eq!(stats.keys.get(), 2);
        assert_eq!(get(&store, "asked"), None);
        assert_eq!(store.deadline(b"asked"), None);
        assert_eq!(stats.keys.get(), 1);
        assert_eq!(scanned(&store), [""; 0]);
        store.set_active(true);
        assert_eq!(stats.keys.get(), 0);
        assert_eq!(stats.expired_by_timer.get(), 0);
        assert_eq!(stats.expired_on_access.get(), 2);
        // From here on, timers remove keys.
        set(&store, "new", "value", until(Instant::now() + MS));
        sleep(2 * MS).await;
        assert_eq!(stats.expired_by_timer.get(), 1);
    });
}

/// Returns all keys, in the order of a scan that visits as few keys per call as possible.
fn scanned(store: &Store) -> Vec<String> {
    let mut keys = Vec::new();
    let mut from = 0;
    loop {
        from = store.scan(from, |key| {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
            Visit::Stop
        });
        if from == 0 {
            return keys;
        }
    }
}

#[test]
fn a_scan_visits_each_key_once_while_others_come_and_go() {
    paused(1).block_on(async {
        let (store, _) = store(u64::MAX);
        assert_eq!(scanned(&store), [""; 0]);
        let mut stay: Vec<_> = (0..5_000).map(|n| format!("stays{n}")).collect();
        for key in &stay {
            set(&store, key, "value", Expiry::Never);
        }
        let (mut keys, mut calls, mut from) = (Vec::new(), 0, 0);
        loop {
            // The table of each part grows and shrinks during the scan.
            for n in 0..100 {
                let key = format!("comes{}", calls * 100 + n);
                set(&store, &key, "value", Expiry::Never);
                store.remove(format!("comes{}", (calls - 10) * 100 + n).as_bytes());
            }
            let mut left = 10;
            from = store.scan(from, |key| {
                keys.push(String::from_utf8(key.to_vec()).unwrap());
                left -= 1;
                if left == 0 {
                    Visit::Stop
                } else {
                    Visit::Continue
                }
            });
            calls += 1;
            if from == 0 {
                break;
            }
        }
        assert!(calls > 300, "{calls} calls of 10 keys");
        keys.retain(|key| key.starts_with("stays"));
        keys.sort();
        stay.sort();
        assert_eq!(keys, stay);
    });
}

#[test]
fn set_all_sets_all_keys_or_none() {
    paused(1).block_on(async {
        let (store, stats) = store(1_200);
        let set = |keys: &[&str]| {
            let pairs = keys.iter().map(|key| (key.as_bytes(), &b"value"[..]));
            store.set_all(pairs)
        };
        assert_eq!(set(&["a", "b", "c", "d"]), Err(Full));
        assert_eq!((stats.keys.get(), stats.bytes.get()), (0, 0));
        assert_eq!(set(&["a", "b", "a"]), Ok(()));
        let bytes = stats.bytes.get();
        assert_eq!(stats.keys.get(), 2);
        assert_eq!(
            set(&["a", "b"]),
            Err(Full),
            "there is room for one more at most"
        );
        assert_eq!(set(&["a"]), Ok(()));
        assert_eq!((stats.keys.get(), stats.bytes.get()), (2, bytes));
        assert!(store.remove(b"a").is_some() && store.remove(b"b").is_some());
        assert_eq!(stats.bytes.get(), 0);
    });
}

#[test]
fn an_update_keeps_the_deadline_and_the_account_of_bytes() {
    paused(1).block_on(async {
        let (store, stats) = store(1_200);
        let update = |value: &'static [u8]| store.update(b"key", |_| Ok::<_, Full>(value.into()));
        assert_eq!(update(b"1"), Ok(()));
        let bytes = stats.bytes.get();
        assert!(store.expire_at(b"key", deadline(Instant::now() + MS), Only::default()));
        assert_eq!(update(b"100"), Ok(()));
        assert_eq!(stats.bytes.get(), bytes + 2);
        assert_eq!(store.update(b"key", |_| Err(Full)), Err(Full));
        assert_eq!(
            store.update(b"key", |_| Ok(vec![b'x'; 2_000].into())),
            Err(Full)
        );
        assert_eq!(get(&store, "key").unwrap(), b"100");
        sleep(2 * MS).await;
        assert_eq!((stats.keys.get(), stats.bytes.get()), (0, 0));
    });
}

#[test]
fn a_value_that_does_not_fit_does_not_block_others() {
    let count = Count::default();
    thread::scope(|scope| {
        scope.spawn(|| (0..100_000).for_each(|_| assert!(!count.add_up_to(101, 100))));
        for _ in 0..100_000 {
            assert!(count.add_up_to(100, 100));
            count.sub(100);
        }
    });
    assert!(!count.add_up_to(u64::MAX, u64::MAX - 1) && count.add_up_to(100, 100));
    assert!(!count.add_up_to(u64::MAX, u64::MAX));
    assert_eq!(count.get(), 100);
}

#[test]
fn a_command_without_room_changes_nothing() {
    paused(1).block_on(async {
        let (store, stats) = store(1_200);
        let set = |key: &[u8], len: usize| {
            store.set(key, &vec![b'x'; len], Expiry::Never, When::Always, false)
        };
        assert!(set(b"a", 100).is_ok());
        assert!(set(b"b", 100).is_ok());
        let bytes = stats.bytes.get();
        assert_eq!(set(b"c", 500), Err(Full));
        assert_eq!(set(b"a", 500), Err(Full));
        assert_eq!((stats.keys.get(), stats.bytes.get()), (2, bytes));
        assert_eq!(get(&store, "a").unwrap().len(), 100);
        // A smaller value is always accepted, and then there is room.
        assert!(set(b"a", 0).is_ok());
        assert!(set(b"b", 200).is_ok());
        assert_eq!(store.remove(b"a"), Some([].into()));
        assert!(set(b"c", 200).is_ok());
        assert!(store.remove(b"b").is_some() && store.remove(b"c").is_some());
        assert_eq!(stats.bytes.get(), 0);
    });
}
