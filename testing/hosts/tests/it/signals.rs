//! A server for tokio that a signal ends.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    signal::{
        ctrl_c,
        unix::{SignalKind, signal},
    },
    task::JoinSet,
    time::sleep,
};
use tourbillon_sim::{Simulation, is_running, restart, send_signal};

/// Answers after a second. The first signal ends it, when all requests have their answers.
async fn serve() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut stream, _) = accepted?;
                requests.spawn(async move {
                    let number = stream.read_u8().await?;
                    sleep(Duration::from_secs(1)).await;
                    stream.write_u8(number).await
                });
            }
            _ = terminate.recv() => break,
            _ = ctrl_c() => break,
        }
    }
    drop(listener);
    while requests.join_next().await.is_some() {}
    Ok(())
}

async fn ask(number: u8) -> std::io::Result<TcpStream> {
    loop {
        match TcpStream::connect(("server", 80)).await {
            Ok(mut stream) => {
                stream.write_u8(number).await?;
                return Ok(stream);
            }
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

#[tourbillon_sim::test(seeds = 100)]
fn a_server_ends_gracefully_and_starts_again(sim: &mut Simulation) {
    sim.host("server", serve);
    sim.client("client", || async {
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            for life in 0..2 {
                let mut streams = [ask(1).await?, ask(2).await?];
                sleep(Duration::from_millis(500)).await;
                send_signal("server", kind.as_raw_value());
                for (number, stream) in (1..).zip(&mut streams) {
                    assert_eq!(stream.read_u8().await?, number, "in life {life}");
                }
                while is_running("server") {
                    sleep(Duration::from_millis(5)).await;
                }
                restart("server");
            }
        }
        std::io::Result::Ok(())
    });
}
