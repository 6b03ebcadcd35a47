//! What the stores on servers share: the server's clock, and connections that are made again.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tourbillon::time::{Instant, timeout};

use crate::{
    job::{Time, When},
    store::{Deadline, StoreError},
};

/// Time limit of an answer of the server, and of a connect.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum age of a sample of the server's time. Then the next answer replaces it.
const LONGEST_SAMPLE: Duration = Duration::from_secs(10);

/// Returns whole microseconds for the server.
pub(crate) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX / 4)
}

/// Returns a time for the server, and whether it is a delay. Returns `None` if a pattern has no
/// further occurrence.
pub(crate) fn time(when: &When, now: Time) -> Option<(i64, bool)> {
    match when {
        When::In(delay) => Some((micros(*delay).min(i64::MAX / 4), true)),
        _ => Some((when.resolve(now)?.as_micros(), false)),
    }
}

/// Makes the error of a server that is out of reach, or that does not do as it should.
pub(crate) fn lost(text: &str) -> StoreError {
    StoreError::failed(io::Error::new(io::ErrorKind::TimedOut, text.to_owned()))
}

/// A time of the server, and when it arrived here.
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
        Deadline::Monotonic(sample.at + at.since(sample.time))
    }
}

/// The place of a connection, which is made again when it is lost.
pub(crate) struct Slot<C>(tokio::sync::Mutex<Option<Arc<C>>>);

impl<C> Slot<C> {
    pub(crate) fn new() -> Self {
        Self(tokio::sync::Mutex::new(None))
    }

    /// Returns the connection if it is `usable`, and makes it otherwise.
    pub(crate) async fn get(
        &self,
        usable: impl Fn(&C) -> bool,
        connect: impl Future<Output = Result<C, StoreError>>,
    ) -> Result<Arc<C>, StoreError> {
        let mut slot = self.0.lock().await;
        if let Some(live) = slot.as_ref().filter(|live| usable(live)) {
            return Ok(live.clone());
        }
        let made = timeout(LIMIT, connect)
            .await
            .map_err(|_| lost("the server lets no client in"))??;
        let live = Arc::new(made);
        *slot = Some(live.clone());
        Ok(live)
    }

    /// Waits for an answer over a connection. Gives the connection up if none arrives.
    pub(crate) async fn answer<A>(
        &self,
        live: &Arc<C>,
        answer: impl Future<Output = A>,
    ) -> Result<A, StoreError> {
        match timeout(LIMIT, answer).await {
            Ok(answer) => Ok(answer),
            Err(_) => {
                // It is unknown what the server did, so nothing may come over this connection
                // later.
                self.give_up(live).await;
                Err(lost("the server does not answer"))
            }
        }
    }

    /// Lets the next caller make another connection.
    pub(crate) async fn give_up(&self, live: &Arc<C>) {
        let mut slot = self.0.lock().await;
        if slot.as_ref().is_some_and(|other| Arc::ptr_eq(other, live)) {
            *slot = None;
        }
    }
}
