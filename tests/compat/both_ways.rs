//! Each kind of code of one runtime reaches the other runtime.

use std::{sync::mpsc, thread, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{Handle, runtime::Builder, time::timeout};

use crate::with_companion;

/// Calls each of tokio's functions that needs its runtime.
async fn use_tokio() -> std::io::Result<()> {
    // A timer, a task and a blocking job.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let late = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>());
    assert!(late.await.is_err());
    assert_eq!(tokio::spawn(async { 1 }).await.unwrap(), 1);
    assert_eq!(tokio::task::spawn_blocking(|| 2).await.unwrap(), 2);
    // A conversation of two sockets.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let client = tokio::net::TcpStream::connect(listener.local_addr()?);
    let (server, client) = tokio::join!(listener.accept(), client);
    let ((mut server, _), mut client) = (server?, client?);
    client.write_all(b"ping").await?;
    let mut read = [0; 4];
    server.read_exact(&mut read).await?;
    assert_eq!(&read, b"ping");
    Ok(())
}

/// Calls each of our functions that needs a runtime.
async fn use_tourbillon() {
    tourbillon::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(tourbillon::spawn(async { 1 }).await.unwrap(), 1);
    let blocking = tourbillon::task::spawn_blocking(|| 2);
    assert_eq!(blocking.await.unwrap(), 2);
    let (fired, has_fired) = tokio::sync::oneshot::channel();
    tourbillon::after(Duration::from_millis(1), || fired.send(()).unwrap());
    has_fired.await.unwrap();
    let listener = tourbillon::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let client = tourbillon::net::TcpStream::connect(address);
    let (server, client) = tokio::join!(listener.accept(), client);
    assert_eq!(server.unwrap().1, client.unwrap().local_addr().unwrap());
}

#[test]
fn a_task_uses_tokio() {
    let runtime = with_companion();
    let task = runtime.spawn(use_tokio());
    runtime.block_on(task).unwrap().unwrap();
}

#[test]
fn block_on_uses_tokio() {
    with_companion().block_on(use_tokio()).unwrap();
}

#[test]
fn a_pinned_task_uses_tokio() {
    let runtime = with_companion();
    let task = runtime.spawn_pinned(use_tokio);
    runtime.block_on(task).unwrap().unwrap();
}

#[test]
fn a_callback_uses_tokio() {
    let runtime = with_companion();
    let (sender, receiver) = mpsc::channel();
    runtime.after(Duration::ZERO, move || {
        tokio::spawn(async move { sender.send(use_tokio().await.is_ok()) });
    });
    assert_eq!(receiver.recv(), Ok(true));
}

#[test]
fn a_blocking_job_uses_tokio() {
    let runtime = with_companion();
    let job = runtime.spawn_blocking(|| {
        let companion = tokio::runtime::Handle::current();
        companion.block_on(use_tokio())
    });
    runtime.block_on(job).unwrap().unwrap();
}

#[test]
fn an_entered_thread_uses_tokio() {
    let runtime = with_companion();
    assert!(tokio::runtime::Handle::try_current().is_err());
    {
        let _entered = runtime.enter();
        tokio::spawn(async {});
    }
    assert!(tokio::runtime::Handle::try_current().is_err());
}

#[test]
fn a_task_of_tokio_uses_this_runtime() {
    let runtime = with_companion();
    runtime.block_on(async { tokio::spawn(use_tourbillon()).await.unwrap() });
}

#[test]
fn a_blocking_job_of_tokio_uses_this_runtime() {
    let runtime = with_companion();
    let job = || Handle::current().block_on(use_tourbillon());
    runtime.block_on(async { tokio::task::spawn_blocking(job).await.unwrap() });
}

#[test]
fn threads_of_the_companion_are_not_pinned() {
    // On a pinned worker, the first blocking job starts a thread of the companion.
    let runtime = tourbillon::Runtime::builder().enable_tokio().build();
    let allowed = || thread::available_parallelism().unwrap().get();
    let here = allowed();
    let there = runtime.unwrap().block_on(async move {
        let task = tourbillon::spawn(async move { tokio::task::spawn_blocking(allowed).await });
        task.await.unwrap().unwrap()
    });
    assert_eq!(there, here);
}

#[test]
fn there_is_no_companion_by_default() {
    let runtime = tourbillon::Runtime::new().unwrap();
    let found = runtime.block_on(async { tokio::runtime::Handle::try_current() });
    assert!(found.is_err());
}

#[test]
fn each_runtime_has_its_own_companion() {
    let (first, second) = (with_companion(), with_companion());
    let of = |runtime: &tourbillon::Runtime| {
        runtime.block_on(async { tokio::runtime::Handle::current().id() })
    };
    assert_ne!(of(&first), of(&second));
    // A `block_on` of the second runtime within the first enters the second's companion until it
    // returns.
    let inner = second.handle().clone();
    let (before, within, after) = first.block_on(async {
        let id = || tokio::runtime::Handle::current().id();
        (id(), inner.block_on(async { id() }), id())
    });
    assert_eq!((before, within), (of(&first), of(&second)));
    assert_eq!(before, after);
}

#[test]
fn a_wait_for_tokio_can_time_out_here() {
    let runtime = with_companion();
    let waited = runtime.block_on(async {
        let never = tokio::time::sleep(Duration::from_secs(3600));
        timeout(Duration::from_millis(5), never).await
    });
    assert!(waited.is_err());
}

#[cfg(feature = "macros")]
#[tourbillon::test(enable_tokio)]
async fn the_attribute_enables_tokio() {
    use_tokio().await.unwrap();
}

#[test]
fn a_current_thread_runtime_can_have_a_companion() {
    let runtime = Builder::new_current_thread()
        .enable_tokio()
        .build()
        .unwrap();
    let here = thread::current().id();
    for _ in 0..2 {
        let (of_tokio, ours) = runtime.block_on(async {
            let task = tokio::spawn(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let ours = tourbillon::spawn(async { thread::current().id() });
                (thread::current().id(), ours.await.unwrap())
            });
            task.await.unwrap()
        });
        assert_ne!(of_tokio, here);
        assert_eq!(ours, here);
    }
}
