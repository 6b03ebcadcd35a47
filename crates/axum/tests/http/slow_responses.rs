//! Large responses by HTTP/1 and HTTP/2 that a client reads slowly, or stops reading.

use std::{
    io::{Read, Write},
    net::TcpStream as StdStream,
    thread,
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, routing::get};
use socket2::{Domain, Socket, Type};
use tourbillon::{Runtime, time::timeout};
use tourbillon_axum::serve;

use crate::{
    common::{Drops, PATIENCE, alarm, eventually, runtime},
    slow_clients::Told,
    web::{
        SHORT, Site,
        frames::{
            DATA, INITIAL_WINDOW_SIZE, RST_STREAM, WINDOW_UPDATE, beginning, frame, http2_get,
            next_frame,
        },
    },
};

/// A limit that is longer than the pauses of a slow client.
const LONG: Duration = Duration::from_secs(4);
/// A length that is more than the system's buffers hold.
const HUGE: usize = 8 << 20;

/// Starts a server of a huge page, and a client that asks for it. The server requires that a
/// client takes 240 bytes in each second of [`LONG`]. The client's system takes little in
/// advance, so the server soon knows what the client takes.
fn ask_for_huge(runtime: &Runtime, drops: &Drops, request: &[u8]) -> (Site, StdStream) {
    let drops = drops.clone();
    let huge = move || {
        let body = Bytes::from_owner(Told(vec![7; HUGE], drops.token()));
        async { body }
    };
    let site = Site::with(runtime, |listener, stop| {
        serve(listener, Router::new().route("/huge", get(huge)))
            .with_graceful_shutdown(stop)
            .keep_alive_timeout(SHORT)
            .write_timeout(LONG)
    });
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    socket.connect(&site.addr.into()).unwrap();
    let mut stream = StdStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    (site, stream)
}

/// Takes parts of a response with pauses, and then the rest. The server's socket has room again
/// only after several times [`LONG`]. `take` takes a part, and returns how many bytes it has.
fn take_slowly(mut take: impl FnMut() -> usize) -> usize {
    let start = Instant::now();
    let mut taken = 0;
    loop {
        match take() {
            0 => return taken,
            n => taken += n,
        }
        if start.elapsed() < 4 * LONG {
            thread::sleep(2 * SHORT);
        }
    }
}

/// Returns a request of HTTP/1, and one of HTTP/2 whose client allows as many bytes as possible.
fn requests_for_huge() -> [Vec<u8>; 2] {
    let http1 = b"GET /huge HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    let most = (1_u32 << 31) - 1;
    let mut http2 = beginning(&[(INITIAL_WINDOW_SIZE, most)]);
    http2.extend(frame(WINDOW_UPDATE, 0, 0, &(most >> 1).to_be_bytes()));
    http2.extend(http2_get(1, "/huge"));
    [http1.to_vec(), http2]
}

#[test]
fn a_slow_reader_gets_the_response_though_the_socket_is_full_for_long() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let [http1, http2] = requests_for_huge();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (_site, mut stream) = ask_for_huge(&runtime, &Drops::new(), &http1);
            let mut part = [0; 16 * 1024];
            // An error means that the server has cut the connection.
            let taken = take_slowly(|| stream.read(&mut part).unwrap_or(0));
            assert!(taken > HUGE, "{taken} bytes");
        });
        let (_site, mut stream) = ask_for_huge(&runtime, &Drops::new(), &http2);
        let mut taken = 0;
        take_slowly(|| {
            let (kind, _, payload) = next_frame(&mut stream);
            assert_ne!(kind, RST_STREAM, "after {taken} bytes");
            taken += usize::from(kind == DATA) * payload.len();
            if taken == HUGE { 0 } else { 1 }
        });
    });
}

#[test]
fn a_slow_reader_that_stops_is_closed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for request in requests_for_huge() {
        let drops = Drops::new();
        let (site, mut stream) = ask_for_huge(&runtime, &drops, &request);
        for _ in 0..10 {
            stream.read_exact(&mut [0; 16 * 1024]).unwrap();
            thread::sleep(2 * SHORT);
        }
        eventually("the body is dropped", || drops.count() == 1);
        // The connection ends, too.
        let served = site.stop();
        let served = runtime.block_on(async { timeout(PATIENCE, served).await });
        served.unwrap().unwrap().unwrap();
    }
}
