//! What the stores on servers share: the server's clock, and connections that are made again.

use std::{
    future::{Future, poll_fn},
    io,
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite};
use tourbillon::{
    Handle,
    net::{TcpStream, ToSocketAddrs, UnixStream},
    task::JoinHandle,
    time::{Instant as RuntimeInstant, sleep, timeout},
};

use crate::{
    job::{Time, When, micros},
    keeper::{self, Process},
    store::{Deadline, StoreError},
};

/// Time limit of an answer of the server, and of a connect.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// How often a listening connection is checked.
const LISTEN: Duration = Duration::from_millis(500);

/// Maximum age of a sample of the server's time. Then the next answer replaces it.
const LONGEST_SAMPLE: Duration = Duration::from_secs(10);

/// A time for the server.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) micros: i64,
    /// Whether the server counts it from its time.
    pub(crate) is_delay: bool,
    /// From when this process has counted it, if it has.
    pub(crate) counted: Option<i64>,
}

/// Returns a time for the server. Returns `None` if a pattern has no further occurrence.
pub(crate) fn time(when: &When, now: Time) -> Option<Moment> {
    Some(match when {
        When::In(delay) => Moment {
            micros: micros(*delay),
            is_delay: true,
            counted: None,
        },
        _ => Moment {
            micros: when.resolve(now)?.as_micros(),
            is_delay: false,
            counted: when.counted(now).map(Time::as_micros),
        },
    })
}

/// Makes the error of a server that is out of reach, or that does not do as it should.
pub(crate) fn lost(text: &str) -> StoreError {
    StoreError::failed(io::Error::new(io::ErrorKind::TimedOut, text.to_owned()))
}

/// A time of the server, and when it arrived here. That is a moment of the machine's clock: a client
/// may be on a runtime whose clock is paused.
#[derive(Clone, Copy)]
struct Sample {
    time: Time,
    at: Instant,
}

impl Sample {
    fn new(micros: i64) -> Self {
        Self {
            time: Time::from_micros(micros),
            at: Instant::now(),
        }
    }

    fn now(self) -> Time {
        self.time.after_rounded_down(self.at.elapsed())
    }
}

/// The server's clock, as far as its answers tell. This process' monotonic clock runs on from the
/// last answer.
pub(crate) struct Clock(Mutex<Sample>);

impl Clock {
    /// Makes a clock from an answer that has just arrived.
    pub(crate) fn new(micros: i64) -> Self {
        Self(Mutex::new(Sample::new(micros)))
    }

    fn sample(&self) -> MutexGuard<'_, Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns the time from an answer that has just arrived. The server's clock is at least this
    /// late.
    pub(crate) fn learn(&self, micros: i64) {
        let new = Sample::new(micros);
        let mut sample = self.sample();
        // An answer that was longer on its way gives an earlier time, so ignore it. But replace a
        // sample that is too old, as the two clocks do not run at quite the same speed.
        if new.time > sample.now() || sample.at.elapsed() > LONGEST_SAMPLE {
            *sample = new;
        }
    }

    /// Learns the time from an answer, although it is earlier than this process believed.
    pub(crate) fn learn_anew(&self, micros: i64) {
        *self.sample() = Sample::new(micros);
    }

    /// Returns a time that the server's clock has reached.
    pub(crate) fn now(&self) -> Time {
        self.sample().now()
    }

    /// Returns when a timer for a time of the server's clock has to run.
    pub(crate) fn deadline(&self, at: Time) -> Deadline {
        let sample = *self.sample();
        Deadline::Monotonic(RuntimeInstant::from_std(sample.at) + at.since(sample.time))
    }
}

/// The data of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Connects to an address.
pub(crate) async fn tcp(addr: impl ToSocketAddrs) -> Result<TcpStream, StoreError> {
    let stream = TcpStream::connect(addr).await.map_err(StoreError::failed)?;
    stream.set_nodelay(true).map_err(StoreError::failed)?;
    // A connection that is given up discards what it has not sent.
    stream.set_zero_linger().map_err(StoreError::failed)?;
    Ok(stream)
}

/// Connects to a socket in the file system.
pub(crate) async fn unix(path: &Path) -> Result<UnixStream, StoreError> {
    UnixStream::connect(path).await.map_err(StoreError::failed)
}

/// A connection that listens.
pub(crate) trait Listener: Send + Sync + 'static {
    /// Makes sure that the connection is alive.
    fn ping(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Keeps a connection alive until the result is dropped.
pub(crate) fn listen(listener: impl Listener) -> Aborts<()> {
    Aborts(keeper::handle().spawn(async move {
        loop {
            // Find out whether the connection has died silently. Ignore the error: if it is not
            // temporary, the other connections report it.
            let _ = listener.ping().await;
            sleep(LISTEN).await;
        }
    }))
}

/// A connection, as a [`Slot`] has it.
pub(crate) trait Connection {
    /// Returns whether the connection may be alive.
    fn is_usable(&self) -> bool;

    /// Closes the connection, and discards what it has not sent. Requests that wait for an answer
    /// fail.
    fn close(&self);
}

/// The place of a connection, which is made again when it is lost.
pub(crate) struct Slot<C> {
    place: Arc<Place<C>>,
    /// The runtime that connects. The callers may be on one whose threads are all blocked.
    runtime: Handle,
    process: Process,
}

struct Place<C> {
    live: Mutex<Option<Arc<C>>>,
    /// Held by the task that connects.
    connecting: tokio::sync::Mutex<()>,
}

impl<C> Place<C> {
    fn live(&self) -> MutexGuard<'_, Option<Arc<C>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connection> Place<C> {
    fn usable(&self) -> Option<Arc<C>> {
        self.live().clone().filter(|live| live.is_usable())
    }

    async fn get(
        &self,
        connect: impl Future<Output = Result<C, StoreError>>,
    ) -> Result<Arc<C>, StoreError> {
        let made = async {
            let _connecting = self.connecting.lock().await;
            // Another caller may have connected meanwhile.
            if let Some(live) = self.usable() {
                return Ok(live);
            }
            let made = Arc::new(connect.await?);
            *self.live() = Some(made.clone());
            Ok(made)
        };
        // Callers wait for each other here, so the time limit includes this wait.
        timeout(LIMIT, made)
            .await
            .map_err(|_| lost("the server lets no client in"))?
    }
}

/// Aborts a task when it is dropped.
pub(crate) struct Aborts<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Aborts<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<C: Connection + Send + Sync + 'static> Slot<C> {
    pub(crate) fn new() -> Self {
        Self::on(keeper::handle().clone())
    }

    fn on(runtime: Handle) -> Self {
        let place = Place {
            live: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        };
        Self {
            place: Arc::new(place),
            runtime,
            process: Process::this(),
        }
    }

    /// Returns the connection if it is usable, and makes it otherwise, on the library's thread.
    pub(crate) async fn get(
        &self,
        connect: impl Future<Output = Result<C, StoreError>> + Send + 'static,
    ) -> Result<Arc<C>, StoreError> {
        self.process.check()?;
        if let Some(live) = self.place.usable() {
            return Ok(live);
        }
        let place = self.place.clone();
        let connecting = self.runtime.spawn(async move { place.get(connect).await });
        let mut connecting = Aborts(connecting);
        (&mut connecting.0).await.map_err(StoreError::failed)?
    }

    /// Waits for an answer over a connection. Gives the connection up if none arrives.
    pub(crate) async fn answer<A>(
        &self,
        live: &Arc<C>,
        answer: impl Future<Output = A>,
    ) -> Result<A, StoreError> {
        match inside(timeout(LIMIT, answer)).await {
            Ok(answer) => Ok(answer),
            Err(_) => {
                // It is unknown what the server did, so nothing may come over this connection
                // later.
                self.give_up(live);
                Err(lost("the server does not answer"))
            }
        }
    }

    /// Closes a connection, and lets the next caller make another one.
    pub(crate) fn give_up(&self, live: &Arc<C>) {
        let mut slot = self.place.live();
        if slot.as_ref().is_some_and(|other| Arc::ptr_eq(other, live)) {
            *slot = None;
        }
        // After it has left the slot: no caller gets a connection that is closed.
        drop(slot);
        live.close();
    }
}

/// Polls a future within the runtime that [`keeper::here`] returns. So it may arm timers and
/// connect, whatever executor polls the result.
pub(crate) async fn inside<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let is_outside = Handle::try_current().is_err();
        let _entered = is_outside.then(|| keeper::handle().enter());
        future.as_mut().poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicBool, Ordering},
    };

    use futures_lite::future::zip;
    use tourbillon::runtime::Builder;

    use super::*;

    #[derive(Default)]
    struct Fake {
        is_closed: AtomicBool,
    }

    impl Connection for Fake {
        fn is_usable(&self) -> bool {
            !self.is_closed.load(Ordering::Relaxed)
        }

        fn close(&self) {
            self.is_closed.store(true, Ordering::Relaxed);
        }
    }

    /// Runs a test on a paused clock, which skips the waits.
    fn run(test: impl Future<Output = ()>) {
        let runtime = Builder::new().start_paused(true).build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn callers_wait_together_for_a_server_that_lets_nobody_in() {
        run(async {
            let slot = Slot::<Fake>::on(Handle::current());
            let start = RuntimeInstant::now();
            let get = || slot.get(pending());
            let ((first, second), third) = zip(zip(get(), get()), get()).await;
            assert!(first.is_err() && second.is_err() && third.is_err());
            let took = start.elapsed();
            assert!(took < LIMIT * 3 / 2, "{took:?}");
        });
    }

    #[test]
    fn a_connection_without_an_answer_is_closed_although_others_use_it() {
        run(async {
            let slot = Slot::on(Handle::current());
            let made = async { Ok(Fake::default()) };
            let live = slot.get(made).await.unwrap();
            let other = live.clone();
            assert!(slot.answer(&live, pending::<()>()).await.is_err());
            assert!(!other.is_usable());
            let made = async { Ok(Fake::default()) };
            assert!(slot.get(made).await.unwrap().is_usable());
        });
    }
}
