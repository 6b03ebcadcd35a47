//! The program `tourbillon` with `--inspect`, and the verdict of Prometheus' own tool about its
//! metrics.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    clients::{
        Server, have,
        storm::{Storm, page_address},
        tourbillon, with_patience,
    },
    common::{alarm, eventually, net::ANY_PORT},
};

/// Sends a request for a path of a page, by a host name.
fn ask(addr: SocketAddr, path: &str, host: &str) -> BufReader<TcpStream> {
    let mut stream = with_patience(TcpStream::connect(addr).unwrap());
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Returns the status and the body of an answer.
fn get(addr: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut answer = String::new();
    ask(addr, path, host).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Returns the page's current snapshot.
fn snapshot(addr: SocketAddr) -> Value {
    let (status, body) = get(addr, "/snapshot.json", "127.0.0.1");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Returns the output of `promtool check metrics` for a text. It is empty if the text is correct.
fn promtool(text: &str) -> String {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // `promtool` reads to the end before it writes.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success() || !said.is_empty());
    said
}

#[test]
fn promtool_accepts_the_metrics_of_a_storm() {
    let _alarm = alarm();
    if !have("promtool") {
        return;
    }
    // First, `promtool` must report an error.
    assert!(promtool("tourbillon_parks 1\ntourbillon_parks 2\n").contains("tourbillon_parks"));
    let storm = Storm::start(&["--timers", "20k", "--spread", "2s"]);
    for _ in 0..3 {
        let (_, text) = get(storm.addr, "/metrics", "127.0.0.1");
        assert!(text.contains("\ntourbillon_timers_armed_total{"), "{text}");
        assert_eq!(promtool(&text), "");
    }
    storm.end();
}

#[test]
fn a_storm_can_be_watched_from_start_to_end() {
    let _alarm = alarm();
    let storm = Storm::start(&["--timers", "20k", "--spread", "1s", "--workers", "2"]);
    let mut events = ask(storm.addr, "/events", "127.0.0.1");
    let mut line = String::new();
    while !line.ends_with("event: snapshot\n") {
        assert!(events.read_line(&mut line).unwrap() > 0, "{line}");
    }
    line.clear();
    events.read_line(&mut line).unwrap();
    let data = line.strip_prefix("data: ").unwrap();
    let first: Value = serde_json::from_str(data).unwrap();
    assert_eq!(first["pid"], storm.pid());
    assert_eq!(first["workers"].as_array().unwrap().len(), 2);
    assert!(snapshot(storm.addr)["at_ms"].as_f64().unwrap() > 0.0);
    // The stream ends when the storm does.
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("event: snapshot"), "{rest}");
    let report = storm.end();
    assert_eq!(report["lost"], 0, "{report}");
}

#[test]
fn a_server_prints_the_address_of_its_page_before_it_serves() {
    let _alarm = alarm();
    let mut server = Server::start(&["--inspect", "127.0.0.1:0", "--delay", "1h"]);
    let addr = page_address(&server.complaint());
    assert_eq!(get(addr, "/", "127.0.0.1").0, 200);
    let _waiting = ask(server.addr, "/", "127.0.0.1");
    eventually("its timer is there", || {
        let now = snapshot(addr);
        let workers = now["workers"].as_array().unwrap();
        let pending = |worker: &Value| worker["pending"].as_u64().unwrap();
        workers.iter().map(pending).sum::<u64>() >= 1
    });
}

#[test]
fn requests_for_the_allowed_host_names_are_answered() {
    let _alarm = alarm();
    // The machine's own name, which is neither an address nor the name `localhost` that all
    // machines have.
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let own = own.trim();
    let names = [
        "--inspect-host",
        "Proxy.example.",
        "--inspect-host",
        "box:1",
    ];
    let is_known = (own, 0).to_socket_addrs().is_ok();
    let inspect = format!("{}:0", if is_known { own } else { "127.0.0.1" });
    let args = [&["--inspect", &*inspect][..], &names].concat();
    let mut server = Server::start(&args);
    let addr = page_address(&server.complaint());
    for host in ["proxy.example", "proxy.example:80", "box", "localhost"] {
        assert_eq!(get(addr, "/", host).0, 200, "{host}");
    }
    if is_known {
        let host = format!("{own}:{}", addr.port());
        assert_eq!(get(addr, "/", &host).0, 200, "{host}");
    } else {
        eprintln!("skipped in part: the name of this machine is no name of an address");
    }
    assert_eq!(get(addr, "/", "other.example").0, 421);
}

#[test]
fn an_invalid_host_name_is_an_error_that_explains_valid_ones() {
    for name in ["http://box/", "", "*.example"] {
        let output = tourbillon()
            .args(["storm", "--timers", "1", "--inspect", "127.0.0.1:0"])
            .args(["--inspect-host", name])
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("--inspect-host"), "{err}");
        assert!(err.contains("box.example"), "{err}");
    }
}

#[test]
fn one_address_for_page_and_server_is_an_error_that_says_so() {
    // No other test uses this address, so its port stays free after the drop.
    let free = TcpListener::bind("127.0.7.7:0").unwrap();
    let addr = free.local_addr().unwrap().to_string();
    drop(free);
    let output = tourbillon()
        .args(["serve", "--listen", &addr, "--inspect", &addr])
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("--inspect uses this port"), "{err}");
    assert!(!err.contains("another program"), "{err}");
}

#[test]
fn an_address_that_is_taken_is_an_error_with_advice() {
    let taken = TcpListener::bind(ANY_PORT).unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    for command in [
        &["storm", "--timers", "1"][..],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        let output = tourbillon()
            .args(command)
            .args(["--inspect", &addr])
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(&addr) && err.contains("--inspect"), "{err}");
    }
}
