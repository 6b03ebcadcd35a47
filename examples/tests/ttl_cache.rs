//! The example `ttl_cache`: its cache by itself, and the program.

#[path = "../ttl_cache/cache.rs"]
mod cache;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use cache::{Cache, Full, OVERHEAD};
use tourbillon::time::sleep;

use crate::{
    clients::{Server, connect, example},
    common::{HOUR, Random, eventually, paused::paused, runtime},
};

const MS: Duration = Duration::from_millis(1);

fn cache() -> Cache {
    Cache::new(u64::MAX)
}

#[test]
fn a_key_expires_to_the_nanosecond_when_nobody_reads_it() {
    paused(1).block_on(async {
        let cache = cache();
        cache.set("key", "value", 10 * MS).unwrap();
        for _ in 0..3 {
            sleep(10 * MS - Duration::from_nanos(1)).await;
            assert_eq!(cache.left("key"), Some(Some(Duration::from_nanos(1))));
            assert_eq!(cache.get("key").unwrap(), "value");
            assert_eq!(cache.left("key"), Some(Some(10 * MS)));
        }
        sleep(10 * MS + Duration::from_nanos(1)).await;
        assert_eq!(cache.counts.expired.load(Relaxed), 1);
        assert_eq!(cache.counts.bytes.load(Relaxed), 0);
        assert_eq!((cache.get("key"), cache.left("key")), (None, None));
    });
}

#[test]
fn each_change_of_a_key_replaces_its_expiry() {
    let keys = [
        "as it was",
        "again",
        "later",
        "kept",
        "removed",
        "kept and not",
    ];
    paused(1).block_on(async {
        let cache = cache();
        for key in keys {
            cache.set(key, "old", 10 * MS).unwrap();
        }
        cache.set("again", "new", 100 * MS).unwrap();
        assert!(cache.expire("later", 100 * MS));
        assert!(cache.keep("kept"));
        assert!(cache.remove("removed"));
        assert!(cache.keep("kept and not") && cache.expire("kept and not", 20 * MS));
        assert!(!cache.expire("absent", MS) && !cache.keep("absent") && !cache.remove("absent"));
        sleep(50 * MS).await;
        let left = keys.map(|key| cache.left(key));
        let rest = Some(Some(50 * MS));
        assert_eq!(left, [None, rest, rest, Some(None), None, None]);
        assert_eq!(cache.get("again").unwrap(), "new");
        sleep(200 * MS).await;
        assert_eq!(cache.counts.keys.load(Relaxed), 1);
        assert_eq!(cache.counts.expired.load(Relaxed), 4);
    });
}

/// Threads read, move and set keys at about the time when these expire. A read whose answer is a
/// value has put the expiry off, and a value that was set last is not removed by an older timer.
#[test]
fn readers_race_with_timers() {
    const ROUNDS: u64 = 1_000;
    let runtime = runtime(2);
    let cache = Arc::new(cache());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, handle) = (&cache, runtime.handle());
            scope.spawn(move || {
                let _context = handle.enter();
                let mut random = Random::new(thread);
                let own = format!("own {thread}");
                for round in 0..ROUNDS {
                    let shared = format!("shared {}", random.below(2));
                    cache.set(&own, "old", MS).unwrap();
                    cache.set(&shared, "shared", MS).unwrap();
                    thread::sleep(Duration::from_micros(700 + random.below(500)));
                    let value = cache.get(&shared);
                    assert!(value.is_none_or(|value| value == "shared"));
                    let kept = match round % 4 {
                        0 => cache.keep(&own),
                        1 => cache.expire(&own, HOUR),
                        2 => cache.set(&own, "old", HOUR).is_ok(),
                        _ => cache.get(&own).is_some() && cache.expire(&own, HOUR),
                    };
                    // A timer that has begun to run comes to the lock soon.
                    thread::yield_now();
                    assert_eq!(cache.get(&own).is_some(), kept, "{round}");
                    assert_eq!(cache.remove(&own), kept, "{round}");
                }
            });
        }
    });
    eventually("all keys are gone", || {
        cache.counts.keys.load(Relaxed) == 0 && cache.counts.bytes.load(Relaxed) == 0
    });
    assert_eq!(runtime.metrics().total().panics(), 0);
}

#[test]
fn the_limit_of_bytes_is_kept() {
    let runtime = runtime(1);
    let _context = runtime.handle().enter();
    let cache = Cache::new(2 * (OVERHEAD + 8));
    for key in ["key1", "key2"] {
        assert_eq!(cache.set(key, "four", HOUR), Ok(()));
    }
    assert_eq!(cache.set("key3", "four", HOUR), Err(Full));
    assert_eq!(cache.get("key1").unwrap(), "four");
    assert!(cache.remove("key1"));
    assert_eq!(cache.set("key3", "fives", HOUR), Err(Full));
    assert_eq!(cache.set("key3", "four", HOUR), Ok(()));
}

fn serve(args: &[&str]) -> Server {
    let mut server = example("ttl_cache");
    Server::run(server.args(["--listen", "127.0.0.1:0"]).args(args))
}

fn ask(client: &mut BufReader<TcpStream>, request: &str) -> String {
    let request = format!("{request}\n");
    client.get_mut().write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

#[test]
fn the_server_answers_each_request_and_ends_by_a_signal() {
    let server = serve(&["--idle", "1h", "--max-bytes", "1000"]);
    let mut client = BufReader::new(connect(&server));
    for (request, answer) in [
        ("set key a value with blanks", "ok"),
        ("get key", "value a value with blanks"),
        ("keep key", "ok"),
        ("left key", "for ever"),
        ("expire key 1", "ok"),
        (
            "expire key soon",
            "error: milliseconds: invalid digit found in string",
        ),
        ("set other value", "ok"),
        ("remove other", "ok"),
        ("remove other", "none"),
        ("set more", "error: no such request"),
        ("", "error: no such request"),
    ] {
        assert_eq!(ask(&mut client, request), answer, "{request}");
    }
    let long = "x".repeat(1000);
    assert_eq!(ask(&mut client, &format!("set long {long}")), "error: full");
    eventually("the key expires", || {
        ask(&mut client, "count") == "0 keys, 0 bytes, 1 expired"
    });
    assert_eq!(ask(&mut client, "get key"), "none");
    server.signal(libc::SIGTERM);
    let (status, out, err) = server.end();
    assert_eq!(status.code(), Some(0), "{err}");
    assert_eq!((&*out, &*err), ("0 keys, 0 bytes, 1 expired\n", ""));
}

#[test]
fn clients_that_send_no_lines_are_closed() {
    let server = serve(&[]);
    let endless = "x".repeat(64 * 1024 + 1);
    for bytes in [endless.as_bytes(), b"get key", b"get \xff\n"] {
        let mut client = connect(&server);
        // An error: the server has closed the connection, with bytes that it has not read.
        let _ = client.write_all(bytes);
        let _ = client.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        let ended = client.read_to_end(&mut said);
        assert!(
            ended.is_err() || said.is_empty() || said == b"error: no line\n",
            "{said:?}"
        );
    }
    let mut client = BufReader::new(connect(&server));
    assert_eq!(ask(&mut client, "count"), "0 keys, 0 bytes, 0 expired");
}

#[test]
fn invalid_arguments_are_refused() {
    for (args, message) in [
        (&["--idle", "0s"][..], "longer than zero"),
        (&["--max-bytes", "many"], "--max-bytes"),
        (&["--listen", "nowhere"], "cannot listen on nowhere"),
    ] {
        let output = example("ttl_cache").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        let refused = !output.status.success() && err.contains(message);
        assert!(refused, "{args:?}: {err}");
    }
}
