//! Unmodified crates for tokio, on Tourbillon under tokio's name. Each test is a real exchange.

use std::{
    convert::Infallible,
    future::{IntoFuture, Ready, pending, ready},
    net::SocketAddr,
    pin::pin,
    process::{Child, Command},
    time::Duration,
};

use axum::{
    Router,
    extract::ws::{Message, WebSocketUpgrade},
    routing::{any, get},
};
use futures::SinkExt;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout},
};
use tokio_stream::{StreamExt, wrappers::TcpListenerStream};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient},
    server::health_reporter,
};
use tower::{
    Service, ServiceExt,
    buffer::Buffer,
    limit::{RateLimit, rate::Rate},
    service_fn,
};

/// A wait that a test has to cut short, and that only a hang exceeds.
const AGES: Duration = Duration::from_secs(60);

/// A wait that a test sits out.
const BRIEF: Duration = Duration::from_millis(10);

/// Serves a router with axum's own server.
async fn serve() -> SocketAddr {
    let silent = || async {
        sleep(10 * AGES).await;
        "too late"
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
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/silent", get(silent))
        .route("/ws", any(echo));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    addr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reqwest_asks_axum_and_times_out() {
    let addr = serve().await;
    let client = reqwest::Client::new();
    for _ in 0..2 {
        let response = client.get(format!("http://{addr}/")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hello");
    }
    let request = client.get(format!("http://{addr}/silent")).timeout(BRIEF);
    assert!(request.send().await.unwrap_err().is_timeout());
}

#[tokio::test]
async fn tungstenite_connects_to_a_websocket_of_axum() {
    let addr = serve().await;
    let url = format!("ws://{addr}/ws");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let text = tokio_tungstenite::tungstenite::Message::text("hello");
    socket.send(text.clone()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), text);
    socket.close(None).await.unwrap();
}

#[tokio::test]
async fn tonic_serves_and_calls() {
    let (reporter, service) = health_reporter();
    reporter
        .set_service_status("", ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let endpoint = tonic::transport::Endpoint::new(format!("http://{addr}")).unwrap();
    let channel = endpoint.timeout(AGES).connect().await.unwrap();
    let request = HealthCheckRequest {
        service: String::new(),
    };
    let response = HealthClient::new(channel).check(request).await.unwrap();
    assert_eq!(response.into_inner().status, ServingStatus::Serving as i32);
}

/// A server that ends with the test.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Needs redis-server: run it with `--include-ignored`.
#[tokio::test]
#[ignore = "needs redis-server"]
async fn redis_sets_and_gets() {
    // Redis cannot choose a port, so the test does.
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let _server = Redis(
        Command::new("redis-server")
            .args(["--save", "", "--bind", "127.0.0.1", "--port"])
            .arg(port.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let connecting = async {
        loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => break connection,
                Err(_) => sleep(BRIEF).await,
            }
        }
    };
    let mut connection = timeout(AGES, connecting).await.unwrap();
    let mut pipeline = redis::pipe();
    pipeline.set("sum", 1).ignore().incr("sum", 2);
    let (sum,): (u32,) = pipeline.query_async(&mut connection).await.unwrap();
    assert_eq!(sum, 3);
}

#[tokio::test(start_paused = true)]
async fn tokio_stream_waits_to_the_nanosecond_on_a_paused_clock() {
    let start = Instant::now();
    let mut silent = pin!(tokio_stream::pending::<()>().timeout(BRIEF));
    assert!(silent.next().await.unwrap().is_err());
    assert_eq!(start.elapsed(), BRIEF);

    let start = Instant::now();
    let throttled = tokio_stream::iter(0..3).throttle(BRIEF);
    let mut times = pin!(throttled.map(|_| start.elapsed()));
    assert_eq!(times.next().await, Some(Duration::ZERO));
    assert_eq!(times.next().await, Some(BRIEF));
    assert_eq!(times.next().await, Some(2 * BRIEF));
}

#[tokio::test(start_paused = true)]
async fn a_delay_queue_of_tokio_util_is_exact_on_a_paused_clock() {
    let mut queue = tokio_util::time::DelayQueue::new();
    let start = Instant::now();
    queue.insert("second", 2 * BRIEF);
    queue.insert("first", BRIEF);
    assert_eq!(queue.next().await.unwrap().into_inner(), "first");
    let first = start.elapsed();
    assert_eq!(queue.next().await.unwrap().into_inner(), "second");
    let second = start.elapsed();
    // The queue itself counts whole milliseconds, and rounds up.
    assert!((10..=11).contains(&first.as_millis()), "{first:?}");
    assert!((20..=21).contains(&second.as_millis()), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn tower_limits_by_time() {
    let silent = service_fn(|()| pending::<Result<(), Infallible>>());
    let start = Instant::now();
    let limited = tower::timeout::Timeout::new(silent, BRIEF);
    assert!(
        limited
            .oneshot(())
            .await
            .unwrap_err()
            .is::<tower::timeout::error::Elapsed>()
    );
    assert_eq!(start.elapsed(), BRIEF);

    let start = Instant::now();
    let echo = service_fn(async |number: u32| Ok::<_, Infallible>(number));
    let mut limited = RateLimit::new(echo, Rate::new(1, BRIEF));
    for number in 0..3 {
        assert_eq!(
            limited.ready().await.unwrap().call(number).await,
            Ok(number)
        );
    }
    assert_eq!(start.elapsed(), 2 * BRIEF);

    let buffer = Buffer::new(echo, 4);
    assert_eq!(buffer.oneshot(1).await.unwrap(), 1);
}

/// Returns work that fails twice.
fn third_time() -> impl FnMut() -> Ready<Result<(), ()>> {
    let mut calls = 0;
    move || {
        calls += 1;
        ready(if calls == 3 { Ok(()) } else { Err(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn retries_wait_on_the_paused_clock() {
    use backon::Retryable;

    let start = Instant::now();
    let delays = tokio_retry::strategy::FixedInterval::new(AGES).take(5);
    assert_eq!(
        tokio_retry::Retry::start(delays, third_time()).await,
        Ok(())
    );
    assert_eq!(start.elapsed(), 2 * AGES);

    let start = Instant::now();
    let delays = backon::ConstantBuilder::default().with_delay(AGES);
    assert_eq!(third_time().retry(delays).await, Ok(()));
    assert_eq!(start.elapsed(), 2 * AGES);
}

/// The facade must run on Tourbillon's threads alone.
#[tokio::test]
async fn no_thread_is_tokios() {
    let addr = serve().await;
    let reply = reqwest::get(format!("http://{addr}/")).await.unwrap();
    assert_eq!(reply.text().await.unwrap(), "hello");
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread of another test may have ended meanwhile.
        let Ok(name) = std::fs::read_to_string(thread.unwrap().path().join("comm")) else {
            continue;
        };
        assert!(!name.starts_with("tokio-r"), "{name}");
    }
}
