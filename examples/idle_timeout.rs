//! A TCP echo server that closes connections idle for longer than they may be.
//!
//! Each connection has one timer, refreshed by each message: for a pending timer that is one atomic
//! operation, whichever worker the connection's task has come to.
//!
//! ```text
//! cargo run --release --example idle_timeout -- 127.0.0.1:7777 10
//! nc 127.0.0.1 7777
//! ```

use std::{io, net::Shutdown, sync::Arc, time::Duration};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Runtime,
    net::{TcpListener, TcpStream},
};

async fn echo(stream: TcpStream, idle: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = Arc::new(stream);
    let (mut reader, mut writer) = (&*stream, &*stream);

    let timed = Arc::downgrade(&stream);
    let timer = tourbillon::after(idle, move || {
        if let Some(stream) = timed.upgrade() {
            // The task finds the end of the stream.
            let _ = stream.shutdown(Shutdown::Both);
        }
    })
    .cancel_on_drop();

    let mut buf = [0; 4096];
    loop {
        let n = reader.read(&mut buf).await?;
        if n == 0 {
            return Ok(());
        }
        timer.refresh();
        writer.write_all(&buf[..n]).await?;
    }
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let idle = args
        .next()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(10);
    let idle = Duration::from_secs(idle);

    let runtime = Runtime::new()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(&*addr).await?;
        println!("listening on {}", listener.local_addr()?);
        tourbillon::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tourbillon::spawn(echo(stream, idle))),
                    // No descriptors left, most likely: the connection waits for one.
                    Err(error) => {
                        eprintln!("accept: {error}");
                        tourbillon::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        tourbillon::signal::ctrl_c().await
    })
}
