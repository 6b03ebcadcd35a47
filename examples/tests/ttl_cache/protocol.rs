//! The example `ttl_cache`: what it answers to redis's client libraries, and to requests in pieces.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::clients::{
    AGES, have,
    redis::{Redis, Reply, cache, encode},
};

/// Returns the bytes of the reply to `HELLO 3` for the client with this number.
fn hello_3(id: u64) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let length = version.len();
    format!(
        "%7\r\n$6\r\nserver\r\n$9\r\nttl_cache\r\n$7\r\nversion\r\n${length}\r\n{version}\r\n\
         $5\r\nproto\r\n:3\r\n$2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n\
         $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
    )
    .into_bytes()
}

#[test]
fn client_libraries_can_start_with_resp3() {
    let server = cache(&[]);
    // These are the commands that redis-py 8.1 and node-redis 6.3 send when they connect. The
    // former waits for each reply, the latter does not.
    let unknown = b"-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n".as_slice();
    let mut python = Redis::connect(&server);
    for (ask, reply) in [
        (&b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"[..], &hello_3(1)[..]),
        (
            b"*5\r\n$6\r\nCLIENT\r\n$19\r\nMAINT_NOTIFICATIONS\r\n$2\r\nON\r\n\
              $20\r\nmoving-endpoint-type\r\n$13\r\ninternal-fqdn\r\n",
            unknown,
        ),
        (
            b"*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$8\r\nredis-py\r\n",
            b"+OK\r\n",
        ),
        (
            b"*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n8.1.0\r\n",
            b"+OK\r\n",
        ),
    ] {
        python.send(ask);
        python.expect(reply);
    }
    let mut node = Redis::connect(&server);
    node.send(
        b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
          *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n6.3.1\r\n\
          *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$10\r\nnode-redis\r\n\
          *5\r\n$6\r\nCLIENT\r\n$19\r\nMAINT_NOTIFICATIONS\r\n$2\r\nON\r\n\
          $20\r\nmoving-endpoint-type\r\n$11\r\nexternal-ip\r\n",
    );
    node.expect(&[&hello_3(2)[..], b"+OK\r\n+OK\r\n", unknown].concat());
    // A list of clients tells them apart.
    let Reply::Text(list) = node.ask("CLIENT LIST") else {
        panic!("CLIENT LIST is text");
    };
    let lines: Vec<_> = list.lines().collect();
    let [python_line, node_line] = lines[..] else {
        panic!("not two clients: {list}");
    };
    assert!(python_line.starts_with("id=1 addr=127.0.0.1:"), "{list}");
    let what = "cmd=client user=default redir=-1 resp=3 lib-name=redis-py lib-ver=8.1.0";
    assert!(python_line.ends_with(what), "{list}");
    assert!(
        node_line.ends_with("lib-name=node-redis lib-ver=6.3.1"),
        "{list}"
    );
    let own = node.ask("CLIENT INFO");
    assert_eq!(own, node.ask("CLIENT LIST ID 2"));
    assert_eq!(node.ask("CLIENT LIST ID 3 4"), Reply::Text(String::new()));
    let peer = node.stream().local_addr().unwrap();
    assert!(node_line.contains(&format!(" addr={peer} ")), "{list}");
    // A client that has closed its connection disappears from the list.
    drop(python);
    let start = Instant::now();
    while node.ask("CLIENT LIST ID 1") != Reply::Text(String::new()) {
        assert!(start.elapsed() < AGES, "the client is still listed");
    }
}

#[test]
fn a_connection_uses_the_protocol_it_last_asked_for() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    let mut says = |ask: &str, reply: &str| {
        client.send(format!("{ask}\r\n").as_bytes());
        client.expect(reply.as_bytes());
    };
    let in_2 = [
        ("GET nothing", "$-1\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("INFO nothing", "$0\r\n\r\n"),
        ("COMMAND DOCS get", "*0\r\n"),
    ];
    let in_3 = [
        ("GET nothing", "_\r\n"),
        ("CONFIG GET save", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("INFO nothing", "=4\r\ntxt:\r\n"),
        ("COMMAND DOCS get", "%0\r\n"),
    ];
    let check = |says: &mut dyn FnMut(&str, &str), replies: &[(&str, &str)]| {
        for (ask, reply) in replies {
            says(ask, reply);
        }
    };
    check(&mut says, &in_2);
    let hello_3 = String::from_utf8(hello_3(1)).unwrap();
    says("HELLO 3 AUTH default any SETNAME me", &hello_3);
    check(&mut says, &in_3);
    // Without a version, `HELLO` reports the current one. A refused `HELLO` changes nothing.
    says("HELLO", &hello_3);
    says("HELLO 4", "-NOPROTO unsupported protocol version\r\n");
    says(
        "HELLO 2 AUTH me secret",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    );
    says(
        "HELLO 2 WHAT",
        "-ERR Syntax error in HELLO option 'WHAT'\r\n",
    );
    check(&mut says, &in_3);
    says("CLIENT GETNAME", "$2\r\nme\r\n");
    says("RESET", "+RESET\r\n");
    check(&mut says, &in_2);
    says("CLIENT GETNAME", "$-1\r\n");
}

#[test]
fn the_largest_deadline_is_reported_exactly() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    let last = i64::MAX;
    let left_ms = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        last - now.as_millis() as i64
    };
    let mut ask = |ask: &str| match client.ask(ask) {
        Reply::Integer(number) => number,
        other => panic!("{other:?}"),
    };
    ask("SETNX key value");
    assert_eq!(ask(&format!("PEXPIREAT key {last}")), 1);
    let most = left_ms();
    let (pttl, ttl) = (ask("PTTL key"), ask("TTL key"));
    let least = left_ms();
    assert!((least..=most).contains(&pttl), "{pttl}");
    let rounded = |ms: i64| (ms + 500) / 1_000;
    assert!((rounded(least)..=rounded(most)).contains(&ttl), "{ttl}");
    assert_eq!(ask("PEXPIRETIME key"), last);
    // As redis-server 7.0.15 has it.
    assert_eq!(ask("EXPIRETIME key"), 9_223_372_036_854_776);
    assert_eq!(ask(&format!("PEXPIREAT key {last} GT")), 0);
    assert_eq!(ask(&format!("PEXPIREAT key {} LT", last - 1)), 1);
    assert_eq!(ask("PEXPIRETIME key"), last - 1);
}

#[test]
fn config_get_accepts_patterns() {
    let server = cache(&["--max-clients", "77"]);
    let mut client = Redis::connect(&server);
    let mut names = |patterns: &str| {
        let Reply::Array(pairs) = client.ask(&format!("CONFIG GET {patterns}")) else {
            panic!("names and values");
        };
        let name = |pair: &[Reply]| match &pair[0] {
            Reply::Bulk(name) => String::from_utf8(name.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        pairs.chunks(2).map(name).collect::<Vec<_>>()
    };
    let max = ["maxclients", "maxmemory", "maxmemory-policy"];
    assert_eq!(names("max*"), max);
    assert_eq!(names("MAX*Y*"), max[1..]);
    assert_eq!(names("*-*-*-*"), ["proto-max-bulk-len"]);
    assert_eq!(names("?ave maxm*y"), ["save", max[1], max[2]]);
    assert_eq!(names("maxmemory?"), [""; 0]);
    assert_eq!(names("m*s*s*"), [""; 0]);
    assert_eq!(names("**").len(), 8);
    let value = client.ask("CONFIG GET maxc*");
    let expected = ["maxclients", "77"].map(Reply::bulk);
    assert_eq!(value, Reply::Array(expected.into()));
}

#[test]
fn redis_benchmark_sees_no_error() {
    if !have("redis-benchmark") {
        return;
    }
    let server = cache(&[]);
    let port = server.addr.port().to_string();
    for also in [
        &["-t", "ping,set,get"][..],
        &["SET", "key:__rand_int__", "value", "PX", "20"],
    ] {
        let output = Command::new("redis-benchmark")
            .args(["-p", &port, "-P", "16", "-n", "50000", "-r", "1000", "-q"])
            .args(also)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && err.is_empty(), "{out} {err}");
        assert!(out.contains(" requests per second"), "{out}");
        assert!(!out.to_lowercase().contains("err"), "{out}");
    }
    let mut client = Redis::connect(&server);
    assert!(client.info("total_commands_processed") >= 200_000);
    assert_eq!(client.info("panics"), 0);
}

#[test]
fn replies_keep_the_order_of_requests_however_these_are_split() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    let mut bytes = b"set inline '1 2'\r\n\r\n".to_vec();
    bytes.extend(encode(&[b"SET", b"k", b"a\r\nb"]));
    bytes.extend(b"*0\r\nGET k\nGET inline\r\n");
    bytes.extend(encode(&[b"ECHO", b""]));
    let replies = [
        Reply::ok(),
        Reply::ok(),
        Reply::bulk("a\r\nb"),
        Reply::bulk("1 2"),
        Reply::bulk(""),
    ];
    for cut in 0..=bytes.len() {
        let (first, second) = bytes.split_at(cut);
        client.send(first);
        thread::sleep(Duration::from_micros(200));
        client.send(second);
        for reply in &replies {
            assert_eq!(client.reply(), *reply, "cut at {cut}");
        }
    }
    // Send everything at once and many times, so that the server writes replies while requests
    // are left in its buffer.
    for _ in 0..20 {
        client.send(&bytes.repeat(200));
        for _ in 0..200 {
            for reply in &replies {
                assert_eq!(client.reply(), *reply);
            }
        }
    }
    // The server ignores commands after a QUIT.
    client.send(b"QUIT\r\nSET k gone\r\n");
    assert_eq!(client.end(), b"+OK\r\n");
    let mut client = Redis::connect(&server);
    assert_eq!(client.ask("GET k"), Reply::bulk("a\r\nb"));
}
