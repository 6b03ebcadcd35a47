//! Connections on a paused clock.

use quinn::{ConnectionError, Runtime};
use tourbillon::time::{Instant, advance, sleep};
use tourbillon_quinn::TourbillonRuntime;
use tourbillon_support::{HOUR, alarm, net::pattern, paused::paused};

use crate::{Configs, connect, echoed, endpoint, serve_echo};

#[test]
fn quinn_reads_the_clock_of_the_runtime() {
    let _alarm = alarm();
    let runtime = paused(1);
    runtime.block_on(async {
        let now = || TourbillonRuntime::new().now();
        let before = now();
        assert_eq!(before, Instant::now().into_std());
        advance(HOUR).await;
        assert_eq!(now(), before + HOUR);
    });
    // Another thread sees the system's clock.
    let now = TourbillonRuntime::new().now();
    assert!(now < runtime.block_on(async { Instant::now().into_std() }));
}

#[test]
fn an_idle_timeout_of_hours_takes_no_time() {
    let _alarm = alarm();
    let runtime = paused(2);
    let configs = Configs::new(2 * HOUR);
    runtime.block_on(async {
        let server = endpoint(Some(configs.server));
        let addr = server.local_addr().unwrap();
        let accepted = tourbillon::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            connection.closed().await
        });
        let (_client, connection) = connect(configs.client, addr).await;
        let start = Instant::now();
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
        assert!(start.elapsed() >= 2 * HOUR);
        assert_eq!(accepted.await.unwrap(), ConnectionError::TimedOut);
    });
}

#[test]
fn endpoints_of_one_runtime_exchange_data() {
    let _alarm = alarm();
    let runtime = paused(2);
    let configs = Configs::new(HOUR);
    runtime.block_on(async {
        let (_server, addr) = serve_echo(configs.server);
        let (_client, connection) = connect(configs.client, addr).await;
        for round in 0..5 {
            let data = pattern(200_000, round);
            assert!(echoed(&connection, data.clone()).await == data);
            // The connection outlives a pause that is shorter than its idle timeout.
            sleep(HOUR / 2).await;
        }
    });
}
