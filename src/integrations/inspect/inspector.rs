//! A running inspector, on its own threads.

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

use crate::{
    api::{builder::Builder as RuntimeBuilder, runtime::Runtime},
    engine::handle::Handle,
    integrations::{
        axum::listener::Listener,
        inspect::{
            builder::Builder,
            download::Downloads,
            feed::Feed,
            listener::{Clients, Flow},
            outstanding::Outstanding,
            publish::{END, publish},
            sampler::Sampler,
            site,
            site::{Answers, Site},
            slowest::Slowest,
            snapshot::Inspection,
            tasks::TaskList,
        },
    },
    sync::notify::Notify,
    sys,
};

/// The time limit for a request head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a connection stays open without a request. It is short because other clients may
/// need the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The time that a shutdown waits for clients.
const GOODBYE: Duration = Duration::from_secs(1);
/// The maximum size of a request head in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// A running server of the live page. See [`serve`](super::serve).
///
/// Dropping it does not stop the server, which ends with the inspected runtime.
#[derive(Debug)]
pub struct Inspector {
    addr: SocketAddr,
    stop: Arc<Notify>,
    thread: thread::JoinHandle<()>,
}

impl Inspector {
    /// Returns a builder for an inspector of this runtime.
    pub fn builder(handle: &Handle) -> Builder {
        Builder::new(handle)
    }

    pub(crate) fn start(builder: Builder, addrs: Vec<SocketAddr>) -> io::Result<Self> {
        if builder.handle.is_shut_down() {
            return Err(io::Error::other("the runtime has been shut down"));
        }
        let stop = Arc::new(Notify::new());
        let (sender, started) = mpsc::channel();
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("inspector".to_owned())
            .spawn(move || run(builder, &addrs, stopped, &sender))?;
        // Wait until it listens, so that the caller gets errors and the address.
        let addr = started
            .recv()
            .map_err(|_| io::Error::other("the inspector's thread panicked"))??;
        Ok(Self { addr, stop, thread })
    }

    /// Returns the address that it listens at.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops the server and waits for its end. Event streams end, and clients that do not read
    /// their answers within a second are cut.
    pub fn shutdown(self) {
        self.stop.notify_one();
        // Ignore a panic of the thread: it has been printed.
        let _ = self.thread.join();
    }
}

/// The main function of the inspector's thread. First it sends the bound address, or an error, to
/// `started`. Then it serves until it is stopped, or until the inspected runtime has ended.
fn run(
    builder: Builder,
    addrs: &[SocketAddr],
    stop: Arc<Notify>,
    started: &mpsc::Sender<io::Result<SocketAddr>>,
) {
    // The inspector's own worker inherits these settings.
    builder.handle.shared().mask.take();
    sys::thread::be_nice();
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
        slowest: Slowest::default(),
        tasks: TaskList::default(),
        downloads: Downloads::default(),
        outstanding: Outstanding::default(),
        inspection: Inspection::begin(builder.period),
        answers: Answers::default(),
    });
    drop(runtime.spawn(publish(site.clone(), builder.period)));
    let service = site::router(site).into_make_service_with_connect_info::<Flow>();
    let server = crate::integrations::axum::serve(clients, service)
        .http1_only()
        .max_buf_size(MAX_HEAD)
        .max_connections(builder.max_connections)
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive_timeout(KEEP_ALIVE)
        .write_timeout(builder.write_timeout)
        .shutdown_timeout(GOODBYE)
        .with_graceful_shutdown(async move {
            let has_ended = wait(&builder.handle, &stop).await;
            feed.close(has_ended.then(|| Bytes::from_static(END.as_bytes())));
        });
    // Fails only if one of the server's tasks panics, which has been printed.
    let _ = runtime.block_on(server.into_future());
}

/// Creates a runtime for the server, which answers whatever the inspected runtime does.
fn runtime() -> io::Result<Runtime> {
    RuntimeBuilder::new()
        .worker_threads(1)
        .pin(false)
        .thread_name("inspector-0")
        // Do not report stalls of the inspector.
        .stall_threshold(Duration::MAX)
        .build()
        .map_err(io::Error::from)
}

/// Waits until the inspector is stopped or the inspected runtime has ended. Returns whether the
/// runtime has ended.
async fn wait(inspected: &Handle, stop: &Notify) -> bool {
    let mut stopped = pin!(stop.notified());
    let mut ended = pin!(inspected.ended());
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
            // Both futures hold a waker.
            assert_eq!(Arc::strong_count(&nobody), 4);
        }
        drop(waker);
        assert_eq!(Arc::strong_count(&nobody), 1);
    }

    #[test]
    fn wait_tells_a_stop_from_the_end_of_the_runtime() {
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
        // A wait that begins after the end is ready at once.
        assert!(waiting.block_on(wait(&handle, &Notify::new())));
    }
}
