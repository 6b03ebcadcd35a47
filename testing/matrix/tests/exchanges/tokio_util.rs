use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{
    codec::{Framed, LinesCodec},
    sync::CancellationToken,
    task::TaskTracker,
};
use tourbillon_matrix::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "tokio-util",
            "`Framed` with `LinesCodec` on a `TcpStream`",
            |_| framed(),
        ),
        Case::new(
            "tokio-util",
            "`CancellationToken`, `TaskTracker::spawn`",
            |_| cancel(),
        ),
    ]
}

async fn framed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut sink, stream) = Framed::new(stream, LinesCodec::new()).split();
        let _ = stream.forward(&mut sink).await;
    });
    let stream = TcpStream::connect(addr).await.unwrap();
    let mut lines = Framed::new(stream, LinesCodec::new());
    for line in ["one", "two"] {
        lines.send(line).await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), line);
    }
}

async fn cancel() {
    let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
    for _ in 0..4 {
        tracker.spawn(token.clone().cancelled_owned());
    }
    token.cancel();
    tracker.close();
    tracker.wait().await;
}
