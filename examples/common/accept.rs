//! An accept loop with a limit of connections. It continues after errors and ends on a signal.

use std::{future::pending, io, time::Duration};

use futures_lite::future::or;
use tourbillon::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::server::{Stop, Trouble};

enum Event {
    Came(TcpStream),
    /// A connection has ended, so there is room for another.
    Ended,
    Stop,
}

/// Runs `serve` in a task for each connection, for at most `max` at a time. More clients wait in
/// the listener's queue. After a signal it stops accepting and waits for open connections, until
/// `drain` has passed or another signal comes. Then it aborts the rest and returns their number.
///
/// # Errors
///
/// Fails if it cannot wait for signals. A failed `accept` is retried.
pub async fn accept<F>(
    listener: TcpListener,
    max: usize,
    mut stop: Stop,
    drain: Duration,
    mut serve: impl FnMut(TcpStream) -> F,
) -> io::Result<usize>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut open = JoinSet::new();
    let mut acceptor = Acceptor {
        listener,
        trouble: Trouble::default(),
    };
    loop {
        // Collect tasks that ended. The panic of a task was reported, and does not concern the
        // others.
        while open.try_join_next().is_some() {}
        let count = open.len();
        let ended = async {
            if count == 0 {
                // `join_next` would return at once.
                pending::<()>().await;
            }
            open.join_next().await;
            Ok(Event::Ended)
        };
        let came = async {
            if count >= max {
                pending::<()>().await;
            }
            Ok(Event::Came(acceptor.next(count).await))
        };
        let stopped = async { stop.recv().await.map(|()| Event::Stop) };
        // A signal takes precedence over new clients.
        match or(stopped, or(ended, came)).await? {
            Event::Came(stream) => drop(open.spawn(serve(stream))),
            Event::Ended => {}
            Event::Stop => break,
        }
    }
    // Close the listener, so that new clients are refused.
    drop(acceptor);
    // Wait for the open connections, up to the limit or another signal.
    if !open.is_empty() {
        let all = async { while open.join_next().await.is_some() {} };
        let again = async { drop(stop.recv().await) };
        let _ = timeout(drain, or(all, again)).await;
    }
    // A task that is about to return ends by itself, and is not counted.
    open.abort_all();
    let mut left = 0;
    while let Some(ended) = open.join_next().await {
        left += usize::from(ended.is_err_and(|error| error.is_cancelled()));
    }
    Ok(left)
}

struct Acceptor {
    listener: TcpListener,
    trouble: Trouble,
}

impl Acceptor {
    /// Waits for the next connection.
    async fn next(&mut self, open: usize) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _peer)) => return stream,
                Err(error) => self.trouble.outlast(&error, open).await,
            }
        }
    }
}
