use futures::{SinkExt, StreamExt};
use tokio_util::{
    codec::{Framed, LinesCodec},
    sync::CancellationToken,
    task::TaskTracker,
    time::DelayQueue,
};
use tourbillon::net::TcpStream;
use tourbillon_matrix::Case;

use crate::{
    NO_REACTOR,
    common::{BRIEF, listen},
};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "tokio-util",
            "`Framed` with `LinesCodec` on our `TcpStream`",
            |_| framed(),
        )
        .because("with the feature `tokio-io`"),
        Case::new(
            "tokio-util",
            "`CancellationToken`, `TaskTracker::track_future`",
            |_| cancel(),
        ),
        Case::new("tokio-util", "`DelayQueue`", |_| delays())
            .panics(NO_REACTOR)
            .because("or `tourbillon::time::DelayQueue`"),
    ]
}

async fn framed() {
    let (listener, addr) = listen().await;
    tourbillon::spawn(async move {
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
        tourbillon::spawn(tracker.track_future(token.clone().cancelled_owned()));
    }
    token.cancel();
    tracker.close();
    tracker.wait().await;
}

async fn delays() {
    let mut queue = DelayQueue::new();
    queue.insert("second", 2 * BRIEF);
    queue.insert("first", BRIEF);
    assert_eq!(queue.next().await.unwrap().into_inner(), "first");
    assert_eq!(queue.next().await.unwrap().into_inner(), "second");
}
