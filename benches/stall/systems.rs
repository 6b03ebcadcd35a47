//! A common interface to the runtimes under test.

use std::{
    future::{Future, poll_fn},
    net::TcpStream,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::Instant,
};

use futures_lite::AsyncReadExt as _;

/// The operations of a runtime that the scenarios use.
pub trait System: Sync {
    type Sleep: Future<Output = ()> + Send + 'static;
    type Socket: Send + 'static;

    /// Starts a task, from outside.
    fn start(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Runs `f` at the deadline, armed from outside.
    fn arm(&self, deadline: Instant, f: impl FnOnce() + Send + 'static);

    /// Spawns a task, from a task.
    fn spawn(task: impl Future<Output = ()> + Send + 'static);

    /// Runs `f` at the deadline, armed from a task. The timer belongs to this worker. `set` is
    /// incremented when arming is complete.
    fn arm_here(deadline: Instant, set: &Count, f: impl FnOnce() + Send + 'static);

    fn sleep_until(deadline: Instant) -> Self::Sleep;

    fn yield_now() -> impl Future<Output = ()> + Send;

    /// Registers a connection with the calling worker.
    fn socket(stream: TcpStream) -> Self::Socket;

    /// Reads one byte. Returns `false` if the connection was closed.
    fn read(socket: &mut Self::Socket) -> impl Future<Output = bool> + Send;
}

pub struct Ours(pub tourbillon::Runtime);

impl System for Ours {
    type Sleep = tourbillon::time::Sleep;
    type Socket = tourbillon::net::TcpStream;

    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    fn arm(&self, deadline: Instant, f: impl FnOnce() + Send + 'static) {
        drop(self.0.handle().at(deadline, f));
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        tourbillon::spawn(task);
    }

    fn arm_here(deadline: Instant, set: &Count, f: impl FnOnce() + Send + 'static) {
        drop(tourbillon::at(deadline, f));
        set.up();
    }

    fn sleep_until(deadline: Instant) -> Self::Sleep {
        tourbillon::time::sleep_until(deadline.into())
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tourbillon::task::yield_now()
    }

    fn socket(stream: TcpStream) -> Self::Socket {
        tourbillon::net::TcpStream::from_std(stream).expect("it can be watched")
    }

    async fn read(socket: &mut Self::Socket) -> bool {
        socket.read(&mut [0]).await.expect("it is open") == 1
    }
}

pub struct Tokio(pub tokio::runtime::Runtime);

impl System for Tokio {
    type Sleep = tokio::time::Sleep;
    type Socket = tokio::net::TcpStream;

    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    fn arm(&self, deadline: Instant, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move {
            tokio::time::sleep_until(deadline.into()).await;
            f();
        });
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }

    fn arm_here(deadline: Instant, set: &Count, f: impl FnOnce() + Send + 'static) {
        sleep_here::<Self, _>(deadline, set, f);
    }

    fn sleep_until(deadline: Instant) -> Self::Sleep {
        tokio::time::sleep_until(deadline.into())
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn socket(stream: TcpStream) -> Self::Socket {
        stream.set_nonblocking(true).expect("any socket can be so");
        tokio::net::TcpStream::from_std(stream).expect("it can be watched")
    }

    async fn read(socket: &mut Self::Socket) -> bool {
        loop {
            socket.readable().await.expect("it is watched");
            match socket.try_read(&mut [0]) {
                Ok(read) => return read == 1,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

/// Implements [`System::arm_here`] by a task that sleeps.
pub fn sleep_here<S, F>(deadline: Instant, set: &Count, f: F)
where
    S: System,
    F: FnOnce() + Send + 'static,
{
    let mut sleep = Box::pin(S::sleep_until(deadline));
    let here = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(here.is_pending(), "it is not due yet");
    let waits = counted(sleep, set.clone());
    S::spawn(async move {
        waits.await;
        f();
    });
}

#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn up(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    pub fn get(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// Yields until the count is reached.
    pub async fn wait_for<S: System>(&self, count: usize) {
        while self.get() < count {
            S::yield_now().await;
        }
    }
}

/// Increments `polled` after the first poll of `future`.
pub async fn counted<F: Future>(future: F, polled: Count) -> F::Output {
    let mut future = pin!(future);
    let mut polled = Some(polled);
    poll_fn(|cx| {
        let answer = future.as_mut().poll(cx);
        if let Some(polled) = polled.take() {
            polled.up();
        }
        answer
    })
    .await
}
