//! A server on a system that fails.

use std::{
    io::{Read, Write},
    thread,
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use tourbillon::net::TcpListener;
use tourbillon_axum::serve;
use tourbillon_support::{
    PATIENCE, alarm, eventually,
    process::alone,
    runtime,
    system_calls::{Faulty, call},
};

/// The accept loop of an HTTP server waits a tenth of a second each time, and serves all clients
/// when there are descriptors again.
#[test]
fn a_server_that_cannot_accept_neither_spins_nor_ends() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = Faulty::calls(&[call(libc::SYS_accept4)]) else {
            return;
        };
        let runtime = runtime(2);
        let (listener, addr) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            (listener, addr)
        });
        faulty.after(0, usize::MAX, libc::EMFILE);
        let router = Router::new().route("/", get(|| async { "hello" }));
        let service = router.into_make_service();
        let started = Instant::now();
        runtime.spawn(async move { serve(listener, service).await });
        let clients: Vec<_> = (0..10)
            .map(|_| std::net::TcpStream::connect(addr).unwrap())
            .collect();
        eventually("it tries more than once", || faulty.failed() >= 3);
        thread::sleep(Duration::from_millis(200));
        // Read the count before the time, so that the bound is not too low.
        let tries = faulty.failed();
        let most = started.elapsed().as_millis() / 100 + 2;
        assert!(tries as u128 <= most, "{tries} tries");
        faulty.heal();
        for mut client in clients {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client
                .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello"), "{answer}");
        }
    });
}
