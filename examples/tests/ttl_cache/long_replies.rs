//! The example `ttl_cache`: long replies take no more memory than short ones.

use std::collections::HashSet;

use crate::clients::redis::{Redis, Reply, cache, encode, with_a_big_value};

const MB: u64 = 1 << 20;

fn too_long(most: usize) -> Reply {
    Reply::Error(format!(
        "ERR the reply would be longer than {most} bytes (--max-bulk); SCAN has no such limit"
    ))
}

#[test]
fn large_replies_are_built_as_the_client_reads() {
    let (server, mut client, value) = with_a_big_value();
    let before = server.memory();
    // Ask for one GB of values, and do not read the reply.
    let mut request = vec![&b"MGET"[..]];
    request.extend([&b"big"[..]; 1_000]);
    request.push(b"nothing");
    let mut slow = Redis::connect(&server);
    slow.send(&encode(&request));
    slow.expect(b"*1001\r\n$1048576\r\n");
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 64 * MB, "{grown} bytes more");
    // Once the client reads, the replies are complete. The next command waits for its turn.
    slow.send(b"PING\r\n");
    let end = [&value[..], b"\r\n"].concat();
    slow.expect(&end);
    for _ in 1..1_000 {
        assert_eq!(slow.reply(), Reply::Bulk(value.clone()));
    }
    assert_eq!(slow.reply(), Reply::Null);
    assert_eq!(slow.reply(), Reply::Simple("PONG".into()));
    assert_eq!(client.info("panics"), 0);
}

#[test]
fn keys_is_refused_if_its_reply_is_too_long_but_scan_works() {
    let server = cache(&["--max-bulk", "16k"]);
    let mut client = Redis::connect(&server);
    let keys: HashSet<_> = (0..2_000).map(|n| format!("key:{n}")).collect();
    for key in &keys {
        assert_eq!(client.ask(&format!("SET {key} value")), Reply::ok());
    }
    assert_eq!(client.ask("KEYS *"), too_long(16 * 1024));
    assert_eq!(
        client.ask("KEYS key:1234"),
        Reply::Array(vec![Reply::bulk("key:1234")])
    );
    let mut scan = |options: &str| {
        let (mut cursor, mut calls, mut found) = ("0".to_owned(), 0, Vec::new());
        loop {
            let reply = client.ask(&format!("SCAN {cursor}{options}"));
            let Reply::Array(reply) = reply else {
                panic!("{reply:?}");
            };
            let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else {
                panic!("{reply:?}");
            };
            calls += 1;
            found.extend(keys.iter().map(|key| match key {
                Reply::Bulk(key) => String::from_utf8(key.clone()).unwrap(),
                other => panic!("{other:?}"),
            }));
            cursor = String::from_utf8(next.clone()).unwrap();
            if cursor == "0" {
                return (calls, found);
            }
        }
    };
    for options in ["", " COUNT 1", " COUNT 777", " COUNT 1000000"] {
        let (calls, found) = scan(options);
        assert_eq!(found.len(), keys.len(), "{options}");
        assert_eq!(HashSet::from_iter(found), keys, "{options}");
        match options {
            " COUNT 1000000" => assert_eq!(calls, 1),
            " COUNT 777" => assert_eq!(calls, 3),
            _ => assert!(calls > 100, "{options}: {calls}"),
        }
    }
    assert_eq!(scan(" TYPE list").1.len(), 0);
    assert_eq!(scan(" MATCH key:99?").1.len(), 10);
}

#[test]
fn a_long_reply_to_keys_is_complete_and_in_order() {
    const KEYS: usize = 30_000;
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    for first in (0..KEYS).step_by(1_000) {
        let pairs = (first..first + 1_000).map(|n| format!(" key:{n} value"));
        let pairs: String = pairs.collect();
        assert_eq!(client.ask(&format!("MSET{pairs}")), Reply::ok());
    }
    client.send(b"PING\r\nKEYS key:*\r\nGET key:7\r\n");
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    let Reply::Array(keys) = client.reply() else {
        panic!("a list of keys");
    };
    assert_eq!(keys.len(), KEYS);
    let keys: HashSet<_> = keys.iter().map(|key| format!("{key:?}")).collect();
    assert_eq!(keys.len(), KEYS);
    assert_eq!(client.reply(), Reply::bulk("value"));
}

#[test]
fn a_scan_of_long_keys_returns_few_per_call() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    let long = "x".repeat(100_000);
    for n in 0..50 {
        assert_eq!(client.ask(&format!("SET {long}{n} value")), Reply::ok());
    }
    let Reply::Array(reply) = client.ask("SCAN 0 COUNT 1000") else {
        panic!("a cursor, and keys");
    };
    let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else {
        panic!("{reply:?}");
    };
    assert_ne!(next, b"0");
    assert_eq!(keys.len(), 1);
}

#[test]
fn a_list_of_clients_with_long_names_is_refused() {
    let server = cache(&["--max-bulk", "16k"]);
    let name = "x".repeat(1_024);
    let mut clients: Vec<_> = (0..20).map(|_| Redis::connect(&server)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(
            client.ask(&format!("CLIENT SETNAME {name}")),
            Reply::ok(),
            "{n}"
        );
    }
    assert_eq!(clients[0].ask("CLIENT LIST"), too_long(16 * 1024));
    let Reply::Bulk(line) = clients[0].ask("CLIENT LIST ID 5") else {
        panic!("the line of one client");
    };
    assert!(line.starts_with(b"id=5 "));
}

#[test]
fn costly_requests_have_a_length_limit() {
    let server = cache(&["--max-bulk", "2k"]);
    let mut client = Redis::connect(&server);
    let pattern = "*".repeat(1_024);
    assert_eq!(client.ask(&format!("KEYS {pattern}")), Reply::Array(vec![]));
    let refused = Reply::Error("ERR a pattern has at most 1024 bytes".into());
    assert_eq!(client.ask(&format!("KEYS {pattern}*")), refused);
    assert_eq!(client.ask(&format!("SCAN 0 MATCH {pattern}*")), refused);
    // A value cannot grow to more than a client may send in one request.
    let half = "x".repeat(1_024);
    assert_eq!(
        client.ask(&format!("APPEND key {half}")),
        Reply::Integer(1_024)
    );
    assert_eq!(
        client.ask(&format!("APPEND key {half}")),
        Reply::Integer(2_048)
    );
    let refused = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(client.ask("APPEND key x"), Reply::Error(refused.into()));
    assert_eq!(client.ask("STRLEN key"), Reply::Integer(2_048));
}

#[test]
fn values_that_grow_in_place_keep_the_memory_limit() {
    let server = cache(&["--max-memory", "4k"]);
    let mut client = Redis::connect(&server);
    let full = Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    let value = "x".repeat(1_000);
    let mut length = 0;
    loop {
        match client.ask(&format!("APPEND key {value}")) {
            Reply::Integer(now) => length = now,
            reply => break assert_eq!(reply, full),
        }
    }
    assert_eq!(length, 3_000);
    assert_eq!(client.ask("STRLEN key"), Reply::Integer(3_000));
    assert_eq!(client.ask("MSET a 1 b 2 c 3"), full);
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(1));
    assert_eq!(client.ask("MSET a 1 b 2"), Reply::ok());
    assert_eq!(client.ask("INCR c"), full);
    assert_eq!(client.ask("INCR b"), Reply::Integer(3));
}
