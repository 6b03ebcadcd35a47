//! The example `ttl_cache` and redis itself give the same replies to the same random commands.

use std::{
    io::{Read, Write},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    clients::{
        have,
        redis::{Original, Redis, Reply, cache, encode},
    },
    common::Random,
};

/// The number of commands in one course.
const COMMANDS: u64 = 6_000;

/// How the two replies to one command are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alike {
    /// They are equal.
    Equal,
    /// They are equal but for the order of an array's elements.
    Unordered,
    /// They are negative numbers that are equal, or numbers that differ by no more than the time
    /// that has passed, in this unit.
    Within(Duration),
}

/// A generator of random commands.
struct Course {
    random: Random,
    /// When the course began, in milliseconds since 1970.
    began: i64,
}

type Asked = (Vec<Vec<u8>>, Alike);

impl Course {
    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.below(of.len() as u64) as usize]
    }

    fn key(&mut self) -> &'static str {
        self.one_of(&["a", "b", "key:1", "key:2", "Key*3", "k?[x]"])
    }

    fn value(&mut self) -> String {
        let some = ["", "0", "1", "-1", "007", " 1", "9223372036854775807"];
        match self.random.below(10) {
            n @ 0..7 => some[n as usize].into(),
            7 => "-9223372036854775808".into(),
            8 => "x".repeat(self.random.below(3_000) as usize),
            _ => (self.random.next() as i64 >> self.random.below(63)).to_string(),
        }
    }

    fn number(&mut self) -> String {
        match self.random.below(4) {
            0 => self.value(),
            1 => "1".into(),
            _ => self.random.below(1_000).to_string(),
        }
    }

    /// Returns a number of seconds or milliseconds from now. It is so large that no key expires
    /// during the test, or it is not in the future. Two of them are hardly ever the same.
    fn relative(&mut self) -> String {
        match self.random.below(8) {
            0 => self
                .one_of(&["0", "-1", "-5000", "", "x", "1.5", "+1"])
                .into(),
            1 => self
                .one_of(&[
                    "9223372036854775807",
                    "-9223372036854775808",
                    "9223372036854775",
                    "9223372036854776",
                    "-9223372036854776",
                    "9223370399119966",
                    "10000000000000000",
                    "9223372036854770000",
                ])
                .into(),
            _ => (4_000_000 + self.random.below(1 << 40)).to_string(),
        }
    }

    /// Returns a point in time, in the past or far in the future. Some of them are the same.
    fn absolute(&mut self, unit: i64) -> String {
        let now = self.began / unit;
        match self.random.below(8) {
            0 => self
                .one_of(&["0", "-1", "1", "x", "9223372036854775808"])
                .into(),
            1 => self
                .one_of(&[
                    "9223372036854775807",
                    "9223372036854775",
                    "9223372036854776",
                    "-9223372036854770000",
                ])
                .into(),
            2 => (now - 10_000).to_string(),
            _ => {
                // Use whole seconds, so that the points are the same in seconds and in
                // milliseconds.
                let seconds = 10_000_000 + self.random.below(4) as i64 * 777_777;
                ((self.began / 1_000 + seconds) * (1_000 / unit)).to_string()
            }
        }
    }

    /// Returns the words of a time option for `SET` and `GETEX`.
    fn time_option(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("EX {}", self.relative()),
            1 => format!("px {}", self.relative()),
            2 => format!("ExAt {}", self.absolute(1_000)),
            _ => format!("PXAT {}", self.absolute(1)),
        }
    }

    fn pattern(&mut self) -> &'static str {
        self.one_of(&[
            "*",
            "a",
            "?",
            "key:*",
            "key:[0-1]",
            "key:[^1]",
            "K*\\**",
            "k\\?\\[x]",
            "[ab]",
            "[b-a]",
            "key:[",
            "[^",
            "*:*",
            "[kK]*",
            "**3",
            "key:?",
            "[\\a]",
            "x*",
            "\\",
            "k?[[]x]",
            "*]",
        ])
    }

    /// Returns the next command.
    fn next(&mut self) -> Asked {
        use Alike::{Equal, Unordered, Within};
        let key = self.key();
        let other = self.key();
        let value = self.value();
        let mut alike = Equal;
        // Tabs separate the words, since no word contains one.
        let text = match self.random.below(44) {
            0..4 => {
                let mut text = format!("SET\t{key}\t{value}");
                for _ in 0..self.random.below(4) {
                    text += "\t";
                    text += &match self.random.below(6) {
                        0..3 => self.time_option().replace(' ', "\t"),
                        3 => "GET".into(),
                        4 => "KEEPTTL".into(),
                        _ => self.one_of(&["nx", "XX", "PERSIST", "EX"]).into(),
                    };
                }
                text
            }
            4..7 => format!("GET\t{key}"),
            7..10 => {
                let amount = match self.random.below(2) {
                    0 => format!("EXPIRE\t{key}\t{}", self.relative()),
                    _ => format!("pexpire\t{key}\t{}", self.relative()),
                };
                amount + self.expire_options()
            }
            10..14 => {
                let amount = match self.random.below(2) {
                    0 => format!("EXPIREAT\t{key}\t{}", self.absolute(1_000)),
                    _ => format!("PEXPIREAT\t{key}\t{}", self.absolute(1)),
                };
                amount + self.expire_options()
            }
            14 | 15 => {
                alike = Within(Duration::from_secs(1));
                format!("{}\t{key}", self.one_of(&["TTL", "EXPIRETIME"]))
            }
            16 | 17 => {
                alike = Within(Duration::from_millis(1));
                format!("{}\t{key}", self.one_of(&["PTTL", "PEXPIRETIME"]))
            }
            18 => format!("PERSIST\t{key}"),
            19 | 20 => format!("SETEX\t{key}\t{}\t{value}", self.relative()),
            21 => format!("PSETEX\t{key}\t{}\t{value}", self.relative()),
            22 => format!("SETNX\t{key}\t{value}"),
            23 => format!("GETSET\t{key}\t{value}"),
            24 => format!("GETDEL\t{key}"),
            25 | 26 => {
                let mut text = format!("GETEX\t{key}");
                for _ in 0..self.random.below(3) {
                    text += "\t";
                    text += &match self.random.below(4) {
                        0 => "PERSIST".into(),
                        _ => self.time_option().replace(' ', "\t"),
                    };
                }
                text
            }
            27 => format!("MGET\t{key}\t{other}\tnothing\t{key}"),
            28 => format!("MSET\t{key}\t{value}\t{other}\t{}", self.value()),
            29 => format!("MSET\t{key}\t{value}\t{other}"),
            30 => format!("{}\t{key}", self.one_of(&["INCR", "DECR"])),
            31 | 32 => format!(
                "{}\t{key}\t{}",
                self.one_of(&["INCRBY", "DECRBY"]),
                self.number()
            ),
            33 => format!("APPEND\t{key}\t{value}"),
            34 => format!("STRLEN\t{key}"),
            35 => format!("TYPE\t{key}"),
            36 => format!(
                "{}\t{key}\t{other}\t{key}",
                self.one_of(&["DEL", "UNLINK", "EXISTS"])
            ),
            37 | 38 => {
                alike = Unordered;
                format!("KEYS\t{}", self.pattern())
            }
            39 => {
                alike = Unordered;
                // The count is so high that one reply has all keys.
                let kind = self.one_of(&["string", "list", "STRING"]);
                format!(
                    "SCAN\t0\tMATCH\t{}\tCOUNT\t100\tTYPE\t{kind}",
                    self.pattern()
                )
            }
            40 => self
                .one_of(&[
                    "SCAN\t0\tCOUNT\t0",
                    "SCAN\tx",
                    "SCAN\t0\tMATCH",
                    "SCAN\t0\tCOUNT\tx",
                ])
                .into(),
            41 => self
                .one_of(&[
                    "DBSIZE",
                    "FLUSHALL\tx",
                    "flushdb",
                    "SELECT\tx",
                    "SELECT\t0",
                    "ECHO\thi",
                ])
                .into(),
            42 => self
                .one_of(&[
                    "HELLO\t4",
                    "HELLO\tx",
                    "HELLO\t3\tSETNAME",
                    "HELLO\t2\tAUTH\tx",
                    "AUTH\tx",
                    "HELLO\t2\tAUTH\tx\ty",
                    "AUTH\tx\ty",
                    "AUTH\tdefault\ty",
                    "AUTH\tx\ty\tz",
                    "CLIENT\tGETNAME",
                    "CLIENT\tSETNAME\tme",
                    "CLIENT\tLIST\tTYPE\tx",
                    "CLIENT\tLIST\tID\tx",
                    "CLIENT\tLIST\tTYPE\tmaster",
                    "FUNCTION\tFLUSH",
                    "CONFIG\tGET\tappendonl[y]",
                    "CONFIG\tGET\tnothing",
                    "COMMAND\tDOCS\tnothing",
                ])
                .into(),
            _ => {
                let name = self.one_of(&["GET", "setex", "TTL", "keys", "MGET", "incrby", "time"]);
                format!("{name}\ta\tb\tc\td")
            }
        };
        (words(&text), alike)
    }

    fn expire_options(&mut self) -> &'static str {
        self.one_of(&[
            "", "", "\tNX", "\txx", "\tGT", "\tgt", "\tlt", "\tXX\tGT", "\tXX\tLT", "\tNX\tLT",
            "\tGT\tLT", "\tX",
        ])
    }
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split('\t')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

fn ask(client: &mut Redis<impl Read + Write>, words: &[Vec<u8>]) -> Reply {
    let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
    client.send(&encode(&words));
    client.reply()
}

/// Sorts the keys of a reply: those of `KEYS`, and those after a cursor of `SCAN`.
fn sorted(reply: Reply) -> Reply {
    match reply {
        Reply::Array(mut elements) => {
            elements = elements.into_iter().map(sorted).collect();
            elements.sort_by_key(|element| format!("{element:?}"));
            Reply::Array(elements)
        }
        other => other,
    }
}

fn assert_alike(asked: &Asked, ours: Reply, theirs: Reply, passed: Duration) {
    let text: Vec<_> = asked
        .0
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    match (asked.1, ours, theirs) {
        (Alike::Equal, ours, theirs) => assert_eq!(ours, theirs, "{text:?}"),
        (Alike::Unordered, ours, theirs) => assert_eq!(sorted(ours), sorted(theirs), "{text:?}"),
        (Alike::Within(unit), Reply::Integer(ours), Reply::Integer(theirs))
            if ours >= 0 && theirs >= 0 =>
        {
            let most = passed.as_nanos().div_ceil(unit.as_nanos()) + 1;
            let differ = u128::from(ours.abs_diff(theirs));
            assert!(differ <= most, "{text:?}: {ours}, and {theirs} of redis");
        }
        (Alike::Within(_), ours, theirs) => assert_eq!(ours, theirs, "{text:?}"),
    }
}

#[test]
fn random_commands_are_answered_as_by_redis() {
    if !have("redis-server") {
        return;
    }
    let (server, mut original) = (cache(&[]), Original::start());
    for (seed, hello) in [(1, "HELLO 2"), (2, "HELLO 3")] {
        let mut ours = Redis::connect(&server);
        let mut theirs = Redis::over(original.connect());
        for command in [hello, "FLUSHALL"] {
            ours.ask(command);
            theirs.ask(command);
        }
        let (start, now) = (Instant::now(), SystemTime::now());
        let began = now.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let random = Random::new(seed);
        let began = began as i64;
        let mut course = Course { random, began };
        for step in 0..COMMANDS {
            let asked = course.next();
            let our_reply = ask(&mut ours, &asked.0);
            let their_reply = ask(&mut theirs, &asked.0);
            assert_alike(&asked, our_reply, their_reply, start.elapsed());
            // A reply may hide what a command has done. These commands show what it did to its
            // key.
            if let Some(key) = asked.0.get(1).filter(|_| step % 3 == 0) {
                for (look, alike) in [
                    (&b"GET"[..], Alike::Equal),
                    (b"PEXPIRETIME", Alike::Within(Duration::from_millis(1))),
                ] {
                    let looked = (vec![look.to_vec(), key.clone()], alike);
                    let our_reply = ask(&mut ours, &looked.0);
                    let their_reply = ask(&mut theirs, &looked.0);
                    assert_alike(&looked, our_reply, their_reply, start.elapsed());
                }
            }
        }
    }
}

/// Asks for a key that has expired. Returns the reply, and what the key is then.
fn ask_expired(client: &mut Redis<impl Read + Write>, look: &str, active: &str) -> [Reply; 3] {
    client.ask(&format!("DEBUG SET-ACTIVE-EXPIRE {active}"));
    client.ask("FLUSHALL");
    client.ask("SET k 1 PX 1");
    thread::sleep(Duration::from_millis(5));
    let reply = client.ask(look);
    // A new key does not have the deadline of the old one.
    [reply, client.ask("GET k"), min_100(client.ask("TTL k"))]
}

#[test]
fn expired_keys_are_gone_for_each_command_as_in_redis() {
    if !have("redis-server") {
        return;
    }
    let (server, mut original) = (cache(&[]), Original::start());
    let mut ours = Redis::connect(&server);
    let mut theirs = Redis::over(original.connect());
    for look in [
        "GET k",
        "GETEX k",
        "GETDEL k",
        "GETSET k 2",
        "SETNX k 2",
        "SET k 2 XX",
        "SET k 2 NX GET",
        "SET k 2 KEEPTTL",
        "MGET k k",
        "INCR k",
        "APPEND k x",
        "STRLEN k",
        "TYPE k",
        "EXISTS k",
        "DEL k",
        "TTL k",
        "PTTL k",
        "EXPIRETIME k",
        "PEXPIRETIME k",
        "PERSIST k",
        "EXPIRE k 100",
        "EXPIRE k 100 XX",
        "KEYS *",
        "SCAN 0",
        "MSET k 2",
    ] {
        // Once with timers that remove keys, and once with keys that stay until a command uses
        // them.
        for active in ["1", "0"] {
            let our_replies = ask_expired(&mut ours, look, active);
            let their_replies = ask_expired(&mut theirs, look, active);
            assert_eq!(our_replies, their_replies, "{look}");
        }
    }
}

/// Replaces a positive number by 100, so that the comparison does not depend on the speed of the
/// machine.
fn min_100(reply: Reply) -> Reply {
    match reply {
        Reply::Integer(1..) => Reply::Integer(100),
        other => other,
    }
}
