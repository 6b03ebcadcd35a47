//! A server that runs, on threads of its own.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, mpsc},
    task::Poll,
    thread,
    time::Duration,
};

use ::hyper::body::Bytes;

use super::{
    builder::Builder,
    feed::Feed,
    listener::{Clients, Flow},
    outstanding::Outstanding,
    publish::{END, publish},
    sampler::Sampler,
    site::{self, Answers, Site},
    snapshot::Inspection,
};
use crate::{
    Handle, Runtime, axum::Listener, runtime::Builder as RuntimeBuilder, sync::Notify, sys,
};

/// How long a client may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may have no request afterwards. Short: what is kept for nothing is missing to
/// others.
const KEPT: Duration = Duration::from_secs(2);
/// How long a shutdown waits for clients.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long a request's head may be, in bytes.
const HEAD: usize = 16 * 1024;

/// A server of the live page, which runs: see [`serve`](super::serve).
///
/// Dropping this leaves it on; it ends with the runtime that it inspects.
#[derive(Debug)]
pub struct Inspector {
    addr: SocketAddr,
    stop: Arc<Notify>,
    thread: thread::JoinHandle<()>,
}

impl Inspector {
    /// The options of an inspector of this runtime.
    pub fn builder(handle: &Handle) -> Builder {
        Builder::new(handle)
    }

    pub(super) fn start(builder: Builder, addrs: Vec<SocketAddr>) -> io::Result<Self> {
        if builder.handle.shared().is_stopping() {
            return Err(io::Error::other("the runtime has been shut down"));
        }
        let stop = Arc::new(Notify::new());
        let (sender, started) = mpsc::channel();
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("inspector".to_owned())
            .spawn(move || run(builder, &addrs, stopped, &sender))?;
        let addr = started
            .recv()
            .map_err(|_| io::Error::other("the inspector's thread panicked"))??;
        Ok(Self { addr, stop, thread })
    }

    /// The address that it listens at.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it, and waits until it has ended: streams of events end, and clients that do not take
    /// their answers within a second are cut.
    pub fn shutdown(self) {
        self.stop.notify_one();
        // A panic has been printed.
        let _ = self.thread.join();
    }
}

/// The inspector's thread: serves until it is told to stop, or what it inspects has ended. Says
/// first where it listens, or why it does not.
fn run(
    builder: Builder,
    addrs: &[SocketAddr],
    stop: Arc<Notify>,
    started: &mpsc::Sender<io::Result<SocketAddr>>,
) {
    // Started by a worker, it would have that one's core and be as punctual. Its own worker
    // inherits what it has.
    sys::cpu::unpin();
    sys::thread::be_nice();
    // After that: the slack of threads with real-time priorities is none, and cannot be set.
    sys::thread::wake_by_default();
    let prepared = || {
        let runtime = runtime()?;
        let clients = runtime.block_on(async { Clients::bind(addrs) })?;
        let addr = clients.local_addr()?;
        io::Result::Ok((runtime, clients, addr))
    };
    let (runtime, clients) = match prepared() {
        Ok((runtime, clients, addr)) => {
            let _ = started.send(Ok(addr));
            (runtime, clients)
        }
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let feed = Feed::new(builder.max_listeners());
    let site = Arc::new(Site {
        handle: builder.handle.clone(),
        hosts: builder.hosts,
        feed: feed.clone(),
        sampler: Sampler::default(),
        outstanding: Outstanding::default(),
        inspection: Inspection::begin(builder.period),
        answers: Answers::default(),
    });
    drop(runtime.spawn(publish(site.clone(), builder.period)));
    let service = site::router(site).into_make_service_with_connect_info::<Flow>();
    let server = crate::axum::serve(clients, service)
        .http1_only()
        .max_buf_size(HEAD)
        .max_connections(builder.max_connections)
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive_timeout(KEPT)
        .write_timeout(builder.write_timeout)
        .shutdown_timeout(GOODBYE)
        .with_graceful_shutdown(async move {
            let has_ended = wait(&builder.handle, &stop).await;
            feed.close(has_ended.then(|| Bytes::from_static(END.as_bytes())));
        });
    // It fails only where a task of its own panics, which has been printed.
    let _ = runtime.block_on(server.into_future());
}

/// A runtime for the server alone, so that it answers whatever the one that it inspects is at.
fn runtime() -> io::Result<Runtime> {
    RuntimeBuilder::new()
        .worker_threads(1)
        .pin(false)
        .thread_name("inspector-0")
        // What it is late for is nobody's business.
        .stall_threshold(Duration::MAX)
        .build()
        .map_err(io::Error::from)
}

/// Waits until the inspector is told to stop, or the runtime has ended; answers whether it has.
async fn wait(inspected: &Handle, stop: &Notify) -> bool {
    let mut stopped = pin!(stop.notified());
    let mut ended = pin!(inspected.shared().ended());
    poll_fn(|cx| match stopped.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(false),
        Poll::Pending => ended.as_mut().poll(cx).map(|()| true),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake, Waker};

    use super::*;

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn the_runtime_forgets_inspectors_that_are_gone() {
        let inspected = Runtime::new().unwrap();
        let nobody = Arc::new(Nobody);
        let waker = Waker::from(nobody.clone());
        for _ in 0..1_000 {
            let stop = Notify::new();
            let mut waiting = pin!(wait(inspected.handle(), &stop));
            let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            // Both know who is to be woken.
            assert_eq!(Arc::strong_count(&nobody), 4);
        }
        drop(waker);
        assert_eq!(Arc::strong_count(&nobody), 1);
    }

    #[test]
    fn who_waits_is_told_why_it_need_not_any_more() {
        let inspected = Runtime::new().unwrap();
        let handle = inspected.handle().clone();
        let waiting = runtime().unwrap();
        let stop = Notify::new();
        stop.notify_one();
        assert!(!waiting.block_on(wait(&handle, &stop)));
        let stop = Arc::new(stop);
        let waits = waiting.spawn({
            let handle = handle.clone();
            async move { wait(&handle, &stop).await }
        });
        drop(inspected);
        assert!(waiting.block_on(waits).unwrap());
        // Also who comes after it.
        assert!(waiting.block_on(wait(&handle, &Notify::new())));
    }
}
