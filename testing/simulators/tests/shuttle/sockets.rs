//! Sockets in memory, of all hosts of a schedule. Only what a program does between two of their
//! calls is divided by the scheduler.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    future::poll_fn,
    io,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

/// What goes from one task to another.
struct Queue<T> {
    items: VecDeque<T>,
    is_closed: bool,
    waker: Option<Waker>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            is_closed: false,
            waker: None,
        }
    }
}

type Shared<T> = Arc<Mutex<Queue<T>>>;

/// Changes a queue, and wakes the task that waits for it.
fn change<T>(queue: &Shared<T>, change: impl FnOnce(&mut Queue<T>)) {
    let mut queue = queue.lock().unwrap();
    change(&mut queue);
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Waits for an item. Returns `None` after the close.
async fn next<T>(queue: &Shared<T>) -> Option<T> {
    poll_fn(|cx: &mut Context<'_>| {
        let mut queue = queue.lock().unwrap();
        match queue.items.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if queue.is_closed => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

thread_local! {
    /// The listeners of a schedule, by port: a schedule has one server. All of its tasks run on one
    /// thread of the system.
    static LISTENERS: RefCell<HashMap<u16, Shared<TcpStream>>> = RefCell::default();
}

/// Forgets the listeners of the schedule before.
pub fn reset() {
    LISTENERS.take();
}

pub struct TcpListener(Shared<TcpStream>);

impl TcpListener {
    pub async fn bind((_, port): (&str, u16)) -> io::Result<Self> {
        let queue = Shared::default();
        LISTENERS.with_borrow_mut(|all| all.insert(port, queue.clone()));
        Ok(Self(queue))
    }

    pub async fn accept(&self) -> io::Result<(TcpStream, ())> {
        let stream = next(&self.0).await.expect("no listener is closed");
        Ok((stream, ()))
    }
}

pub struct TcpStream {
    read: Shared<u8>,
    write: Shared<u8>,
}

impl TcpStream {
    pub async fn connect((_, port): (&str, u16)) -> io::Result<Self> {
        let listener = LISTENERS.with_borrow(|all| all.get(&port).cloned());
        let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (read, write) = (Shared::default(), Shared::default());
        let theirs = Self {
            read: write.clone(),
            write: read.clone(),
        };
        change(&listener, |queue| queue.items.push_back(theirs));
        Ok(Self { read, write })
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        for queue in [&self.read, &self.write] {
            change(queue, |queue| queue.is_closed = true);
        }
    }
}

pub trait AsyncReadExt {
    fn read_exact(&mut self, bytes: &mut [u8]) -> impl Future<Output = io::Result<()>> + Send;
}

impl AsyncReadExt for TcpStream {
    async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        for byte in bytes {
            let next = next(&self.read).await;
            *byte = next.ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }
}

pub trait AsyncWriteExt {
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

impl AsyncWriteExt for TcpStream {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        change(&self.write, |queue| queue.items.extend(bytes));
        Ok(())
    }
}
