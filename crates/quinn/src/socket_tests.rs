//! Tests of the waits for room. The loopback interface always has room, so they take it back.

use std::{future::poll_fn, time::Duration};

use tourbillon::{Runtime, time::timeout};

use super::*;

/// Only a hang takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

fn poll_once(poller: &mut Pin<Box<dyn UdpPoller>>) -> Poll<io::Result<()>> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    poller.as_mut().poll_writable(&mut cx)
}

#[test]
fn each_connection_waits_for_room_by_itself() {
    let runtime = Runtime::new().unwrap();
    let writable = |mut poller: Pin<Box<dyn UdpPoller>>| async move {
        let wait = poll_fn(|cx| poller.as_mut().poll_writable(cx));
        timeout(PATIENCE, wait).await.unwrap().unwrap();
        poller
    };
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let socket = Arc::new(Socket::new(socket).unwrap());
        // 1. The first event reports room.
        let mut one = writable(socket.clone().create_io_poller()).await;
        assert!(socket.has_room().unwrap());
        assert!(poll_once(&mut one).is_ready());
        // 2. A send finds the socket full.
        socket.socket.writable().await.unwrap().clear_ready();
        let mut other = socket.clone().create_io_poller();
        assert!(poll_once(&mut one).is_pending());
        assert!(poll_once(&mut other).is_pending());
        // 3. Both connections wait, and the next event wakes both.
        let waits = [one, other].map(|poller| tourbillon::spawn(writable(poller)));
        tourbillon::task::yield_now().await;
        UdpSocket::bind("127.0.0.1:0")
            .and_then(|sender| sender.send_to(b"packet", addr))
            .unwrap();
        for wait in waits {
            // A poller can be used again after its wait.
            assert!(poll_once(&mut wait.await.unwrap()).is_ready());
        }
    });
}

#[test]
fn a_shutdown_fails_the_waits() {
    let runtime = Runtime::new().unwrap();
    let socket = runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Arc::new(Socket::new(socket).unwrap())
    });
    drop(runtime);
    let mut poller = socket.clone().create_io_poller();
    assert!(matches!(poll_once(&mut poller), Poll::Ready(Err(_))));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let received = socket.poll_recv(&mut cx, &mut [], &mut []);
    assert!(matches!(received, Poll::Ready(Err(_))));
}
