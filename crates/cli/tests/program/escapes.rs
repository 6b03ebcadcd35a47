//! Text that others have chosen cannot make the terminal do something.

use std::{fs, io::Write};

use serde_json::json;

use crate::{
    clients::{
        output::{HOSTILE, complains_tame, is_tame},
        tourbillon,
    },
    common::{alarm, unix::Dir},
    hostile_pages::{once, send, serve, snapshot},
};

#[test]
fn a_trace_is_printed_tame() {
    let directory = Dir::new();
    let path = directory.path("trace.json");
    let cause = json!({ "cause": HOSTILE, "timers": 2, "worst_us": 1, "sum_us": 2 });
    let trace = json!({
        "recording": HOSTILE, "workers": 2, "events": 1,
        "late": [{ "text": HOSTILE, "spans": [] }], "causes": [cause],
    });
    fs::write(&path, json!({ "tourbillon": trace }).to_string()).unwrap();
    let output = tourbillon().arg("trace").arg(&path).output().unwrap();
    assert!(output.status.success());
    is_tame(&output.stdout);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("- \\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{9b}31m"),
        "{text}"
    );
    assert!(
        !text.lines().any(|line| line.starts_with("forged")),
        "{text}"
    );
}

#[test]
fn top_draws_tame_text() {
    let _alarm = alarm();
    let addr = serve(|number, request, stream| {
        let page = match request.contains("/tasks.json") {
            false => snapshot(number, HOSTILE),
            true => json!({ "alive": 1, "tasks": [{
                "id": HOSTILE, "name": HOSTILE, "spawned": HOSTILE, "state": HOSTILE,
                "worker": 0, "waits_for": [HOSTILE], "polls": 1, "busy_ms": 1,
            }] }),
        };
        send(stream, page.to_string().as_bytes());
    });
    for args in [&["--columns", "400"][..], &["--columns", "400", "--tasks"]] {
        let output = once(addr, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        is_tame(&output.stdout);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("\\u{202e}\\u{2066}"), "{text}");
    }
}

#[test]
fn top_complains_in_tame_text() {
    let _alarm = alarm();
    let answers = [
        format!("HTTP/1.0 500 {HOSTILE}\r\n\r\n"),
        format!(
            "HTTP/1.0 200 OK\r\n\r\n{}",
            json!({ "tourbillon": HOSTILE, "pid": HOSTILE })
        ),
    ];
    // The complaints hold the text: the first line of the first answer, and a part of the second.
    for (answer, text) in answers.into_iter().zip([
        "answers \"HTTP/1.0 500 \\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{9b}31m\"",
        "\\u{202e}\\u{2066}\\u{2028}",
    ]) {
        let complains = |first: bool| {
            let answer = answer.clone();
            let addr = serve(move |number, _, mut stream| {
                if number == 0 && !first {
                    return send(stream, snapshot(number, "x").to_string().as_bytes());
                }
                let _ = stream.write_all(answer.as_bytes());
            });
            once(addr, &["--columns", "400"])
        };
        let output = complains(true);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        is_tame(&output.stderr);
        assert!(said.contains(text), "{said}");
        // The screen says why there are no newer figures.
        let output = complains(false);
        let screen = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{screen}");
        is_tame(&output.stdout);
        assert!(screen.contains(text), "{screen}");
    }
}

#[test]
fn arguments_are_quoted_tame() {
    for command in [
        &[HOSTILE][..],
        &["trace", HOSTILE],
        &["trace", "a", HOSTILE],
        &["trace", "--top", HOSTILE],
        &["top", HOSTILE],
        &["storm", "--timers", HOSTILE],
        &["serve", "--delay", HOSTILE],
    ] {
        complains_tame(tourbillon().args(command));
    }
    // A value may also be behind the name of its option.
    complains_tame(tourbillon().args(["serve", &format!("--idle={HOSTILE}")]));
}

#[test]
fn names_of_files_are_shown_tame() {
    let directory = Dir::new();
    let wrong = directory.path(HOSTILE);
    fs::write(&wrong, "{}").unwrap();
    complains_tame(tourbillon().arg("trace").arg(&wrong));
    // There is no such directory.
    let absent = wrong.join("trace.json");
    let storm = [
        "storm", "--timers", "100", "--spread", "1ms", "--lead", "1ms",
    ];
    complains_tame(tourbillon().args(storm).arg("--trace").arg(&absent));
}
