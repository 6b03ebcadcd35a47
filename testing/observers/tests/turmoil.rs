//! turmoil, unmodified, runs hosts on this runtime: the same seed gives the same course, and a panic
//! of a task fails the simulation.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    select,
    time::{sleep, timeout},
};
use turmoil::{
    Builder, elapsed, hold,
    net::{TcpListener, TcpStream},
    release,
};

const PORT: u16 = 1738;

/// Returns what a client notes of a server that it cannot reach for a while, with its times.
fn course(seed: u64) -> Vec<String> {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut builder = Builder::new();
    builder
        .rng_seed(seed)
        .max_message_latency(Duration::from_millis(50));
    let mut sim = builder.build();
    sim.host("server", || async {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            tokio::task::spawn_local(async move {
                while let Ok(byte) = stream.read_u8().await {
                    stream.write_u8(byte + 1).await.unwrap();
                }
            });
        }
    });
    let note = notes.clone();
    sim.client("client", async move {
        let note = |text: String| note.lock().unwrap().push(format!("{:?} {text}", elapsed()));
        let mut stream = TcpStream::connect(("server", PORT)).await?;
        for byte in 0..10 {
            if byte == 5 {
                hold("client", "server");
            }
            stream.write_u8(byte).await?;
            let limit = Duration::from_millis(200);
            match timeout(limit, stream.read_u8()).await {
                Ok(answer) => note(format!("{} for {byte}", answer?)),
                Err(_) => {
                    note(format!("nothing for {byte}"));
                    release("client", "server");
                    note(format!("{} for {byte}", stream.read_u8().await?));
                }
            }
            let first = select! {
                _ = async {} => 1,
                _ = async {} => 2,
                _ = async {} => 3,
            };
            note(format!("branch {first}"));
            sleep(Duration::from_millis(3)).await;
        }
        Ok(())
    });
    sim.run().unwrap();
    let notes = notes.lock().unwrap();
    notes.clone()
}

#[test]
fn a_seed_decides_the_course() {
    let first = course(1);
    assert_eq!(first.len(), 10 + 10 + 1, "{first:?}");
    assert!(
        first.iter().any(|note| note.contains("nothing for 5")),
        "{first:?}"
    );
    assert!(
        first.iter().any(|note| note.ends_with("10 for 9")),
        "{first:?}"
    );
    assert_eq!(first, course(1));
    assert_ne!(first, course(2));
}

#[test]
fn a_panic_of_a_task_fails_the_simulation() {
    let mut sim = Builder::new().build();
    sim.client("client", async {
        tokio::spawn(async { panic!("on purpose") });
        sleep(Duration::from_secs(1)).await;
        Ok(())
    });
    let ended = catch_unwind(AssertUnwindSafe(|| sim.run()));
    assert!(!matches!(ended, Ok(Ok(()))));
}
