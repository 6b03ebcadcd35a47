//! Listeners that fail, and listeners whose connections begin with a handshake.

use std::{
    future::{IntoFuture, pending},
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use tourbillon::net::{TcpListener, TcpStream};
use tourbillon_axum::{Listener, ListenerExt, serve};
use tourbillon_hyper::TourbillonIo;

use crate::{
    common::{HOUR, alarm, event::Event, runtime},
    web::{Site, without_tokio},
};

/// A short limit, for tests that wait until it is over.
const SHORT: Duration = Duration::from_millis(150);

fn hello() -> Router {
    without_tokio(Router::new().route("/", get(|| async { "hello" })))
}

/// A listener that first fails `errors` times, for lack of descriptors. If `stuck`, its first
/// connection never ends its handshake.
struct Troubled {
    listener: TcpListener,
    errors: usize,
    stuck: bool,
    accepted: Arc<Event>,
}

impl Listener for Troubled {
    type Io = TourbillonIo<TcpStream>;
    type Addr = SocketAddr;
    type Handshake = Pin<Box<dyn Future<Output = io::Result<TourbillonIo<TcpStream>>> + Send>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, SocketAddr)> {
        if self.errors > 0 {
            self.errors -= 1;
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let (stream, addr) = self.listener.accept().await?;
        let stream = TourbillonIo::new(stream);
        self.accepted.set();
        if std::mem::take(&mut self.stuck) {
            return Ok((
                Box::pin(async move {
                    let _stream = stream;
                    pending().await
                }),
                addr,
            ));
        }
        Ok((Box::pin(async { Ok(stream) }), addr))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn troubled(listener: TcpListener, errors: usize, stuck: bool) -> (Troubled, Arc<Event>) {
    let accepted = Arc::new(Event::default());
    let listener = Troubled {
        listener,
        errors,
        stuck,
        accepted: accepted.clone(),
    };
    (listener, accepted)
}

#[test]
fn a_failed_accept_is_reported_and_tried_again() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let told = Arc::new(Mutex::new(Vec::new()));
    let site = Site::with(&runtime, |listener, stop| {
        let told = told.clone();
        serve(troubled(listener, 2, false).0, hello())
            .with_graceful_shutdown(stop)
            .on_accept_error(move |error| {
                let code = error.io_error().raw_os_error();
                let text = error.to_string();
                told.lock()
                    .unwrap()
                    .push((code, error.open_connections(), text));
            })
    });
    assert_eq!(site.connect().get("/").body, "hello");
    let told = told.lock().unwrap();
    let (code, open, text) = &told[0];
    assert_eq!((*code, *open), (Some(libc::EMFILE), 0));
    assert!(
        text.starts_with("cannot accept with 0 connections open"),
        "{text}"
    );
}

#[test]
fn a_slow_handshake_delays_no_other_client_and_times_out() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for limit in [HOUR, SHORT] {
        let mut accepted = None;
        let site = Site::with(&runtime, |listener, stop| {
            let (listener, event) = troubled(listener, 0, true);
            accepted = Some(event);
            serve(listener, hello())
                .with_graceful_shutdown(stop)
                .header_read_timeout(limit)
        });
        let start = Instant::now();
        let stuck = site.connect();
        runtime.block_on(accepted.unwrap().wait());
        if limit == SHORT {
            assert_eq!(stuck.end(), "");
            assert!(start.elapsed() >= SHORT);
            runtime.block_on(site.stop()).unwrap().unwrap();
        } else {
            assert_eq!(site.connect().get("/").body, "hello");
            // A shutdown does not wait for it either.
            runtime.block_on(site.stop()).unwrap().unwrap();
            assert_eq!(stuck.end(), "");
        }
    }
}

#[test]
fn a_handshake_that_fails_or_panics_ends_only_its_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let count = Arc::new(Mutex::new(0));
    let site = Site::with(&runtime, |listener, stop| {
        let listener = listener.handshake(move |stream: TourbillonIo<TcpStream>| {
            let count = count.clone();
            async move {
                let turn = {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    *count
                };
                match turn {
                    1 => Err(ErrorKind::InvalidData.into()),
                    2 => panic!("as it should"),
                    _ => Ok(stream),
                }
            }
        });
        serve(listener, hello()).with_graceful_shutdown(stop)
    });
    assert_eq!(site.connect().end(), "");
    assert_eq!(site.connect().end(), "");
    assert_eq!(site.connect().get("/").body, "hello");
    runtime.block_on(site.stop()).unwrap().unwrap();
}

#[test]
fn a_listener_that_panics_ends_the_server_with_an_error() {
    struct Broken;
    impl Listener for Broken {
        type Io = TourbillonIo<TcpStream>;
        type Addr = SocketAddr;
        type Handshake = std::future::Ready<io::Result<TourbillonIo<TcpStream>>>;

        async fn accept(&mut self) -> io::Result<(Self::Handshake, SocketAddr)> {
            panic!("as it should")
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Err(ErrorKind::Unsupported.into())
        }
    }
    let _alarm = alarm();
    let error = runtime(2).block_on(serve(Broken, hello()).into_future());
    assert!(error.unwrap_err().to_string().contains("as it should"));
}
