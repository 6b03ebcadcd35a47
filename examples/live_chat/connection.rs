//! The WebSocket of one member, and the member's timers.

use std::{future::pending, sync::Arc, time::Duration};

use async_tungstenite::{
    WebSocketReceiver, WebSocketSender, WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};
use futures_lite::{StreamExt, future::or};
use hyper::upgrade::{OnUpgrade, Upgraded};
use tourbillon::{
    CancelOnDrop, Timer,
    time::{Instant, sleep, timeout},
};
use tourbillon_hyper::FuturesIo;

use crate::lobby::{End, Lobby, Seat};

/// Maximum length of a message, in characters.
const MAX_TEXT: usize = 1_000;
/// Maximum length of a frame, in bytes. The server reads no further into a longer one.
const MAX_FRAME: usize = 64 * 1024;
/// Minimum average time between the frames of a client. A faster client has to wait.
const PACE: Duration = Duration::from_millis(50);
/// How far ahead of its average a client may be: it may send the frames of this time at once.
const BURST: Duration = Duration::from_secs(1);
/// How long the server waits for a client to take the close frame and answer it.
const GOODBYE: Duration = Duration::from_secs(2);
/// How late the timers may run, to share a wake-up with those of other members.
const TOLERANCE: Duration = Duration::from_millis(250);

type Sender = WebSocketSender<FuturesIo<Upgraded>>;
type Receiver = WebSocketReceiver<FuturesIo<Upgraded>>;

/// Serves a client from the end of its handshake on.
pub async fn serve(upgrade: OnUpgrade, lobby: Arc<Lobby>, name: String, http: String) {
    // An error: the client has gone before the answer reached it.
    let Ok(upgraded) = upgrade.await else {
        return;
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME));
    let stream = FuturesIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut sender, mut receiver) = socket.split();
    let end = match lobby.join(&name, &http) {
        Ok(seat) => converse(seat, &mut sender, &mut receiver).await,
        Err(end) => end,
    };
    // A client that has stopped reading does not take the close frame, so do not wait for ever.
    let goodbye = async {
        if let End(Some(code), reason) = end {
            let reason = reason.into();
            sender.close(Some(CloseFrame { code, reason })).await?;
        }
        // Each side answers the close frame of the other. Closing while received bytes are unread
        // would reset the connection and discard the frame.
        while receiver.try_next().await?.is_some() {}
        Ok::<_, Error>(())
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Passes messages between a client and the lobby until the member ends.
async fn converse(mut seat: Seat, sender: &mut Sender, receiver: &mut Receiver) -> End {
    let (id, lobby, rules) = (seat.id, &seat.lobby, seat.lobby.rules);
    // The timers run on workers as callbacks, whatever this task waits for.
    let (for_idle, for_beat) = (lobby.clone(), lobby.clone());
    let idle = Timer::after(rules.idle)
        .tolerance(TOLERANCE)
        .start(move || for_idle.end(id, End::IDLE))
        .cancel_on_drop();
    let _beat = Timer::every(rules.heartbeat)
        .tolerance(TOLERANCE)
        .start(move || for_beat.ping(id))
        .cancel_on_drop();
    // The page shows the first round trip at once.
    lobby.ping(id);

    let reading = read(receiver, lobby, id, &idle);
    let writing = async {
        while let Some(message) = seat.outbox.next().await {
            if sender.send(message).await.is_err() {
                return End::LOST;
            }
        }
        // The lobby has ended the member, and says why.
        pending().await
    };
    let ended = async { (&mut seat.end).await.unwrap_or(End::LOST) };
    let end = or(ended, or(reading, writing)).await;
    lobby.end(id, end);
    end
}

/// Reads what a client sends, and returns why the member ends.
async fn read(receiver: &mut Receiver, lobby: &Lobby, id: u64, idle: &CancelOnDrop) -> End {
    let mut paid_until = Instant::now();
    loop {
        let message = match receiver.next().await {
            Some(Ok(message)) => message,
            Some(Err(Error::Capacity(_))) => return End::TOO_LONG,
            Some(Err(_)) | None => return End::LOST,
        };
        // Only whole frames are signs of life: a client that sends single bytes is idle.
        idle.refresh();
        match message {
            Message::Text(text) => match text.trim() {
                "" => {}
                text if text.chars().count() > MAX_TEXT => return End::TOO_LONG,
                text => lobby.say(id, text),
            },
            Message::Binary(_) => return End::NOT_TEXT,
            Message::Pong(content) => lobby.pong(id, &content),
            Message::Close(_) => return End::LEFT,
            // The socket answers pings by itself.
            Message::Ping(_) | Message::Frame(_) => {}
        }
        // A client that sends too fast has to wait: its further frames stay in the system.
        let now = Instant::now();
        paid_until = paid_until.max(now) + PACE;
        sleep(paid_until.saturating_duration_since(now + BURST)).await;
    }
}
