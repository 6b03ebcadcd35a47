//! tonic, with its own server and client.

use std::{io, time::Duration};

use tokio::{net::TcpListener, time::sleep};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    service::Routes,
    transport::{Endpoint, Server},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient},
    server::health_reporter,
};
use tourbillon_sim::{Simulation, crash, restart};

#[tourbillon_sim::test(seeds = 20)]
fn tonic_connects_again_after_a_crash(sim: &mut Simulation) {
    sim.host("server", || async {
        let (reporter, service) = health_reporter();
        reporter
            .set_service_status("", ServingStatus::Serving)
            .await;
        let listener = TcpListener::bind("0.0.0.0:50051").await?;
        let server = Server::builder().add_routes(Routes::new(service));
        server
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
            .map_err(io::Error::other)
    });
    sim.client("client", || async {
        let endpoint = Endpoint::from_static("http://server:50051").timeout(Duration::from_secs(5));
        let mut client = HealthClient::new(endpoint.connect_lazy());
        for _ in 0..2 {
            let answer = loop {
                let service = String::new();
                match client.check(HealthCheckRequest { service }).await {
                    Ok(answer) => break answer.into_inner(),
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            };
            assert_eq!(answer.status, ServingStatus::Serving as i32);
            crash("server");
            restart("server");
        }
    });
}
