//! mini-redis, with its own client and the client `redis`.

use std::{io, time::Duration};

use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tourbillon_sim::{Network, Simulation, assert_sometimes, crash, restart};

const PORT: u16 = 6_379;

fn server(sim: &mut Simulation) {
    let mut network = Network::new();
    network.loss(0.02);
    sim.network(network);
    sim.host("server", || async {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let ended = mini_redis::server::run(listener, std::future::pending::<()>()).await;
        ended.map_err(|error| io::Error::other(error.to_string()))
    });
}

#[tourbillon_sim::test(seeds = 20)]
fn mini_redis_serves_its_client(sim: &mut Simulation) {
    server(sim);
    for name in ["a", "b"] {
        sim.client(name, move || async move {
            let mut client = loop {
                match mini_redis::client::connect(("server", PORT)).await {
                    Ok(client) => break client,
                    Err(_) => sleep(Duration::from_millis(1)).await,
                }
            };
            for number in 0..5_u8 {
                client
                    .set(name, vec![number].into())
                    .await
                    .map_err(|it| it.to_string())?;
                let got = client.get(name).await.map_err(|it| it.to_string())?;
                assert_eq!(got.as_deref(), Some(&[number][..]));
            }
            let value = vec![9].into();
            client
                .set_expires(name, value, Duration::from_secs(60))
                .await
                .unwrap();
            sleep(Duration::from_secs(59)).await;
            assert!(client.get(name).await.unwrap().is_some());
            sleep(Duration::from_secs(2)).await;
            assert!(client.get(name).await.unwrap().is_none());
            Ok::<_, String>(())
        });
    }
}

#[tourbillon_sim::test(seeds = 20)]
fn the_client_redis_survives_a_crash(sim: &mut Simulation) {
    server(sim);
    sim.client("client", || async {
        let client = redis::Client::open(("server", PORT)).unwrap();
        let mut lost = 0;
        for round in 0..3 {
            let connection = timeout(
                Duration::from_secs(10),
                client.get_multiplexed_async_connection(),
            );
            let Ok(Ok(mut connection)) = connection.await else {
                continue;
            };
            for number in 0..10 {
                let mut set = redis::cmd("SET");
                let set = set.arg("key").arg(number).exec_async(&mut connection);
                if let Ok(Err(_)) | Err(_) = timeout(Duration::from_secs(5), set).await {
                    lost += 1;
                    break;
                }
                if round == 1 && number == 5 {
                    crash("server");
                    restart("server");
                }
            }
        }
        assert_sometimes!(lost == 1, "a connection is lost");
    });
}
