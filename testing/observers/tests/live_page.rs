//! Tourbillon's live page lists the tasks of a program for tokio by their names, while
//! tokio-console's spans are around them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use tokio::{
    task::{Builder, JoinSet},
    time::sleep,
};

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

async fn session() {
    sleep(PATIENCE).await;
}

/// Returns what the page answers.
fn get(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn tasks_have_their_names() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let inspector = tourbillon_inspect::serve("127.0.0.1:0").unwrap();
    let mut set = JoinSet::new();
    Builder::new()
        .name("idle session")
        .spawn(session())
        .unwrap();
    set.build_task()
        .name("session of a set")
        .spawn(session())
        .unwrap();
    tokio::spawn(session());
    let has_all = |list: &str| {
        [
            "\"idle session\"",
            "\"session of a set\"",
            "live_page::session",
        ]
        .iter()
        .all(|name| list.contains(name))
    };
    let begin = Instant::now();
    loop {
        let list = get(inspector.local_addr(), "/tasks.json?order=age");
        if has_all(&list) {
            assert!(!list.contains("Instrumented"), "{list}");
            assert!(list.contains(file!()), "{list}");
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{list}");
    }
    inspector.shutdown();
}
