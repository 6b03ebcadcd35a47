use tokio_postgres::{Config, NoTls};
use tourbillon_matrix::{Addresses, Case, Program};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tokio-postgres", "`connect`: two queries at once", query)
            .needs(Program::Postgres),
    ]
}

async fn query(addresses: Addresses) {
    let addr = addresses.of(Program::Postgres);
    let mut config = Config::new();
    config
        .host(addr.ip().to_string())
        .port(addr.port())
        .user("postgres");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let double = async |number: i32| -> i32 {
        let row = client.query_one("SELECT $1::INT * 2", &[&number]).await;
        row.unwrap().get(0)
    };
    assert_eq!(tokio::join!(double(1), double(2)), (2, 4));
}
