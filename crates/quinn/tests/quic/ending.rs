//! How connections end: by their idle timeout, by a close, and with their runtime.

use std::time::Duration;

use quinn::ConnectionError;
use tourbillon::time::{Instant, timeout};
use tourbillon_support::{HOUR, PATIENCE, alarm, fds, process::alone, runtime};

use crate::{Configs, connect, echoed, endpoint, serve_echo};

const IDLE: Duration = Duration::from_millis(200);

#[test]
fn an_idle_connection_times_out_at_both_ends() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(IDLE);
    runtime.block_on(async {
        let server = endpoint(Some(configs.server));
        let addr = server.local_addr().unwrap();
        let accepted = tourbillon::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            connection.closed().await
        });
        let start = Instant::now();
        let (_client, connection) = connect(configs.client, addr).await;
        let ended = timeout(PATIENCE, connection.closed()).await.unwrap();
        assert_eq!(ended, ConnectionError::TimedOut);
        assert!(start.elapsed() >= IDLE);
        let ended = timeout(PATIENCE, accepted).await.unwrap().unwrap();
        assert_eq!(ended, ConnectionError::TimedOut);
    });
}

#[test]
fn a_close_reaches_the_peer() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(PATIENCE);
    runtime.block_on(async {
        let (server, addr) = serve_echo(configs.server);
        let (client, connection) = connect(configs.client, addr).await;
        assert_eq!(echoed(&connection, b"hello".to_vec()).await, b"hello");
        server.close(7_u32.into(), b"closing time");
        let ended = timeout(PATIENCE, connection.closed()).await.unwrap();
        let ConnectionError::ApplicationClosed(close) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(
            (close.error_code, &close.reason[..]),
            (7_u32.into(), &b"closing time"[..])
        );
        for endpoint in [client, server] {
            timeout(PATIENCE, endpoint.wait_idle()).await.unwrap();
        }
    });
}

#[test]
fn a_shutdown_drops_connections_and_sockets() {
    alone(|| {
        let _alarm = alarm();
        let before = fds();
        let (serving, asking) = (runtime(2), runtime(2));
        let configs = Configs::new(IDLE);
        let (server, addr) = {
            let _context = serving.enter();
            serve_echo(configs.server)
        };
        let (client, connection) = asking.block_on(connect(configs.client, addr));
        let back = asking.block_on(echoed(&connection, b"hello".to_vec()));
        assert_eq!(back, b"hello");

        // The server's runtime ends at once. Its peer is not told, and times out.
        assert!(serving.shutdown_timeout(PATIENCE));
        let ended = asking
            .block_on(timeout(PATIENCE, connection.closed()))
            .unwrap();
        assert_eq!(ended, ConnectionError::TimedOut);
        // The server's endpoint still exists, and reports that it has ended.
        let accepted = asking.block_on(async { timeout(PATIENCE, server.accept()).await.unwrap() });
        assert!(accepted.is_none());

        assert!(asking.shutdown_timeout(PATIENCE));
        drop((server, client, connection));
        assert_eq!(fds(), before, "all descriptors are closed");
    });
}

#[test]
fn a_runtime_ends_while_data_flows() {
    let _alarm = alarm();
    for _ in 0..5 {
        let runtime = runtime(2);
        let configs = Configs::new(HOUR);
        let flowing = runtime.block_on(async {
            let (_server, addr) = serve_echo(configs.server);
            let (_client, connection) = connect(configs.client, addr).await;
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            let (first, flows) = futures::channel::oneshot::channel();
            tourbillon::spawn(async move { while send.write_all(&[1; 10_000]).await.is_ok() {} });
            tourbillon::spawn(async move {
                let mut buf = [0; 10_000];
                receive.read(&mut buf).await.unwrap();
                first.send(connection).unwrap();
                while let Ok(Some(_)) = receive.read(&mut buf).await {}
            });
            timeout(PATIENCE, flows).await.unwrap().unwrap()
        });
        assert!(runtime.shutdown_timeout(PATIENCE));
        drop(flowing);
    }
}
