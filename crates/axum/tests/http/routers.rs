//! axum's routers on this runtime: requests reach their handlers and are answered, by HTTP/1 and
//! HTTP/2.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::IntoFuture,
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{ConnectInfo, Path, Query, Request, State, connect_info::Connected},
    http::{StatusCode, header},
    response::{
        IntoResponse,
        sse::{Event, Sse},
    },
    routing::{get, post},
};
use futures::{
    FutureExt, StreamExt,
    channel::{mpsc, oneshot},
    stream,
};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use tourbillon::{
    net::{TcpListener, UnixListener, UnixStream},
    time::{Instant, advance, sleep, timeout},
};
use tourbillon_axum::{IncomingStream, keep_alive, serve, serve_all};
use tourbillon_hyper::FuturesIo;

use crate::{
    common::{PATIENCE, alarm, installed::have, net::ANY_PORT, paused::paused, runtime, unix},
    web::{Client, Site, curl, http2, without_tokio},
};

/// Returns a router that adds up the numbers that are posted.
fn sums() -> Router {
    async fn add(
        State(total): State<Arc<AtomicU64>>,
        Path(name): Path<String>,
        Query(query): Query<HashMap<String, u64>>,
        Json(numbers): Json<Vec<u64>>,
    ) -> Json<(String, u64)> {
        let sum: u64 = numbers.iter().sum::<u64>() * query.get("times").unwrap_or(&1);
        sleep(Duration::from_millis(1)).await;
        Json((name, total.fetch_add(sum, SeqCst) + sum))
    }
    Router::new()
        .route("/sums/{name}", post(add))
        .route("/hello", get(|| async { "hello" }))
        .with_state(Arc::new(AtomicU64::new(0)))
}

#[test]
fn json_paths_queries_and_state_reach_handlers_and_errors_are_reported() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::start(&runtime, sums());
    let mut client = site.connect();
    assert_eq!(client.post("/sums/a", "[1, 2, 3]").body, r#"["a",6]"#);
    let reply = client.post("/sums/b?times=10", "[4]");
    assert_eq!(reply.body, r#"["b",46]"#);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(client.get("/nothing").status, 404);
    assert_eq!(client.get("/sums/a").status, 405);
    assert_eq!(client.post("/sums/a", r#"["one"]"#).status, 422);
    assert_eq!(client.post("/sums/a", "[1").status, 400);
    assert_eq!(client.post("/sums/a?times=no", "[1]").status, 400);
    client.send("POST /sums/a HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n[]");
    assert_eq!(client.reply().status, 415);
    // All requests used one connection, and none of them has ended it.
    assert_eq!(client.get("/hello").body, "hello");
    runtime.block_on(site.stop()).unwrap().unwrap();
}

#[test]
fn curl_speaks_either_version() {
    if !have("curl") {
        return;
    }
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::start(&runtime, sums());
    for (option, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let printed = curl(&[
            option,
            "--json",
            "[20, 1]",
            "--write-out",
            " %{http_code} %{http_version}",
            &site.url("/sums/curl?times=2"),
        ]);
        let (body, rest) = printed.split_once(' ').unwrap();
        assert!(
            body == r#"["curl",42]"# || body == r#"["curl",84]"#,
            "{body}"
        );
        assert_eq!(rest, format!("200 {version}"));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // The later the request, the sooner its answer.
    let wait = |Path(ms): Path<u64>| async move {
        sleep(Duration::from_millis(ms)).await;
        ms.to_string()
    };
    let site = Site::start(&runtime, Router::new().route("/{ms}", get(wait)));
    let mut client = site.connect();
    let times = [20, 10, 5, 1, 0];
    let requests = times.map(|ms| format!("GET /{ms} HTTP/1.1\r\nHost: test\r\n\r\n"));
    client.send(&requests.concat());
    for ms in times {
        assert_eq!(client.reply().body, ms.to_string());
    }
}

#[test]
fn http2_requests_of_one_connection_run_concurrently() {
    let _alarm = alarm();
    const COUNT: u64 = 50;
    let runtime = runtime(2);
    let asked = Arc::new(AtomicU64::new(0));
    let (all, met) = oneshot::channel::<()>();
    let (all, met) = (Arc::new(Mutex::new(Some(all))), met.shared());
    // No request is answered before all have come.
    let meet = {
        let asked = asked.clone();
        move || async move {
            if asked.fetch_add(1, SeqCst) + 1 == COUNT {
                all.lock().unwrap().take();
            }
            met.await.unwrap_err();
            "met"
        }
    };
    let site = Site::start(&runtime, Router::new().route("/", get(meet)));
    let addr = site.addr;
    runtime.block_on(async {
        let sender = http2::<Empty<Bytes>>(addr).await;
        let requests = (0..COUNT).map(|_| {
            let mut sender = sender.clone();
            tourbillon::spawn(async move {
                let request = Request::get("http://test/").body(Empty::new()).unwrap();
                let response = sender.send_request(request).await.unwrap();
                response.into_body().collect().await.unwrap().to_bytes()
            })
        });
        for request in requests.collect::<Vec<_>>() {
            let body = timeout(PATIENCE, request).await.unwrap().unwrap();
            assert_eq!(body, "met");
        }
    });
    assert_eq!(asked.load(SeqCst), COUNT);
}

#[test]
fn server_sent_events_arrive_one_by_one_with_comments_between() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::unbounded::<&'static str>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let events = move || async move {
        let events = receiver.lock().unwrap().take().unwrap();
        let events = events.map(|text| Ok::<_, Infallible>(Event::default().data(text)));
        Sse::new(keep_alive(events, Duration::from_millis(20)))
    };
    let site = Site::start(&runtime, Router::new().route("/", get(events)));
    let mut client = site.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = client.read_through("\r\n\r\n");
    assert!(head.contains("text/event-stream"), "{head}");
    // Each event is read before the next is sent.
    for text in ["one", "two", "three"] {
        sender.unbounded_send(text).unwrap();
        client.read_through(&format!("data: {text}\n\n"));
        client.read_through(": \n\n");
    }
    drop(sender);
    client.read_through("0\r\n\r\n");
    runtime.block_on(site.stop()).unwrap().unwrap();
}

#[test]
fn keep_alive_comments_come_after_a_period_without_events() {
    let _alarm = alarm();
    paused(2).block_on(async {
        let start = Instant::now();
        // Events after 10 s, and after 35 s more.
        let events = stream::iter([10, 35]).then(|seconds| async move {
            sleep(Duration::from_secs(seconds)).await;
            Ok::<_, Infallible>(Event::default().data(seconds.to_string()))
        });
        let mut events = keep_alive(events, Duration::from_secs(15));
        let mut seen = Vec::new();
        while let Some(Ok(_)) = events.next().await {
            seen.push(start.elapsed().as_secs());
        }
        assert_eq!(seen, [10, 25, 40, 45]);
    });
}

#[test]
fn after_a_stall_one_keep_alive_comment_is_sent() {
    let _alarm = alarm();
    paused(2).block_on(async {
        let start = Instant::now();
        let events = stream::pending::<Result<Event, Infallible>>();
        let mut events = keep_alive(events, Duration::from_secs(15));
        assert!(events.next().now_or_never().is_none());
        advance(Duration::from_secs(100)).await;
        for expected in [100, 115, 130] {
            assert!(events.next().await.is_some_and(|comment| comment.is_ok()));
            assert_eq!(start.elapsed().as_secs(), expected);
        }
    });
}

#[test]
fn several_listeners_are_one_server_and_each_client_has_its_address() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let router = Router::new().route(
        "/",
        get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }),
    );
    let service = without_tokio(router).into_make_service_with_connect_info::<SocketAddr>();
    let (listeners, addrs): (Vec<_>, Vec<_>) = runtime.block_on(async {
        let listeners = (0..3).map(|_| async {
            let listener = TcpListener::bind(ANY_PORT).await.unwrap();
            let addr = listener.local_addr().unwrap();
            (listener, addr)
        });
        futures::future::join_all(listeners)
            .await
            .into_iter()
            .unzip()
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let server =
        serve_all(listeners, service).with_graceful_shutdown(async { stopped.await.unwrap() });
    assert_eq!(server.local_addr().unwrap(), addrs[0]);
    let served = runtime.spawn(server.into_future());
    for addr in &addrs {
        let mut client = Client::connect(*addr);
        let peer = client.stream.local_addr().unwrap().to_string();
        assert_eq!(client.get("/").body, peer);
        assert_eq!(client.get("/").body, peer);
    }
    stop.send(()).unwrap();
    runtime.block_on(served).unwrap().unwrap();
    for addr in addrs {
        assert!(
            std::net::TcpStream::connect(addr).is_err(),
            "it still listens"
        );
    }
    let none = serve_all(Vec::<TcpListener>::new(), Router::new());
    let error = runtime.block_on(none.into_future()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

/// The process at the other end of a Unix socket.
#[derive(Clone)]
struct Pid(Option<i32>);

impl Connected<IncomingStream<'_, UnixListener>> for Pid {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        assert!(stream.remote_addr().is_unnamed());
        Self(stream.io().peer_cred().unwrap().pid())
    }
}

#[test]
fn a_unix_socket_server_knows_the_credentials_of_its_clients() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (listener, addr) = unix::listen();
        let pid = |ConnectInfo(Pid(pid)): ConnectInfo<Pid>| async move { format!("{pid:?}") };
        let router = without_tokio(Router::new().route("/", get(pid)));
        let service = router.into_make_service_with_connect_info::<Pid>();
        let served = tourbillon::spawn(serve(listener, service).into_future());
        let mut client = UnixStream::connect_addr(&addr).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        let pid = format!("{:?}", Some(std::process::id()));
        assert!(reply.ends_with(&pid), "{reply}");
        served.abort();
    });
}

#[test]
fn method_routers_and_handlers_can_be_served() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let routes = Site::with(&runtime, |listener, stop| {
        serve(listener, get(|| async { "a method" })).with_graceful_shutdown(stop)
    });
    assert_eq!(routes.connect().get("/any").body, "a method");
    assert_eq!(routes.connect().post("/any", "").status, 405);
    let handler = Site::with(&runtime, |listener, stop| {
        use axum::handler::HandlerWithoutStateExt;
        let handler = (|| async { "a handler" }).into_make_service();
        serve(listener, handler).with_graceful_shutdown(stop)
    });
    assert_eq!(handler.connect().get("/any").body, "a handler");
}

#[test]
fn a_connection_can_be_upgraded() {
    let _alarm = alarm();
    async fn upgrade(request: Request) -> impl IntoResponse {
        tourbillon::spawn(async move {
            let upgraded = hyper::upgrade::on(request).await.unwrap();
            let mut stream = FuturesIo::new(upgraded);
            let mut buf = [0; 64];
            // Sends back all data, and then the end.
            while let Ok(n @ 1..) = stream.read(&mut buf).await {
                stream.write_all(&buf[..n]).await.unwrap();
                stream.flush().await.unwrap();
            }
            stream.close().await.unwrap();
        });
        let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "echo")];
        (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty())
    }
    let runtime = runtime(2);
    let site = Site::start(&runtime, Router::new().route("/", get(upgrade)));
    let mut client = site.connect();
    client
        .send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly,");
    let head = client.read_through("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client.read_through("early,");
    // The server does not own the upgraded connection any more, so its end does not wait for it.
    runtime.block_on(site.stop()).unwrap().unwrap();
    client.stream.write_all(b"late").unwrap();
    client.read_through("late");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0);
}
