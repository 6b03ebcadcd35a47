use tokio_postgres::{Client, Config, NoTls};
use tourbillon::net::TcpStream;
use tourbillon_matrix::{Addresses, Case, Program};

use crate::NO_REACTOR;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "tokio-postgres",
            "`connect`: two queries at once",
            own_socket,
        )
        .needs(Program::Postgres)
        .panics(NO_REACTOR)
        .because("it connects by tokio"),
        Case::new(
            "tokio-postgres",
            "`connect_raw` on our `TcpStream`: likewise",
            our_socket,
        )
        .needs(Program::Postgres)
        .because("with the feature `tokio-io`"),
    ]
}

fn config(addresses: Addresses) -> Config {
    let addr = addresses.of(Program::Postgres);
    let mut config = Config::new();
    config
        .host(addr.ip().to_string())
        .port(addr.port())
        .user("postgres");
    config
}

async fn own_socket(addresses: Addresses) {
    let (client, connection) = config(addresses).connect(NoTls).await.unwrap();
    tourbillon::spawn(connection);
    query(client).await;
}

async fn our_socket(addresses: Addresses) {
    let stream = TcpStream::connect(addresses.of(Program::Postgres))
        .await
        .unwrap();
    let (client, connection) = config(addresses).connect_raw(stream, NoTls).await.unwrap();
    tourbillon::spawn(connection);
    query(client).await;
}

async fn query(client: Client) {
    let double = async |number: i32| -> i32 {
        client
            .query_one("SELECT $1::INT * 2", &[&number])
            .await
            .unwrap()
            .get(0)
    };
    assert_eq!(futures::future::join(double(1), double(2)).await, (2, 4));
}
