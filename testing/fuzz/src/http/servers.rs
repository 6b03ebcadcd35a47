//! The servers. They start with the first input.

use std::{net::SocketAddr, panic, sync::OnceLock, thread, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::StatusCode,
    routing::{get, post},
};
use tourbillon::{
    Runtime,
    net::TcpListener,
    runtime::Builder,
    signal::{Signal, SignalKind, signal},
};
use tourbillon_inspect::Inspector;

use super::{PANICKED, Relaxed};
use crate::guard::ALLOWED;

/// Maximum length of an echoed body.
pub const MOST_BODY: usize = 1_024;

pub struct Servers {
    pub page: SocketAddr,
    pub axum: SocketAddr,
    /// Keeps SIGPIPE from ending the process: a write to a closed connection then returns an error,
    /// as in any Rust program. In a fuzz target the fuzzer has `main`, so the standard library does
    /// not ignore the signal.
    _broken_pipes: Signal,
    /// Dropping the runtime ends the servers.
    _runtime: Runtime,
}

pub fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        // A panic on a worker ends only a task. Record it, so that the target fails.
        let (caller, before) = (thread::current().id(), panic::take_hook());
        panic::set_hook(Box::new(move |info| {
            before(info);
            if thread::current().id() != caller && !is_test() {
                PANICKED.store(true, Relaxed);
            }
        }));
        start()
    })
}

/// Returns whether the thread runs another target, in the test without a fuzzer.
fn is_test() -> bool {
    let name = thread::current().name().map(str::to_owned);
    let name = name.as_deref();
    name.is_some_and(|name| ["cron", "guard", "shard", "stores"].contains(&name))
}

fn start() -> Servers {
    let runtime = Builder::new().worker_threads(1).build();
    let runtime = runtime.expect("the machine has a thread for it");
    let inspector = Inspector::builder(runtime.handle())
        .allow_host(ALLOWED)
        .expect("it is a name")
        .max_connections(512)
        // The server notices a closed connection when it sends the next event.
        .period(Duration::from_millis(10))
        .serve("127.0.0.1:0")
        .expect("there is a port");
    let router = Router::new().route("/", get(|| async { "hello" })).route(
        "/echo",
        post(|body: Body| async {
            let body = to_bytes(body, MOST_BODY).await;
            body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)
        }),
    );
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("there is a port");
    let axum = listener.local_addr().expect("it is bound");
    let server = tourbillon_axum::serve(listener, router)
        .max_buf_size(8 * 1024)
        .header_read_timeout(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(5));
    drop(runtime.spawn(server.into_future()));
    let pipes = runtime.block_on(async { signal(SignalKind::pipe()) });
    Servers {
        _broken_pipes: pipes.expect("it can be had"),
        page: inspector.local_addr(),
        axum,
        _runtime: runtime,
    }
}
