//! Servers beside clients that read responses, or send bodies, too slowly or not at all.

use std::{
    error::Error,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream as StdStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::StatusCode,
    routing::{get, post},
};
use tourbillon::{
    Runtime,
    time::{sleep, timeout},
};
use tourbillon_axum::serve;

use crate::{
    common::{
        Drops, HOUR, PATIENCE, Token, alarm, event::Event, eventually, process::alone, runtime,
    },
    web::{
        Client, SHORT, Site,
        frames::{
            DATA, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, WINDOW_UPDATE, beginning, frame,
            http2_get, http2_post, next_frame,
        },
        hello, told, without_tokio,
    },
};

/// More bytes than a client with a small window can take during a test.
const LARGE: usize = 1 << 20;
/// A rate, in bytes per second, that single bytes with pauses never reach on any machine.
const FAST: u32 = 1_000_000;
/// How many streams a client opens.
const STREAMS: u32 = 10;

/// The bytes of a response, whose drop is counted.
pub struct Told(
    pub Vec<u8>,
    #[expect(dead_code, reason = "it counts when it is dropped")] pub Token,
);

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns a router with a large page, the drops of whose bodies are counted, and with a page
/// that reads a body.
fn router(drops: &Drops) -> Router {
    let drops = drops.clone();
    let large = move || {
        let body = Bytes::from_owner(Told(vec![7; LARGE], drops.token()));
        async { body }
    };
    let read = |body: Bytes| async move { body.len().to_string() };
    hello()
        .route("/large", get(large))
        .route("/read", post(read))
}

/// Starts a server with short limits for clients in the middle of a transfer, and with limits of
/// an hour for everything else.
fn impatient(runtime: &Runtime, router: Router) -> Site {
    Site::with(runtime, |listener, stop| {
        serve(listener, without_tokio(router))
            .with_graceful_shutdown(stop)
            .header_read_timeout(HOUR)
            .keep_alive_timeout(HOUR)
            .write_timeout(SHORT)
            .request_body_timeout(SHORT)
            .min_transfer_rate(FAST)
    })
}

/// Connects by HTTP/2, and asks for a page on each of [`STREAMS`] streams. The server may send
/// `window` bytes on each stream.
fn ask_with_window(site: &Site, path: &str, window: u32) -> StdStream {
    let mut stream = site.connect().stream;
    let mut bytes = beginning(&[(INITIAL_WINDOW_SIZE, window)]);
    bytes.extend((0..STREAMS).flat_map(|id| http2_get(2 * id + 1, path)));
    // All at once: in a pause the server could close the connection, because it is idle.
    stream.write_all(&bytes).unwrap();
    stream
}

/// Waits until the streams of [`ask_with_window`] were reset.
fn wait_for_resets(stream: &mut StdStream) {
    let mut reset = 0;
    while reset < STREAMS {
        reset += u32::from(next_frame(stream).0 == RST_STREAM);
    }
}

/// Asks for a small page on a connection of HTTP/2, and checks that the connection still works.
fn ask_for_hello(stream: &mut StdStream, id: u32) {
    let window = beginning(&[(INITIAL_WINDOW_SIZE, 1 << 16)]);
    // Without the preface, these are settings.
    stream.write_all(&window[24..]).unwrap();
    stream.write_all(&http2_get(id, "/")).unwrap();
    loop {
        if let (DATA, of, payload) = next_frame(stream)
            && of == id
        {
            assert_eq!(payload, b"hello");
            return;
        }
    }
}

#[test]
fn an_http2_response_is_reset_and_freed_if_the_client_opens_no_window() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let site = impatient(&runtime, router(&drops));
    let start = Instant::now();
    let mut stream = ask_with_window(&site, "/large", 0);
    wait_for_resets(&mut stream);
    assert!(start.elapsed() >= SHORT);
    eventually("the bodies are dropped", || {
        drops.count() == STREAMS as usize
    });
    // The connection still serves other requests.
    ask_for_hello(&mut stream, 2 * STREAMS + 1);
}

/// Allows one byte more on each stream of [`ask_with_window`], again and again, until the
/// connection ends.
fn dribble(stream: &StdStream) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    let more: Vec<_> = (0..STREAMS)
        .flat_map(|id| frame(WINDOW_UPDATE, 0, 2 * id + 1, &1_u32.to_be_bytes()))
        .collect();
    thread::spawn(move || {
        while stream.write_all(&more).is_ok() {
            thread::sleep(SHORT / 10);
        }
    })
}

#[test]
fn an_http2_response_is_reset_and_freed_if_the_client_reads_too_slowly() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let site = impatient(&runtime, router(&drops));
    let mut stream = ask_with_window(&site, "/large", 1);
    let dribble = dribble(&stream);
    wait_for_resets(&mut stream);
    eventually("the bodies are dropped", || {
        drops.count() == STREAMS as usize
    });
    stream.shutdown(Shutdown::Both).unwrap();
    dribble.join().unwrap();
}

#[test]
fn small_responses_are_freed_with_the_connection_of_a_slow_reader() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::with(&runtime, |listener, stop| {
        // hyper is done with such a response as soon as the client takes a byte of it.
        let small = || async { vec![7; 20_000] };
        serve(listener, Router::new().route("/small", get(small)))
            .with_graceful_shutdown(stop)
            .keep_alive_timeout(SHORT)
            .min_transfer_rate(FAST)
    });
    let mut stream = ask_with_window(&site, "/small", 1);
    let dribble = dribble(&stream);
    // At one byte at a time, the responses would take longer than the test may.
    while let Ok(1..) = stream.read(&mut [0; 4096]) {}
    dribble.join().unwrap();
}

/// The beginnings of requests with long bodies, and the text that continues each body.
const BODIES: [(&str, &str); 2] = [
    ("Content-Length: 1000000\r\n\r\n", "x"),
    ("Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"),
];

#[test]
fn a_body_that_is_too_slow_or_stops_is_an_error_in_its_handler() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = impatient(&runtime, router(&Drops::new()));
    for (beginning, more) in BODIES {
        for is_silent in [true, false] {
            let start = Instant::now();
            let mut client = site.connect();
            client.send(&format!(
                "POST /read HTTP/1.1\r\nHost: test\r\n{beginning}{more}"
            ));
            let mut writer = client.stream.try_clone().unwrap();
            let dribble = thread::spawn(move || {
                while !is_silent && writer.write_all(more.as_bytes()).is_ok() {
                    thread::sleep(SHORT / 10);
                }
            });
            let said = client.end();
            assert!(start.elapsed() >= SHORT);
            // The client's bytes after the answer may have caused a reset.
            assert!(
                said.starts_with("HTTP/1.1 400 ") || !is_silent && said.is_empty(),
                "{said}"
            );
            dribble.join().unwrap();
        }
    }
    // A body that comes in time is not affected.
    assert_eq!(site.connect().post("/read", "12345").body, "5");
}

#[test]
fn an_http2_body_that_stops_is_an_error_only_in_its_handler() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let said = Arc::new(Mutex::new(Vec::new()));
    let said_here = said.clone();
    let read = move |body: Body| async move {
        let error = to_bytes(body, usize::MAX).await.unwrap_err();
        let mut cause: &(dyn Error + 'static) = &error;
        let kind = loop {
            match cause.downcast_ref::<io::Error>() {
                Some(error) => break error.kind(),
                None => cause = cause.source().unwrap(),
            }
        };
        said_here.lock().unwrap().push(kind);
        StatusCode::REQUEST_TIMEOUT
    };
    let site = impatient(&runtime, hello().route("/slow", post(read)));
    let mut stream = site.connect().stream;
    let mut bytes = beginning(&[]);
    bytes.extend(http2_post(1, "/slow"));
    bytes.extend(frame(DATA, 0, 1, b"x"));
    stream.write_all(&bytes).unwrap();
    while next_frame(&mut stream).0 != HEADERS {}
    assert_eq!(*said.lock().unwrap(), [ErrorKind::TimedOut]);
    ask_for_hello(&mut stream, 3);
}

#[test]
fn a_shutdown_ends_despite_clients_that_stop_midway() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let asked = Event::default();
    let asked_here = asked.clone();
    let read = move |body: Body| {
        asked_here.set();
        async { to_bytes(body, usize::MAX).await.map_err(|_| "too slow") }
    };
    let router = router(&drops).route("/slow", post(read));
    let site = impatient(&runtime, router);
    let mut streams = ask_with_window(&site, "/large", 0);
    // All requests are answered, but without their bodies.
    for _ in 0..STREAMS {
        while next_frame(&mut streams).0 != HEADERS {}
    }
    let mut sender = site.connect();
    sender.send("POST /slow HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n");
    runtime.block_on(asked.wait());
    let served = site.stop();
    // The clients acknowledge nothing, and send nothing.
    let served = runtime.block_on(async { timeout(PATIENCE, served).await });
    served.unwrap().unwrap().unwrap();
    assert_eq!(drops.count(), STREAMS as usize);
}

#[test]
fn a_shutdown_ends_despite_an_http2_client_that_keeps_asking() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let slow = || async { sleep(10 * SHORT).await };
    let site = impatient(&runtime, Router::new().route("/slow", get(slow)));
    let mut stream = site.connect().stream;
    stream.write_all(&beginning(&[])).unwrap();
    stream.write_all(&http2_get(1, "/slow")).unwrap();
    while next_frame(&mut stream).0 != HEADERS {}
    // This client always waits for an answer, and does not acknowledge the server's goodbye.
    let asker = thread::spawn(move || {
        for id in 1.. {
            if stream.write_all(&http2_get(2 * id + 1, "/slow")).is_err() {
                return;
            }
            thread::sleep(SHORT);
        }
    });
    let served = site.stop();
    let served = runtime.block_on(async { timeout(PATIENCE, served).await });
    served.unwrap().unwrap().unwrap();
    asker.join().unwrap();
}

#[test]
fn a_half_closed_client_is_answered_where_that_is_allowed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for is_http1_only in [false, true] {
        for may in [false, true] {
            let (router, asked, answer) = told();
            let site = Site::with(&runtime, |listener, stop| {
                let server = serve(listener, router)
                    .with_graceful_shutdown(stop)
                    .half_close(may);
                match is_http1_only {
                    true => server.http1_only(),
                    false => server,
                }
            });
            let mut client = site.connect();
            client.send("GET /told HTTP/1.1\r\nHost: test\r\n\r\n");
            runtime.block_on(asked.wait());
            client.stream.shutdown(Shutdown::Write).unwrap();
            if may {
                // By then, the server has seen that the client has closed its direction.
                thread::sleep(SHORT);
                answer.set();
                assert_eq!(client.reply().body, "told");
            }
            assert_eq!(client.end(), "");
        }
    }
}

#[test]
fn a_half_closed_client_that_reads_nothing_is_closed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, router(&drops))
            .with_graceful_shutdown(stop)
            .half_close(true)
            .write_timeout(SHORT)
    });
    let mut client = site.connect();
    // Ask for more than the system's buffers hold.
    let ask = "GET /large HTTP/1.1\r\nHost: test\r\n\r\n";
    for _ in 0..64 {
        client.send(ask);
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    let served = site.stop();
    let served = runtime.block_on(async { timeout(PATIENCE, served).await });
    served.unwrap().unwrap().unwrap();
}

#[test]
fn the_default_connection_limit_follows_the_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(1);
        let before = getrlimit(Resource::Nofile);
        let mut few = before;
        few.current = Some(100);
        // The server reads the limit when it begins. Later, the clients need descriptors, too.
        setrlimit(Resource::Nofile, few).unwrap();
        let site = Site::start(&runtime, hello());
        assert_eq!(site.connect().get("/").body, "hello");
        setrlimit(Resource::Nofile, before).unwrap();
        let mut clients: Vec<_> = (0..68).map(|_| site.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/").body, "hello");
        }
        let mut further = Client::connect(site.addr);
        further.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        further.stream.set_read_timeout(Some(SHORT)).unwrap();
        let error = further.stream.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        further.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        clients.pop();
        assert_eq!(further.reply().body, "hello");
    });
}

#[test]
fn endless_limits_never_close_a_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for limit in [None, Some(Duration::MAX)] {
        let site = Site::with(&runtime, |listener, stop| {
            serve(listener, router(&Drops::new()))
                .with_graceful_shutdown(stop)
                .write_timeout(limit)
                .request_body_timeout(limit)
                .min_transfer_rate(u32::MAX)
        });
        let mut client = site.connect();
        client.send("POST /read HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nx");
        let mut stream = ask_with_window(&site, "/large", 0);
        thread::sleep(SHORT);
        client.send("x");
        assert_eq!(client.reply().body, "2");
        let whole = u32::try_from(LARGE).unwrap().to_be_bytes();
        stream
            .write_all(&frame(WINDOW_UPDATE, 0, 1, &whole))
            .unwrap();
        stream
            .write_all(&frame(WINDOW_UPDATE, 0, 0, &whole))
            .unwrap();
        let mut length = 0;
        while length < LARGE {
            if let (DATA, 1, payload) = next_frame(&mut stream) {
                length += payload.len();
            }
        }
    }
}
