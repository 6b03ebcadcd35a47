use std::{net::SocketAddr, time::Duration};

use redis::{AsyncCommands, AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use tourbillon_matrix::{Addresses, Case, Program};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "redis",
            "`MultiplexedConnection`: four tasks, and a pipeline",
            exchange,
        )
        .needs(Program::Redis),
    ]
}

async fn exchange(addresses: Addresses) {
    let connection = connect(addresses.of(Program::Redis)).await;
    let tasks: tokio::task::JoinSet<()> = (0..4_u32)
        .map(|number| {
            let mut connection = connection.clone();
            async move {
                let key = format!("key {number}");
                let () = connection.set(&key, number).await.unwrap();
                assert_eq!(connection.get::<_, u32>(&key).await.unwrap(), number);
            }
        })
        .collect();
    tasks.join_all().await;
    let mut pipeline = redis::pipe();
    pipeline.set("sum", 1).ignore().incr("sum", 2);
    let mut connection = connection;
    let (sum,): (u32,) = pipeline.query_async(&mut connection).await.unwrap();
    assert_eq!(sum, 3);
}

/// Connects by tokio.
pub async fn connect(addr: SocketAddr) -> MultiplexedConnection {
    let client = Client::open(format!("redis://{addr}/")).unwrap();
    // The usual timeouts are shorter than what a slow machine may take.
    let limit = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(limit)
        .set_response_timeout(limit);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap()
}
