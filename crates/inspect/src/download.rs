//! The answer to `/trace.json`: what the flight recorder has, as a file for trace viewers.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use tourbillon::{
    Handle,
    flight::{Snapshot, Track},
    task::spawn_blocking,
};
use tourbillon_flight::write_trace;

/// The most events of all rings that are copied for a file. An event takes some 100 bytes.
const MOST_EVENTS: usize = 500_000;
/// The most bytes of a file. The names of tasks have any length, so the bytes are counted as they
/// are written.
const MOST_BYTES: usize = 64 << 20;

/// Admits one file at a time: each takes much memory while it is written. While a file is sent,
/// `Outstanding` counts its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downloads(Arc<AtomicBool>);

/// The right to write a file, until it is dropped.
#[derive(Debug)]
struct Turn(Arc<AtomicBool>);

/// A file to download.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoFile {
    /// Another one is being written.
    Busy,
    /// The trace is not kept, or not any more.
    Gone,
}

impl Downloads {
    /// Writes a trace, on a thread for blocking jobs: of the present, or the one that was kept at
    /// this time, in ms since the Unix epoch.
    pub(crate) async fn trace(&self, handle: &Handle, kept: Option<u64>) -> Result<File, NoFile> {
        if self.0.swap(true, AcqRel) {
            return Err(NoFile::Busy);
        }
        // The job has it: the client may leave meanwhile.
        let turn = Turn(self.0.clone());
        let handle = handle.clone();
        let written = spawn_blocking(move || {
            let _turn = turn;
            let snapshot = match kept {
                Some(at) => kept_at(&handle, at),
                None => Some(present(&handle)),
            };
            snapshot.and_then(|snapshot| write(snapshot, MOST_BYTES))
        });
        written.await.ok().flatten().ok_or(NoFile::Gone)
    }
}

fn present(handle: &Handle) -> Snapshot {
    let recorder = handle.flight_recorder();
    let threads = recorder.event_counts().len();
    recorder.snapshot_last(MOST_EVENTS / threads.max(1))
}

fn kept_at(handle: &Handle, at: u64) -> Option<Snapshot> {
    let mut kept = handle.flight_recorder().kept().into_iter();
    kept.find(|snapshot| unix_ms(snapshot.taken_at) == at)
}

/// Writes a file of at most this many bytes: with the newest events of each ring, if not all fit.
/// Returns `None` if even a file without events is too large.
fn write(mut snapshot: Snapshot, most: usize) -> Option<File> {
    let text = loop {
        let mut text = Bounded {
            written: Vec::new(),
            most,
        };
        match write_trace(&snapshot, &mut text) {
            Ok(()) => break text.written,
            Err(_) if snapshot.num_events() == 0 => return None,
            // Few rounds come to none, and each writes no more than the bound.
            Err(_) => keep_newest_quarter(&mut snapshot),
        }
    };
    let at = unix_ms(snapshot.taken_at);
    Some(File {
        name: format!("tourbillon-{}-{at}.json", std::process::id()),
        // JSON is UTF-8.
        text: String::from_utf8(text).ok()?,
    })
}

/// Leaves the newest quarter of the events of each thread.
fn keep_newest_quarter(snapshot: &mut Snapshot) {
    for Track { events, .. } in &mut snapshot.tracks {
        events.drain(..events.len() - events.len() / 4);
    }
}

/// A vector that takes no more than some bytes.
struct Bounded {
    written: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most - self.written.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a time of day in ms since the Unix epoch.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use tourbillon::{flight::Recording, runtime::Builder, task};

    use super::*;

    #[test]
    fn a_file_is_bounded_although_a_name_is_long() {
        let mut builder = Builder::new();
        builder.worker_threads(1);
        let runtime = builder.flight_recorder(Recording::Full).build().unwrap();
        let name: &'static str = "long".repeat(5_000).leak();
        for _ in 0..200 {
            let named = task::Builder::new().name(name);
            let task = named.spawn_on(async {}, runtime.handle());
            runtime.block_on(task).unwrap();
        }
        let snapshot = present(runtime.handle());
        let whole = write(snapshot.clone(), usize::MAX).unwrap();
        assert!(whole.text.len() > 200 * name.len());
        for most in [1_000_000, 100_000] {
            let file = write(snapshot.clone(), most).unwrap();
            assert!(file.text.len() <= most, "{}", file.text.len());
            let trace: serde_json::Value = serde_json::from_str(&file.text).unwrap();
            assert_eq!(trace["tourbillon"]["workers"], 1);
            // Of the larger one, something is left.
            if most == 1_000_000 {
                assert!(file.text.contains(name));
            }
        }
        assert!(write(snapshot, 10).is_none());
    }
}
