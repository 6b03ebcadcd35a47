//! Text that clients have chosen cannot make the terminal of an example do something.

use std::{
    io::{BufRead, BufReader, Write},
    process::Command,
};

use crate::{
    clients::{
        Server, connect, example, have,
        output::{HOSTILE, complains_tame, is_tame},
    },
    common::say,
};

#[test]
fn no_invisible_character_is_shown() {
    // Perl has the tables of Unicode.
    if !have("perl") {
        return;
    }
    let print = r#"for (0..0xd7ff, 0xe000..0x10ffff) {
        print "$_\n" if chr($_) =~ /[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/
    }"#;
    let output = Command::new("perl").args(["-e", print]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().map(|line| line.parse::<u32>().unwrap());
    let invisible: Vec<_> = found.filter_map(char::from_u32).collect();
    assert!(invisible.len() > 4000, "{}", invisible.len());
    let is_raw = |c: &char| say::shown(&c.to_string()).to_string().contains(*c);
    let raw: Vec<_> = invisible.into_iter().filter(is_raw).collect();
    assert!(raw.is_empty(), "{raw:?}");
}

#[test]
fn letters_and_accents_are_shown_as_they_are() {
    let text = "Zo\u{eb} e\u{301} \u{d55c} \u{1112}\u{1161} \u{5d0} \u{e01} \u{1f600} \"it's\" \\";
    assert_eq!(say::shown(text).to_string(), text);
    let hidden = "pay\u{3164}roll a\u{fe0f} \u{e0041}\u{2060}";
    let shown = say::shown(hidden).to_string();
    assert_eq!(shown, "pay\\u{3164}roll a\\u{fe0f} \\u{e0041}\\u{2060}");
}

#[test]
fn a_chat_prints_its_journal_tame() {
    // A line of a client ends where the text has a line feed.
    let text = HOSTILE.replace('\n', "");
    for program in ["chat_tokio", "chat_tourbillon"] {
        let server = Server::run(example(program).arg("127.0.0.1:0"));
        let mut stream = connect(&server);
        writeln!(stream, "{text}").unwrap();
        let lines = BufReader::new(stream).lines();
        // The text came to its room, and so to the journal.
        let mut said = lines.map(|line| line.unwrap());
        assert!(said.any(|line| line.contains("owned")));
        server.signal(libc::SIGTERM);
        let (status, out, err) = server.end();
        assert!(status.success(), "{err}");
        is_tame(out.as_bytes());
        assert!(out.contains("\\u{1b}]0;owned\\u{7}\\u{9b}31m"), "{out}");
    }
}

#[test]
fn arguments_are_quoted_tame() {
    for program in [
        "cron_jobs",
        "delayed_reply",
        "game_cooldowns",
        "heartbeat",
        "live_chat",
        "retry_proxy",
        "ttl_cache",
    ] {
        complains_tame(example(program).arg(HOSTILE));
    }
    complains_tame(example("cron_jobs").args(["--file", HOSTILE]));
}
