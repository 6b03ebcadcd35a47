//! The example `ttl_cache`, asked by redis-cli.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::clients::{have, redis::cache};

/// Commands, and the output of redis-cli for each. `~` stands for a number that decreases, by half
/// a minute at most. The errors are exactly those of redis 7.0.
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
    // If an option is repeated, the last one counts. Two different expiry options are an error. For
    // an absent key the expiry time is not checked.
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
    ("SETEX key 100 value", "OK"),
    ("TTL key", "~100"),
    ("APPEND key s", "(integer) 6"),
    ("TTL key", "~100"),
    ("STRLEN key", "(integer) 6"),
    ("GETSET key 9", "\"values\""),
    ("TTL key", "(integer) -1"),
    ("INCRBY key 11", "(integer) 20"),
    ("TYPE key", "string"),
    ("KEYS k[a-f]*", "1) \"key\""),
    ("GETDEL key", "\"20\""),
    ("TYPE key", "none"),
    ("KEYS *", "(empty array)"),
    (
        "SETEX key 0 value",
        "(error) ERR invalid expire time in 'setex' command",
    ),
    (
        "MSET a 1 b",
        "(error) ERR wrong number of arguments for 'mset' command",
    ),
    (
        "AUTH secret",
        "(error) ERR AUTH <password> called without any password configured for the default \
         user. Are you sure your configuration is correct?",
    ),
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
fn redis_cli_speaks_resp3() {
    if !have("redis-cli") {
        return;
    }
    let server = cache(&[]);
    let port = server.addr.port().to_string();
    for (ask, answer) in [
        (&["PING"][..], "PONG\n"),
        (&["GET", "nothing"], "(nil)\n"),
        (
            &["CONFIG", "GET", "save", "appendonly"],
            "1# \"save\" => \"\"\n2# \"appendonly\" => \"no\"\n",
        ),
        (&["MSET", "a", "1", "b", "2"], "OK\n"),
        (&["MGET", "a", "b", "c"], "1) \"1\"\n2) \"2\"\n3) (nil)\n"),
    ] {
        let output = Command::new("redis-cli")
            .args(["-p", &port, "-3", "--no-raw"])
            .args(ask)
            .output()
            .unwrap();
        let (out, err) = (output.stdout, output.stderr);
        assert_eq!(String::from_utf8_lossy(&out), answer, "{ask:?}");
        assert_eq!(String::from_utf8_lossy(&err), "", "{ask:?}");
    }
}
