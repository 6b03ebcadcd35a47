//! Accepting connections: so many at once, through errors, until a signal comes.

use std::{future::pending, io, time::Duration};

use futures_lite::future::or;
use tourbillon::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::{stop::Stop, trouble::Trouble};

enum Event {
    Came(TcpStream),
    /// A connection has ended, and there is room for another.
    Ended,
    Stop,
}

/// Runs `serve` in a task for each connection, for at most `max` at once: the others wait in the
/// listener's queue. When a signal comes no more are accepted, and those that are open have until
/// `drain`, or another signal, to end; what is left is aborted. Answers how many that were.
///
/// # Errors
///
/// If signals cannot be waited for. An `accept` that fails is tried again.
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
        // A task that panicked has said so, and is no concern of the others.
        while open.try_join_next().is_some() {}
        let count = open.len();
        let ended = async {
            if count == 0 {
                // There is none to wait for.
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
        match or(stopped, or(ended, came)).await? {
            Event::Came(stream) => drop(open.spawn(serve(stream))),
            Event::Ended => {}
            Event::Stop => break,
        }
    }
    // Who connects from here on is told that nobody listens.
    drop(acceptor);
    if !open.is_empty() {
        let all = async { while open.join_next().await.is_some() {} };
        let again = async { drop(stop.recv().await) };
        let _ = timeout(drain, or(all, again)).await;
    }
    while open.try_join_next().is_some() {}
    let left = open.len();
    open.shutdown().await;
    Ok(left)
}

struct Acceptor {
    listener: TcpListener,
    trouble: Trouble,
}

impl Acceptor {
    /// The next connection.
    async fn next(&mut self, open: usize) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _peer)) => return stream,
                Err(error) => self.trouble.outlast(&error, open).await,
            }
        }
    }
}
