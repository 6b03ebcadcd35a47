//! `tourbillon top`, beside servers that it must not trust.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Output,
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    clients::{AGES, have, tourbillon},
    common::alarm,
    top::Terminal,
};

/// Serves the requests of one client after the other: the number of the request, its first line,
/// and the connection.
pub fn serve(answer: impl Fn(u32, &str, TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for number in 0.. {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4_096];
            let read = stream.read(&mut request).unwrap_or(0);
            answer(number, &String::from_utf8_lossy(&request[..read]), stream);
        }
    });
    addr
}

/// Sends a body as a good answer.
pub fn send(mut stream: TcpStream, body: &[u8]) {
    // The program may have read enough, and closed the connection.
    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
    let _ = stream.write_all(body);
}

/// A snapshot that holds `text` wherever it can hold text.
pub fn snapshot(at: u32, text: &str) -> Value {
    let histogram = json!({ "buckets": [[0, at]] });
    let late = json!({ "wake": histogram, "queue": histogram, "rescued": histogram });
    json!({
        "tourbillon": text, "pid": 1, "instance": text, "at_ms": 1_000 * at, "uptime_ms": 1,
        "workers": [{
            "id": 0, "activity": text, "job": { "name": text }, "counts": { "fired": at },
            "pending": 1, "queue_depth": 1, "lateness": late,
        }],
        "helpers": { "counts": {}, "lateness": late },
        "global_queue_depth": 0, "alive_tasks": 1,
        "stalls": [{ "job": text, "spawned": text, "elapsed_ms": 1 }],
        "bounds_ns": [1_000, null],
    })
}

pub fn once(addr: SocketAddr, args: &[&str]) -> Output {
    tourbillon()
        .args(["top", &addr.to_string(), "--once", "--interval", "100ms"])
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn counts_that_overflow_are_shown() {
    let _alarm = alarm();
    let most = u64::MAX;
    let addr = serve(move |number, _, stream| {
        let mut page = snapshot(number, "x");
        let buckets = json!({ "buckets": [[most, most], [most, most], [0, most], [5, most]] });
        let late = json!({ "wake": buckets, "queue": buckets, "rescued": buckets });
        let counts = json!({ "fired": most, "stalls": most, "panics": most, "busy_ns": most });
        let worker = json!({
            "id": most, "activity": "x", "job": null, "counts": counts,
            "pending": most, "queue_depth": most, "lateness": late,
        });
        page["workers"] = json!([worker, worker]);
        page["helpers"] = json!({ "counts": counts, "lateness": late });
        page["alive_tasks"] = json!(most);
        page["at_ms"] = json!(if number % 2 == 0 { -1e308 } else { 1e308 });
        page["uptime_ms"] = json!(1e300);
        send(stream, page.to_string().as_bytes());
    });
    let output = once(addr, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn an_answer_that_is_too_large_is_refused() {
    let _alarm = alarm();
    fn many(page: &mut Value, pointer: &str, one: Value, count: usize) {
        *page.pointer_mut(pointer).unwrap() = Value::Array(vec![one; count]);
    }
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 5] = [
        (
            |page| {
                many(
                    page,
                    "/workers/0/lateness/wake/buckets",
                    json!([0, 1]),
                    5_000,
                )
            },
            "a list of at most 1024 elements",
        ),
        (
            |page| many(page, "/bounds_ns", json!(1), 5_000),
            "a list of at most 1024 elements",
        ),
        (
            |page| many(page, "/stalls", page["stalls"][0].clone(), 50_000),
            "a list of at most 10000 elements",
        ),
        (
            |page| many(page, "/workers", page["workers"][0].clone(), 5_000),
            "a list of at most 4096 elements",
        ),
        (
            |page| page["more"] = "x".repeat(9 << 20).into(),
            "the answer has more than 8388608 bytes",
        ),
    ];
    for (change, why) in changes {
        let mut page = snapshot(1, "x");
        change(&mut page);
        let addr = serve(move |_, _, stream| send(stream, page.to_string().as_bytes()));
        let output = once(addr, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}: {said}");
        assert!(said.contains(why), "{why}: {said}");
    }
    let nested = || "[".repeat(1_000_000);
    let addr = serve(move |_, _, stream| send(stream, nested().as_bytes()));
    assert_eq!(once(addr, &[]).status.code(), Some(1));
}

/// What grouping costs is tested beside its code.
#[test]
fn the_newest_of_many_stalls_are_shown() {
    let _alarm = alarm();
    let addr = serve(|number, _, stream| {
        let mut page = snapshot(number, "x");
        let stall =
            |job: u32| json!({ "job": format!("job {job}"), "spawned": null, "elapsed_ms": 1 });
        // Each job has two.
        page["stalls"] = (0..5_000).chain(0..5_000).map(stall).collect();
        send(stream, page.to_string().as_bytes());
    });
    let output = once(addr, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let screen = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<_> = screen.lines().filter(|row| row.contains(" job ")).collect();
    assert_eq!(rows.len(), 6, "{screen}");
    for (row, job) in rows.into_iter().zip((0..5_000).rev()) {
        assert!(
            row.starts_with("2 ") && row.ends_with(&format!(" job {job}")),
            "{screen}"
        );
    }
}

/// A server that answers once, and then drips: the user can still end the program.
#[test]
fn keys_work_while_an_answer_takes_long() {
    let _alarm = alarm();
    if !have("script") {
        return;
    }
    let (sender, dripped) = channel();
    let addr = serve(move |number, _, mut stream| {
        if number == 0 {
            return send(stream, snapshot(1, "x").to_string().as_bytes());
        }
        while stream.write_all(b" ").is_ok() {
            let _ = sender.send(());
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut terminal = Terminal::start(&addr.to_string());
    // The program waits for an answer from here on.
    dripped.recv_timeout(AGES).unwrap();
    terminal.press("q");
    // It ends by the key, not by the limit of the answer.
    let drawn = terminal.end();
    assert!(!drawn.contains("too long"), "{drawn}");
}
