use deadpool::{
    Runtime,
    managed::{self, Manager, Metrics, PoolError, RecycleResult, TimeoutType, Timeouts},
};
use tokio::net::TcpStream;
use tourbillon_matrix::Case;

use crate::common::{BRIEF, listen};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("deadpool", "a pool of two connections, four users", |_| {
            share()
        }),
        Case::new("deadpool", "a wait for a connection that times out", |_| {
            time_out()
        }),
    ]
}

struct Connections(std::net::SocketAddr);

impl Manager for Connections {
    type Type = TcpStream;
    type Error = std::io::Error;

    async fn create(&self) -> Result<TcpStream, Self::Error> {
        TcpStream::connect(self.0).await
    }

    async fn recycle(&self, _: &mut TcpStream, _: &Metrics) -> RecycleResult<Self::Error> {
        Ok(())
    }
}

type Pool = managed::Pool<Connections>;

async fn share() {
    let (_listener, addr) = listen().await;
    let pool = Pool::builder(Connections(addr))
        .max_size(2)
        .build()
        .unwrap();
    let users: tokio::task::JoinSet<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            async move {
                let stream = pool.get().await.unwrap();
                tokio::time::sleep(BRIEF).await;
                assert_eq!(stream.peer_addr().unwrap(), addr);
            }
        })
        .collect();
    users.join_all().await;
    assert_eq!(pool.status().size, 2);
}

async fn time_out() {
    let (_listener, addr) = listen().await;
    let timeouts = Timeouts {
        wait: Some(BRIEF),
        ..Timeouts::default()
    };
    let pool = Pool::builder(Connections(addr)).max_size(1);
    let pool = pool
        .timeouts(timeouts)
        .runtime(Runtime::Tokio1)
        .build()
        .unwrap();
    let _only = pool.get().await.unwrap();
    let second = pool.get().await;
    assert!(matches!(second, Err(PoolError::Timeout(TimeoutType::Wait))));
}
