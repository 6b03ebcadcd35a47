//! The parts of the example `ttl_cache`, by themselves: its parser for any bytes, cut in any way; its store on a clock that
//! tests move.

mod common;
#[path = "../examples/ttl_cache/resp.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod resp;
#[path = "../examples/ttl_cache/stats.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod stats;
#[path = "../examples/ttl_cache/store.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod store;

use std::{sync::Arc, thread, time::Duration};

use proptest::{collection::vec, prelude::*};
use resp::{MAX_ARGS, MAX_BESIDES, MAX_LINE, Parser, ProtocolError, integer};
use stats::{Count, Stats};
use store::{Expiry, Full, Only, Store, Was, When};
use tourbillon::{
    Runtime,
    runtime::Builder,
    time::{Instant, sleep},
};

const MAX_BULK: usize = 1_000;

type Request = Vec<Vec<u8>>;

/// Parses bytes that come in pieces, as a connection does; answers the requests, and what was wrong after them. The rest
/// that waits for more is never more than the parser says.
fn parse(pieces: &[&[u8]]) -> (Vec<Request>, Option<ProtocolError>) {
    let mut parser = Parser::new(MAX_BULK);
    let mut input = Vec::new();
    let mut requests = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match parser.parse(&mut input) {
                Ok(Some(length)) => {
                    let args = parser.args(&input);
                    assert_eq!(args.len(), args.from(0).count());
                    if !args.is_empty() {
                        requests.push(args.from(0).map(<[u8]>::to_vec).collect());
                    }
                    input.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        assert!(
            input.len() < parser.max_request() || piece.len() > 1,
            "it waits for too much"
        );
    }
    (requests, None)
}

fn cut(bytes: &[u8], mut at: Vec<usize>) -> Vec<&[u8]> {
    at.iter_mut().for_each(|at| *at %= bytes.len() + 1);
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

fn encode(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for arg in request {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// An inline command of the same meaning.
fn inline(request: &[Vec<u8>]) -> Vec<u8> {
    let words = request.iter().map(|arg| {
        let escaped: String = arg.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{escaped}\"")
    });
    let line = words.collect::<Vec<_>>().join(" ");
    format!("{line}\r\n").into_bytes()
}

proptest! {
    #[test]
    fn any_pipeline_is_the_same_however_it_is_cut(
        requests in vec((vec(vec(any::<u8>(), 0..40), 1..6), any::<bool>()), 1..8),
        at in vec(any::<usize>(), 0..12),
    ) {
        let bytes: Vec<u8> = requests
            .iter()
            .flat_map(|(request, is_inline)| if *is_inline { inline(request) } else { encode(request) })
            .collect();
        let meant: Vec<_> = requests.into_iter().map(|(request, _)| request).collect();
        prop_assert_eq!(parse(&cut(&bytes, at)), (meant.clone(), None));
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(parse(&single), (meant, None));
    }

    #[test]
    fn any_bytes_are_the_same_however_they_are_cut(
        bytes in vec(prop_oneof![
            any::<u8>(),
            proptest::sample::select(b"*$\r\n01239-\"'\\x ".to_vec()),
        ], 0..300),
        at in vec(any::<usize>(), 0..12),
    ) {
        let whole = parse(&[&bytes]);
        prop_assert_eq!(&parse(&cut(&bytes, at)), &whole);
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(&parse(&single), &whole);
    }

    #[test]
    fn what_looks_like_requests_is_the_same_however_it_is_cut(
        parts in vec(proptest::sample::select(vec![
            "*1\r\n", "*2\r\n", "*-1\r\n", "*0\r\n", "$3\r\n", "abc\r\n", "$0\r\n", "\r\n", "$-1\r\n", "PING\r\n", "*", "$",
            "'a b' c\n", "\"\\x4",
        ]), 0..30),
        at in vec(any::<usize>(), 0..12),
    ) {
        let bytes = parts.concat().into_bytes();
        prop_assert_eq!(parse(&cut(&bytes, at)), parse(&[&bytes]));
    }

    #[test]
    fn a_number_has_one_way_to_be_written(number in any::<i64>(), text in "[-+0-9 ]{0,4}") {
        prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        let parsed = integer(text.as_bytes());
        prop_assert_eq!(parsed.map(|number| number.to_string()), parsed.map(|_| text));
    }
}

#[test]
fn words_of_a_line_are_as_redis_has_them() {
    let words = |line: &str| match parse(&[line.as_bytes()]) {
        (requests, None) => Ok(requests
            .concat()
            .into_iter()
            .map(|word| String::from_utf8(word).unwrap())
            .collect::<Vec<_>>()),
        (_, Some(error)) => Err(error),
    };
    let is = |line, meant: &[&str]| {
        let meant: Vec<_> = meant.iter().map(|word| word.to_string()).collect();
        assert_eq!(words(line), Ok(meant), "{line:?}");
    };
    is(" get \t key \r\n", &["get", "key"]);
    is("get key\n", &["get", "key"]);
    is("set k 'it\\'s \\n' \n", &["set", "k", "it's \\n"]);
    is(
        "set k \"\\x41\\t\\\"\\\\\\q\\x4\"\n",
        &["set", "k", "A\t\"\\qx4"],
    );
    is("set '' a\"b c\"\n", &["set", "", "ab c"]);
    for wrong in ["a 'b\n", "a \"b\n", "'a'b\n", "\"a\"'b'\n", "\"a\\\n"] {
        assert_eq!(words(wrong), Err(ProtocolError::Quotes), "{wrong:?}");
    }
}

#[test]
fn bounds_are_exact() {
    let error = |bytes: &[u8]| parse(&[bytes]).1;
    let bulk = |len: usize| encode(&[vec![b'x'; len]]);
    assert_eq!(parse(&[&bulk(MAX_BULK)]).0.len(), 1);
    // Refused by the header, before the bytes come.
    assert_eq!(error(b"*1\r\n$1001\r\n"), Some(ProtocolError::Length));
    assert_eq!(error(b"*1\r\n$-1\r\n"), Some(ProtocolError::Length));
    assert_eq!(error(format!("*{MAX_ARGS}\r\n").as_bytes()), None);
    let more = format!("*{}\r\n", MAX_ARGS + 1);
    assert_eq!(error(more.as_bytes()), Some(ProtocolError::Count));
    assert_eq!(error(&vec![b'x'; MAX_LINE]), None);
    let line = Some(ProtocolError::Line("inline request"));
    assert_eq!(error(&vec![b'x'; MAX_LINE + 1]), line);
    let many = MAX_BESIDES / MAX_BULK + 10;
    let big = encode(&vec![vec![b'x'; MAX_BULK]; many]);
    assert_eq!(error(&big), Some(ProtocolError::TooBig));
}

/// A runtime whose time passes when there is nothing else to do.
fn paused() -> Runtime {
    Builder::new()
        .worker_threads(1)
        .start_paused(true)
        .build()
        .unwrap()
}

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

fn get(store: &Store, key: &str) -> Option<Vec<u8>> {
    store.get(key.as_bytes(), Expiry::Keep, |value| {
        value.map(<[u8]>::to_vec)
    })
}

#[test]
fn a_key_is_there_to_the_nanosecond() {
    paused().block_on(async {
        let (store, stats) = store(u64::MAX);
        let start = Instant::now();
        set(&store, "key", "value", Expiry::At(start + 10 * MS));
        sleep(10 * MS - Duration::from_nanos(1)).await;
        assert_eq!(get(&store, "key").unwrap(), b"value");
        sleep(Duration::from_nanos(1)).await;
        assert_eq!(start.elapsed(), 10 * MS);
        assert_eq!(get(&store, "key"), None);
        // Whoever came first.
        assert_eq!(
            stats.expired_by_timer.get() + stats.expired_on_access.get(),
            1
        );
        assert_eq!((stats.keys.get(), stats.bytes.get()), (0, 0));
    });
}

#[test]
fn a_timer_removes_keys_without_a_look_at_them() {
    paused().block_on(async {
        let (store, stats) = store(u64::MAX);
        let start = Instant::now();
        for n in 1..=1_000 {
            set(&store, &n.to_string(), "value", Expiry::At(start + n * MS));
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
fn what_moves_or_takes_away_a_deadline_leaves_nothing_of_the_old_one() {
    paused().block_on(async {
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
            set(&store, key, "old", Expiry::At(soon));
        }
        set(&store, "plain", "new", Expiry::Never);
        set(&store, "again", "new", Expiry::At(later));
        set(&store, "kept", "new", Expiry::Keep);
        assert!(store.expire_at(b"moved", later, Only::default()));
        assert!(store.persist(b"persisted"));
        assert!(store.remove(b"removed"));
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
    let runtime = common::runtime(1);
    common::on_worker(&runtime, || {
        // The only worker is here, so that no timer can run.
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
            set(&store, key, "old", Expiry::At(at));
        }
        while Instant::now() < at {
            std::hint::spin_loop();
        }
        let set = |key: &[u8], when| store.set(key, b"new", Expiry::Keep, when, true).unwrap();
        let was = |set| Was { set, old: None };
        assert_eq!(get(&store, "got"), None);
        assert_eq!(store.deadline(b"asked"), None);
        assert!(!store.remove(b"removed"));
        let later = Instant::now() + common::HOUR;
        assert!(!store.expire_at(b"moved", later, Only::default()));
        assert!(!store.persist(b"persisted"));
        assert_eq!(set(b"absent", When::Absent), was(true));
        assert_eq!(set(b"present", When::Present), was(false));
        // What is new has no deadline of the old.
        assert_eq!(store.deadline(b"absent"), Some(None));
        assert_eq!(stats.expired_on_access.get(), 7);
        assert_eq!(stats.expired_by_timer.get(), 0);
        assert_eq!(stats.keys.get(), 1);
    });
    assert_eq!(runtime.metrics().total().cancelled, 7);
}

#[test]
fn a_deadline_that_is_moved_while_the_timer_runs_has_a_timer_of_its_own() {
    let runtime = common::runtime(1);
    let _context = runtime.handle().enter();
    let (store, stats) = store(u64::MAX);
    let mut moved = false;
    while !moved {
        set(&store, "key", "value", Expiry::At(Instant::now() + 20 * MS));
        let later = Instant::now() + 100 * MS;
        moved = store.get(b"key", Expiry::At(later), |value| {
            // The key's part is locked meanwhile, so that the callback begins, and has to wait.
            std::thread::sleep(50 * MS);
            // Else the machine was too slow, and the key gone before.
            value.is_some()
        });
    }
    common::eventually("the key is removed", || stats.keys.get() == 0);
    assert_eq!(stats.expired_by_timer.get(), 1);
}

#[test]
fn conditions_are_kept() {
    paused().block_on(async {
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
        // A key whose time is over is none.
        store.expire_at(b"key", Instant::now() + MS, Only::default());
        sleep(MS).await;
        assert_eq!(set(b"f", When::Absent), was(true, None));
        // A moment that has passed removes the key.
        assert!(store.expire_at(b"key", Instant::now(), Only::default()));
        assert_eq!(store.deadline(b"key"), None);
    });
}

#[test]
fn a_deadline_is_later_or_earlier_by_whole_milliseconds() {
    paused().block_on(async {
        let (store, _) = store(u64::MAX);
        let at = Instant::now() + 100 * MS;
        set(&store, "key", "value", Expiry::At(at));
        let later = Only {
            later: true,
            ..Only::default()
        };
        let earlier = Only {
            earlier: true,
            ..Only::default()
        };
        // The same one, as it comes of a time of day and two clocks.
        let bit = MS / 4;
        for same in [at, at + bit, at - bit] {
            assert!(!store.expire_at(b"key", same, later));
            assert!(!store.expire_at(b"key", same, earlier));
        }
        assert_eq!(store.deadline(b"key"), Some(Some(at)));
        // And the next ones.
        assert!(!store.expire_at(b"key", at + MS - bit, earlier));
        assert!(store.expire_at(b"key", at + MS - bit, later));
        assert!(!store.expire_at(b"key", at, later));
        assert!(store.expire_at(b"key", at, earlier));
        assert_eq!(store.deadline(b"key"), Some(Some(at)));
    });
}

#[test]
fn what_does_not_fit_keeps_nothing_else_out() {
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
fn what_there_is_no_room_for_changes_nothing() {
    paused().block_on(async {
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
        // What takes less is always possible, and then there is room.
        assert!(set(b"a", 0).is_ok());
        assert!(set(b"b", 200).is_ok());
        assert!(store.remove(b"a"));
        assert!(set(b"c", 200).is_ok());
        assert!(store.remove(b"b") && store.remove(b"c"));
        assert_eq!(stats.bytes.get(), 0);
    });
}
