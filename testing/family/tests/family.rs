//! A program that patches tokio uses the crates above Tourbillon, beside crates for tokio: the
//! server for axum with its limits, the live page, the connectors and the program.

use std::{net::SocketAddr, process::Command, time::Duration};

use axum::{
    Router,
    extract::ws::{Message, WebSocketUpgrade},
    routing::{any, get, post},
};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_tungstenite::{connect_async, tungstenite};
use tourbillon::Handle;
use tourbillon_hyper::{HttpConnector, TourbillonExecutor};

// The program that README.md of `crates/tokio` shows.
#[allow(dead_code)]
#[path = "readme/service.rs"]
mod service;

#[test]
fn the_readme_shows_a_program_that_compiles() {
    let readme = include_str!("../../../crates/tokio/README.md");
    assert!(readme.contains(include_str!("readme/service.rs")));
}

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

fn router() -> Router {
    let hello = || async {
        // A sleep of tokio's, which is Tourbillon's.
        sleep(Duration::from_millis(1)).await;
        "hello"
    };
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if matches!(message, Message::Close(_)) || socket.send(message).await.is_err() {
                    break;
                }
            }
        })
    };
    Router::new()
        .route("/", get(hello))
        .route(
            "/length",
            post(|body: String| async move { body.len().to_string() }),
        )
        .route("/echo", any(echo))
}

/// Serves the router with the limits of these tests.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tourbillon_axum::serve(tourbillon::net::TcpListener::from(listener), router())
        .max_connections(2)
        .request_body_timeout(Duration::from_millis(50));
    tokio::spawn(server.into_future());
    addr
}

/// Sends the head of a request, and returns the connection.
async fn ask(addr: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads until a text comes.
async fn read_until(stream: &mut TcpStream, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let read = timeout(PATIENCE, stream.read_buf(&mut seen));
        let read = read.await.expect("an answer").unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
    }
}

const GET: &str = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_answers_clients_of_tokio_and_our_connector() {
    let addr = serve().await;
    let url = format!("http://{addr}/");
    assert_eq!(
        reqwest::get(&url).await.unwrap().text().await.unwrap(),
        "hello"
    );

    let client = Client::builder(TourbillonExecutor::new());
    let client = client.build::<_, Empty<&[u8]>>(HttpConnector::new());
    let answer = client.get(url.parse().unwrap()).await.unwrap();
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axum_upgrades_to_websockets_on_our_server() {
    let addr = serve().await;
    let (mut socket, _) = connect_async(format!("ws://{addr}/echo")).await.unwrap();
    let text = tungstenite::Message::text("hello");
    socket.send(text.clone()).await.unwrap();
    let answer = timeout(PATIENCE, socket.next()).await.expect("an answer");
    assert_eq!(answer.unwrap().unwrap(), text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_connections_holds() {
    let addr = serve().await;
    let mut first = ask(addr, GET).await;
    let mut second = ask(addr, GET).await;
    read_until(&mut first, "hello").await;
    read_until(&mut second, "hello").await;
    // Both keep their connections, so the third waits in the queue of the listener.
    let mut third = ask(addr, GET).await;
    let early = timeout(Duration::from_millis(100), third.readable()).await;
    assert!(early.is_err(), "a third connection was served");
    drop(first);
    read_until(&mut third, "hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_slow_bodies_holds() {
    let addr = serve().await;
    let head = "POST /length HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhal";
    let mut stream = ask(addr, head).await;
    let mut answer = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    end.expect("the server ends the connection").unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains(" 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_live_page_shows_the_runtime() {
    let inspector = tourbillon_inspect::serve("127.0.0.1:0").unwrap();
    let url = format!("http://{}/snapshot.json", inspector.local_addr());
    let snapshot = reqwest::get(url).await.unwrap().text().await.unwrap();
    assert!(snapshot.contains("\"workers\""), "{snapshot}");
    inspector.shutdown();
}

/// A task of `tokio::spawn` that waits on tokio's timer.
async fn session() {
    sleep(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_live_page_lists_the_tasks_of_tokio_spawn() {
    let inspector = tourbillon_inspect::serve("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tasks.json?order=age", inspector.local_addr());
    let task = tokio::spawn(session());
    let id = format!("\"{}\"", task.id());
    let mut list = String::new();
    while !(list.contains(&id) && list.contains("family::session")) {
        let answer = timeout(PATIENCE, reqwest::get(&url)).await;
        list = answer.expect("an answer").unwrap().text().await.unwrap();
    }
    assert!(list.contains(file!()), "{list}");
    task.abort();
    inspector.shutdown();
}

/// Computes for a while, as a handler should not do on a worker.
async fn blocks() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn the_program_explains_a_late_sleep_of_tokio() {
    let path = std::env::temp_dir().join(format!("family-{}.trace.json", std::process::id()));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let mut explained = String::new();
    let begin = std::time::Instant::now();
    // On a busy machine the sleep may begin too late for that.
    while !(explained.contains("\nstuck-in-job ") && explained.contains("family::blocks")) {
        assert!(begin.elapsed() < PATIENCE, "{explained}");
        let waits = runtime.spawn(async { sleep(Duration::from_millis(5)).await });
        std::thread::sleep(Duration::from_millis(1));
        runtime.spawn(blocks());
        runtime.block_on(waits).unwrap();
        let snapshot = runtime.handle().flight_recorder().snapshot();
        tourbillon_flight::write_trace(&snapshot, std::fs::File::create(&path).unwrap()).unwrap();
        let program = Command::new(env!("CARGO_BIN_EXE_program"))
            .arg("trace")
            .arg(&path)
            .output();
        explained = String::from_utf8(program.unwrap().stdout).unwrap();
    }
    std::fs::remove_file(path).unwrap();
    let late = explained
        .lines()
        .find(|line| line.contains("family::blocks"));
    assert!(
        late.is_some_and(|line| line.contains(file!())),
        "{explained}"
    );
}

#[test]
fn top_shows_a_program_for_tokio() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let inspector = tourbillon_inspect::serve("127.0.0.1:0").unwrap();
    let top = Command::new(env!("CARGO_BIN_EXE_program"))
        .args([
            "top",
            &inspector.local_addr().to_string(),
            "--once",
            "--interval",
            "100ms",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&top.stdout);
    assert!(
        top.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&top.stderr)
    );
    assert!(text.contains("worker"), "{text}");
    inspector.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_names_mean_one_runtime() {
    let id = Handle::current().id();
    let spawned = tokio::spawn(async { Handle::current().id() });
    assert_eq!(spawned.await.unwrap(), id);
}

/// tokio's channels spend the budget that this runtime gives to each poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_ends_a_loop_over_a_channel_that_is_always_ready() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let looping = async {
        while sender.send(()).is_ok() {
            receiver.recv().await;
        }
    };
    assert!(timeout(Duration::from_millis(1), looping).await.is_err());
}

#[test]
fn the_program_runs() {
    let output = Command::new(env!("CARGO_BIN_EXE_program"))
        .args(["storm", "--timers", "10k"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("lost"), "{text}");
}

#[test]
fn the_program_does_not_compare_the_runtime_with_itself() {
    let output = Command::new(env!("CARGO_BIN_EXE_program"))
        .args(["storm", "--beside", "tokio", "--timers", "10"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("tokio is Tourbillon's facade"), "{error}");
    assert!(output.stdout.is_empty());
}
