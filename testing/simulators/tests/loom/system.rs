//! What the programs with planted bugs need, by loom.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use crate::absent::{
    Notify, crash, fs, mount, now, random, restart, set_clock, sync_names, timeout,
};
use crate::programs::Sim;
pub use crate::sockets::{AsyncReadExt, AsyncWriteExt, TcpListener, TcpStream};
pub use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use loom::{future::block_on, thread};

/// The programs of a description.
#[derive(Default)]
pub struct Description(Vec<Box<dyn FnOnce()>>);

impl Sim for Description {
    fn host<F, Fut>(&mut self, _: &'static str, _: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        unimplemented!("no program with two hosts runs here")
    }

    fn client<F, Fut>(&mut self, _: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        let run = move || block_on(start()).expect("the client fails");
        self.0.push(Box::new(run));
    }

    // No program that asks for one of these runs here.
    fn be_late(&mut self) {}

    fn have_disks(&mut self) {}
}

impl Description {
    /// Runs in an execution until all clients have ended.
    pub fn run(self) {
        self.0.into_iter().for_each(|run| run());
    }
}

/// What a task leaves for the task that awaits it.
struct End<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// Awaits the end of a task.
pub struct JoinHandle<T>(Arc<Mutex<End<T>>>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut end = self.0.lock().unwrap();
        match end.value.take() {
            Some(value) => Poll::Ready(Ok(value)),
            None => {
                end.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Runs a task on a thread of its own.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let end = Arc::new(Mutex::new(End {
        value: None,
        waker: None,
    }));
    let of_task = end.clone();
    thread::spawn(move || {
        let value = block_on(task);
        let mut end = of_task.lock().unwrap();
        end.value = Some(value);
        let waker = end.waker.take();
        drop(end);
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    JoinHandle(end)
}

/// Ends at once.
pub async fn sleep(_: Duration) {}
