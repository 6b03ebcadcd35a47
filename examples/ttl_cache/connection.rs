//! One connection: a line for each request, and a line for each answer.

use std::{
    fmt::Write,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_lite::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, io::BufReader};
use tourbillon::{net::TcpStream, time::timeout};

use crate::cache::{Cache, Full};

/// Maximum length of a request in bytes, with its line feed.
const MAX_LINE: u64 = 64 * 1024;
/// How long a client may take to send a request and to take the answer before.
const PATIENCE: Duration = Duration::from_secs(300);

/// Serves a connection until its client ends it, is silent for too long, or sends no line.
pub async fn serve(stream: TcpStream, cache: Arc<Cache>, idle: Duration) {
    // Each answer is one write, so waiting for more data gains nothing.
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(&stream);
    // The socket spends the budget of the task: a client that sends many requests at once leaves
    // turns to others.
    let mut is_open = true;
    while is_open {
        let answered = timeout(PATIENCE, answer_one(&mut reader, &stream, &cache, idle)).await;
        is_open = matches!(answered, Ok(Ok(true)));
    }
}

/// Answers one request. Returns whether there may be more.
async fn answer_one(
    reader: &mut BufReader<&TcpStream>,
    mut writer: &TcpStream,
    cache: &Cache,
    idle: Duration,
) -> io::Result<bool> {
    let mut line = String::new();
    // Text that is not UTF-8 is an error.
    reader.take(MAX_LINE).read_line(&mut line).await?;
    let Some(request) = line.strip_suffix('\n') else {
        if !line.is_empty() {
            writer.write_all(b"error: no line\n").await?;
        }
        return Ok(false);
    };
    let mut answer = answer(request, cache, idle);
    answer.push('\n');
    writer.write_all(answer.as_bytes()).await?;
    Ok(true)
}

/// Runs a request. `idle` is the time of keys that are set without one.
fn answer(request: &str, cache: &Cache, idle: Duration) -> String {
    // The last part is the rest of the line, so a value may have blanks.
    let words: Vec<_> = request.trim_end().splitn(3, ' ').collect();
    let done = |done: bool| if done { "ok" } else { "none" }.to_owned();
    match words[..] {
        ["set", key, value] => match cache.set(key, value, idle) {
            Ok(()) => done(true),
            Err(Full) => "error: full".to_owned(),
        },
        ["get", key] => match cache.get(key) {
            Some(value) => format!("value {value}"),
            None => done(false),
        },
        ["left", key] => match cache.left(key) {
            Some(None) => "for ever".to_owned(),
            Some(Some(left)) => format!("{} ms", left.as_millis()),
            None => done(false),
        },
        ["expire", key, ms] => match ms.parse() {
            Ok(ms) => done(cache.expire(key, Duration::from_millis(ms))),
            Err(error) => format!("error: milliseconds: {error}"),
        },
        ["keep", key] => done(cache.keep(key)),
        ["remove", key] => done(cache.remove(key)),
        ["count"] => summary(cache),
        _ => "error: no such request".to_owned(),
    }
}

/// Returns the cache's counts as one line.
pub fn summary(cache: &Cache) -> String {
    let counts = &cache.counts;
    let all = [
        (&counts.keys, "keys"),
        (&counts.bytes, "bytes"),
        (&counts.expired, "expired"),
    ];
    let mut line = String::new();
    for (count, what) in all {
        let comma = if line.is_empty() { "" } else { ", " };
        let _ = write!(line, "{comma}{} {what}", count.load(Relaxed));
    }
    line
}
