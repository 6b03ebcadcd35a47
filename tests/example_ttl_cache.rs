//! The example `ttl_cache`: what it answers to redis's own clients, and to requests in pieces.

mod clients;

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use clients::{
    have,
    redis::{Redis, Reply, cache, encode},
};

/// What redis-cli shows of a reply to each of these; after a `~`, of a number that gets less, half a minute at most. The
/// errors are those of redis 7.0, to the letter.
const CONVERSATION: &[(&str, &str)] = &[
    ("PING", "PONG"),
    ("ping \"two words\"", "\"two words\""),
    (
        "PING a b",
        "(error) ERR wrong number of arguments for 'ping' command",
    ),
    ("ECHO \"\\x00\\xff\"", "\"\\x00\\xff\""),
    (
        "GET",
        "(error) ERR wrong number of arguments for 'get' command",
    ),
    ("GET nothing", "(nil)"),
    ("SET key value", "OK"),
    ("GET key", "\"value\""),
    ("SET key other NX", "(nil)"),
    ("SET key other XX GET", "\"value\""),
    ("SET nothing value XX", "(nil)"),
    ("SET key value GET", "\"other\""),
    ("SET key x NX XX", "(error) ERR syntax error"),
    ("SET key x EX", "(error) ERR syntax error"),
    ("SET key x EX 1 PX 1", "(error) ERR syntax error"),
    ("SET key x KEEPTTL EX 1", "(error) ERR syntax error"),
    ("SET key x SOON", "(error) ERR syntax error"),
    (
        "SET key x PX 0",
        "(error) ERR invalid expire time in 'set' command",
    ),
    (
        "SET key x PX -1",
        "(error) ERR invalid expire time in 'set' command",
    ),
    (
        "SET key x EX 9223372036854775807",
        "(error) ERR invalid expire time in 'set' command",
    ),
    (
        "SET key x PX 9223372036854775807",
        "(error) ERR invalid expire time in 'set' command",
    ),
    (
        "SET key x PX 9223372036854775808",
        "(error) ERR value is not an integer or out of range",
    ),
    (
        "SET key x PX 01",
        "(error) ERR value is not an integer or out of range",
    ),
    ("GET key", "\"value\""),
    ("TTL key", "(integer) -1"),
    ("PTTL nothing", "(integer) -2"),
    ("EXPIRE key 100", "(integer) 1"),
    ("TTL key", "~100"),
    ("SET key value KEEPTTL", "OK"),
    ("EXPIRE key 100 NX", "(integer) 0"),
    ("EXPIRE key 50 GT", "(integer) 0"),
    ("EXPIRE key 1000 LT", "(integer) 0"),
    ("EXPIRE key 1000 XX GT", "(integer) 1"),
    ("TTL key", "~1000"),
    (
        "EXPIRE key 1 NX GT",
        "(error) ERR NX and XX, GT or LT options at the same time are not compatible",
    ),
    (
        "EXPIRE key 1 GT LT",
        "(error) ERR GT and LT options at the same time are not compatible",
    ),
    ("EXPIRE key 1 SOON", "(error) ERR Unsupported option SOON"),
    (
        "EXPIRE key 9223372036854775807",
        "(error) ERR invalid expire time in 'expire' command",
    ),
    (
        "EXPIRE key soon",
        "(error) ERR value is not an integer or out of range",
    ),
    ("EXPIRE nothing 100", "(integer) 0"),
    ("PERSIST key", "(integer) 1"),
    ("PERSIST key", "(integer) 0"),
    ("EXPIRE key 100 GT", "(integer) 0"),
    ("PEXPIRE key 100000", "(integer) 1"),
    ("TTL key", "~100"),
    ("SET key value", "OK"),
    ("TTL key", "(integer) -1"),
    ("EXPIREAT key 99999999999", "(integer) 1"),
    ("GETEX key PERSIST", "\"value\""),
    ("TTL key", "(integer) -1"),
    ("GETEX key EX 100", "\"value\""),
    ("GETEX key", "\"value\""),
    ("TTL key", "~100"),
    ("GETEX key PERSIST EX 1", "(error) ERR syntax error"),
    (
        "GETEX key PX 0",
        "(error) ERR invalid expire time in 'getex' command",
    ),
    ("PEXPIREAT key 1", "(integer) 1"),
    ("GET key", "(nil)"),
    ("SET key value PXAT 1", "OK"),
    ("GET key", "(nil)"),
    // Of one that is given again the last counts; two do not go together. Of a key that is not there nothing is told.
    ("SET key value PX 10 PX 100000", "OK"),
    ("TTL key", "~100"),
    ("SET key value EX 10 PX 10", "(error) ERR syntax error"),
    ("SET key value PX 10 KEEPTTL", "(error) ERR syntax error"),
    (
        "SET key value EX 10 EX 0",
        "(error) ERR invalid expire time in 'set' command",
    ),
    ("SET key value KEEPTTL KEEPTTL", "OK"),
    ("TTL key", "~100"),
    ("GETEX key EX 10 EX 1000", "\"value\""),
    ("TTL key", "~1000"),
    ("GETEX key PERSIST PERSIST", "\"value\""),
    ("TTL key", "(integer) -1"),
    ("GETEX nothing EX 0", "(nil)"),
    ("GETEX nothing PX soon", "(nil)"),
    ("GETEX nothing EX 1 PX 1", "(error) ERR syntax error"),
    ("SET key value", "OK"),
    ("EXPIRE key -1", "(integer) 1"),
    ("EXISTS key", "(integer) 0"),
    ("SET a 1 EX 100", "OK"),
    ("SET b 2", "OK"),
    ("EXISTS a a b c", "(integer) 3"),
    ("DBSIZE", "(integer) 2"),
    ("DEL a a c", "(integer) 1"),
    ("UNLINK b c", "(integer) 1"),
    ("DBSIZE", "(integer) 0"),
    ("SET a 1 EX 100", "OK"),
    ("FLUSHALL ASYNC", "OK"),
    ("FLUSHDB soon", "(error) ERR syntax error"),
    ("DBSIZE", "(integer) 0"),
    ("SELECT 0", "OK"),
    ("CLIENT SETINFO LIB-NAME test", "OK"),
    ("CLIENT GETNAME", "(nil)"),
    ("CLIENT SETNAME me", "OK"),
    ("CLIENT GETNAME", "\"me\""),
    (
        "CLIENT SETNAME \"a b\"",
        "(error) ERR Client names cannot contain spaces, newlines or special characters.",
    ),
    (
        "CLIENT KILL",
        "(error) ERR unknown subcommand 'KILL'. Try CLIENT HELP.",
    ),
    ("CONFIG GET nothing", "(empty array)"),
    (
        "CONFIG SET a b",
        "(error) ERR unknown subcommand 'SET'. Try CONFIG HELP.",
    ),
    ("COMMAND DOCS get", "(empty array)"),
    (
        "LPUSH list a",
        "(error) ERR unknown command 'LPUSH', with args beginning with: 'list' 'a' ",
    ),
];

#[test]
fn redis_cli_is_answered_as_by_redis() {
    if !have("redis-cli") {
        return;
    }
    let server = cache(&[]);
    let port = server.addr.port().to_string();
    let mut cli = Command::new("redis-cli")
        .args(["-p", &port, "--no-raw"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let commands: String = CONVERSATION
        .iter()
        .map(|(ask, _)| format!("{ask}\n"))
        .collect();
    cli.stdin
        .take()
        .unwrap()
        .write_all(commands.as_bytes())
        .unwrap();
    let output = cli.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{out}");
    // After an error there is an empty line.
    let mut lines = out.lines().filter(|line| !line.is_empty());
    for (ask, answer) in CONVERSATION {
        let line = lines.next().map_or("", str::trim_end);
        match answer.strip_prefix('~') {
            Some(most) => {
                let number = |text: &str| text.parse::<u64>().ok();
                let left = line.strip_prefix("(integer) ").and_then(number);
                let most = number(most).unwrap();
                let fits = left.is_some_and(|left| (most - 30..=most).contains(&left));
                assert!(fits, "{ask}: {line}");
            }
            None => assert_eq!(line, answer.trim_end(), "{ask}"),
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn a_client_that_would_speak_resp3_goes_on_in_resp2() {
    if !have("redis-cli") {
        return;
    }
    let server = cache(&[]);
    let port = server.addr.port().to_string();
    let output = Command::new("redis-cli")
        .args(["-p", &port, "-3", "PING"])
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.ends_with("PONG\n"), "{out}");
    let mut client = Redis::connect(&server);
    let refused = Reply::Error("NOPROTO unsupported protocol version".into());
    assert_eq!(client.ask("HELLO 3"), refused);
    let Reply::Array(hello) = client.ask("HELLO 2") else {
        panic!("a list of what the server is");
    };
    assert_eq!(hello[4..6], [Reply::bulk("proto"), Reply::Integer(2)]);
}

#[test]
fn patterns_stand_for_names_of_the_configuration() {
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
fn replies_come_in_the_order_of_requests_however_these_are_cut() {
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
    // All at once, many times, so that replies are written while requests are left in the buffer.
    for _ in 0..20 {
        client.send(&bytes.repeat(200));
        for _ in 0..200 {
            for reply in &replies {
                assert_eq!(client.reply(), *reply);
            }
        }
    }
    // What comes after a QUIT is not looked at.
    client.send(b"QUIT\r\nSET k gone\r\n");
    assert_eq!(client.end(), b"+OK\r\n");
    let mut client = Redis::connect(&server);
    assert_eq!(client.ask("GET k"), Reply::bulk("a\r\nb"));
}
