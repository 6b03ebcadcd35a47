//! The example `ttl_cache`: keys expire on time, a million of them, and while they are being
//! changed.

use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    clients::{
        AGES,
        redis::{Redis, Reply, cache},
    },
    common::Random,
};

#[test]
fn a_value_can_be_read_until_its_deadline_and_not_after() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    let ttl = Duration::from_millis(40);
    for _ in 0..20 {
        let before = Instant::now();
        assert_eq!(client.ask("SET key value PX 40"), Reply::ok());
        let after = Instant::now();
        loop {
            let asked = Instant::now();
            match client.ask("GET key") {
                Reply::Null => {
                    assert!(before.elapsed() >= ttl, "gone too early");
                    break;
                }
                value => {
                    assert_eq!(value, Reply::bulk("value"));
                    assert!(asked < after + ttl, "there too late");
                }
            }
        }
    }
    assert_eq!(client.info("expired_keys"), 20);
}

#[test]
fn a_timer_removes_a_key_that_no_command_reads() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    assert_eq!(client.ask("SET key value PX 10"), Reply::ok());
    let start = Instant::now();
    while client.ask("DBSIZE") != Reply::Integer(0) {
        assert!(start.elapsed() < AGES, "never removed");
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(client.info("expired_by_timer"), 1);
    assert_eq!(client.info("used_memory_dataset"), 0);
}

#[test]
fn a_removed_or_moved_deadline_does_not_remove_the_key() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    for name in ["persisted", "overwritten", "moved", "kept"] {
        client.ask(&format!("SET {name} value PX 60000"));
    }
    client.ask("PERSIST persisted");
    client.ask("SET overwritten other");
    client.ask("SET kept other KEEPTTL");
    client.ask("PEXPIRE moved 120000");
    assert_eq!(client.ask("TTL persisted"), Reply::Integer(-1));
    assert_eq!(client.ask("TTL overwritten"), Reply::Integer(-1));
    assert!(matches!(
        client.ask("PTTL moved"),
        Reply::Integer(60_001..=120_000)
    ));
    assert!(matches!(
        client.ask("PTTL kept"),
        Reply::Integer(1..=60_000)
    ));
    // Each key had one timer, and two of the timers were cancelled. No timer was armed to move
    // another. (The fifth timer is that of the connection.)
    assert_eq!(client.info("timers_armed"), 5);
    assert_eq!(client.info("timers_cancelled"), 2);
    client.ask("DEL moved kept");
    assert_eq!(client.info("timers_cancelled"), 4);
}

/// Appends a request that sets a key with a TTL of this many ms.
fn set(request: &mut Vec<u8>, name: &str, ttl: u64) {
    let (name_len, ttl_len) = (name.len(), ttl.to_string().len());
    write!(
        request,
        "*5\r\n$3\r\nSET\r\n${name_len}\r\n{name}\r\n$1\r\nv\r\n$2\r\nPX\r\n${ttl_len}\r\n{ttl}\r\n"
    )
    .unwrap();
}

/// Sets `count` keys, many with one write, and checks that each reply is OK.
fn set_many(client: &mut Redis, count: u64, mut key: impl FnMut(u64) -> (String, u64)) {
    const BATCH: u64 = 500;
    let mut requests = Vec::new();
    for first in (0..count).step_by(BATCH as usize) {
        requests.clear();
        let batch = first..count.min(first + BATCH);
        let replies = b"+OK\r\n".repeat(batch.clone().count());
        for n in batch {
            let (name, ttl) = key(n);
            set(&mut requests, &name, ttl);
        }
        client.send(&requests);
        client.expect(&replies);
    }
}

#[test]
fn a_million_keys_expire_on_time_and_once() {
    const KEYS: u64 = 1_000_000;
    const THREADS: u64 = 2;
    const SAMPLES: u64 = 200;
    const KEPT: u64 = 10_000;
    /// The longest TTL, in ms.
    const LONGEST: u64 = 5_000;
    let server = cache(&["--idle", "0s"]);
    thread::scope(|scope| {
        for part in 0..THREADS {
            let server = &server;
            scope.spawn(move || {
                let mut random = Random::new(part);
                let mut client = Redis::connect(server);
                set_many(&mut client, KEYS / THREADS, |key| {
                    (format!("{part}:{key}"), 1 + random.below(LONGEST))
                });
                set_many(&mut client, KEPT / THREADS, |key| {
                    (format!("kept:{part}:{key}"), 3_600_000)
                });
            });
        }
        // At the same time, another client sets and reads its own keys.
        scope.spawn(|| {
            let mut random = Random::new(99);
            let mut client = Redis::connect(&server);
            let mut samples = Vec::new();
            for sample in 0..SAMPLES {
                let ttl = 1 + random.below(LONGEST);
                let mut request = Vec::new();
                set(&mut request, &format!("sample:{sample}"), ttl);
                let before = Instant::now();
                client.send(&request);
                assert_eq!(client.reply(), Reply::ok());
                samples.push((sample, Duration::from_millis(ttl), before, Instant::now()));
            }
            while !samples.is_empty() {
                samples.retain(|&(sample, ttl, before, after)| {
                    let asked = Instant::now();
                    let there = client.ask(&format!("GET sample:{sample}")) != Reply::Null;
                    if there {
                        assert!(asked < after + ttl, "there too late");
                    } else {
                        assert!(before.elapsed() >= ttl, "gone too early");
                    }
                    there
                });
                thread::sleep(Duration::from_millis(1));
            }
        });
    });
    let mut client = Redis::connect(&server);
    let start = Instant::now();
    while client.ask("DBSIZE") != Reply::Integer(KEPT as i64) {
        assert!(start.elapsed() < AGES, "not all expired");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.info("expired_keys"), KEYS + SAMPLES);
    assert_eq!(client.info("panics"), 0);
    if let Reply::Bulk(info) = client.ask("INFO Stats") {
        println!("{}", String::from_utf8_lossy(&info));
    }
    // No further key has expired, and `FLUSHALL` frees all memory of the keys that it removes.
    assert_eq!(client.ask("FLUSHALL"), Reply::ok());
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.info("used_memory_dataset"), 0);
    assert_eq!(client.info("expired_keys"), KEYS + SAMPLES);
}

/// Sleeps for about a millisecond: a key's timer is then about to fire, fires, or has fired.
fn about_a_millisecond(random: &mut Random) {
    thread::sleep(Duration::from_micros(500 + random.below(700)));
}

#[test]
fn a_timer_that_fires_concurrently_removes_no_new_value() {
    let server = cache(&[]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // These clients change keys that they share. A value is always one that was set.
        for seed in 0..2 {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut client = Redis::connect(server);
                while !done.load(Ordering::Relaxed) {
                    let key = random.below(3);
                    let reply = match random.below(6) {
                        0 => client.ask(&format!("SET shared{key} value{key} PX 1")),
                        1 => client.ask(&format!("SET shared{key} value{key}")),
                        2 => client.ask(&format!("PEXPIRE shared{key} 1")),
                        3 => client.ask(&format!("DEL shared{key}")),
                        4 => client.ask(&format!("PERSIST shared{key}")),
                        _ => client.ask(&format!("GET shared{key}")),
                    };
                    let possible = match &reply {
                        Reply::Bulk(value) => *value == format!("value{key}").into_bytes(),
                        Reply::Error(_) | Reply::Array(_) => false,
                        _ => true,
                    };
                    assert!(possible, "{reply:?}");
                }
            });
        }
        let owners: Vec<_> = (0..4_u64)
            .map(|owner| {
                let server = &server;
                scope.spawn(move || owns_a_key(&mut Redis::connect(server), owner))
            })
            .collect();
        let ended: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        done.store(true, Ordering::Relaxed);
        for owner in ended {
            owner.unwrap();
        }
    });
    let mut client = Redis::connect(&server);
    client.ask("DEL shared0 shared1 shared2 own0 own1 own2 own3");
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.info("used_memory_dataset"), 0);
    assert_eq!(client.info("panics"), 0);
}

/// Changes a key that no other client changes, at about the time when its timer fires. A change
/// that comes before the timer fires stays.
fn owns_a_key(client: &mut Redis, owner: u64) {
    let mut random = Random::new(owner);
    let key = format!("own{owner}");
    for round in 0..400 {
        assert_eq!(client.ask(&format!("SET {key} old PX 1")), Reply::ok());
        about_a_millisecond(&mut random);
        let expected = match round % 4 {
            0 => {
                client.ask(&format!("SET {key} new"));
                Reply::bulk("new")
            }
            1 => {
                client.ask(&format!("SET {key} new PX 60000"));
                Reply::bulk("new")
            }
            change => {
                let change = match change {
                    2 => client.ask(&format!("PEXPIRE {key} 60000")),
                    _ => client.ask(&format!("PERSIST {key}")),
                };
                match change {
                    Reply::Integer(1) => Reply::bulk("old"),
                    _ => Reply::Null,
                }
            }
        };
        for _ in 0..3 {
            assert_eq!(client.ask(&format!("GET {key}")), expected, "round {round}");
            about_a_millisecond(&mut random);
        }
        let was_there = i64::from(expected != Reply::Null);
        assert_eq!(client.ask(&format!("DEL {key}")), Reply::Integer(was_there));
    }
}
