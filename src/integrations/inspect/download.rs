//! The answer to `/trace.json`: what the flight recorder has, as a file for trace viewers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{api::handle::Handle, flight::Snapshot, task::spawn_blocking};

/// The most events of all rings in a file. An event takes some 100 bytes.
const MOST_EVENTS: usize = 500_000;

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
            snapshot.and_then(|snapshot| write(&snapshot))
        });
        written.await.ok().flatten().ok_or(NoFile::Gone)
    }
}

fn present(handle: &Handle) -> Snapshot {
    let shared = handle.shared();
    let rings = shared.copy_rings(0).tracks.len();
    Snapshot::new(&shared.copy_rings(MOST_EVENTS / rings.max(1)))
}

fn kept_at(handle: &Handle, at: u64) -> Option<Snapshot> {
    let copies = handle.shared().kept_copies();
    let copy = copies.iter().find(|copy| unix_ms(copy.wall) == at)?;
    Some(Snapshot::new(copy))
}

fn write(snapshot: &Snapshot) -> Option<File> {
    let mut text = Vec::new();
    // A vector takes all that is written, and JSON is UTF-8.
    snapshot.write_trace(&mut text).ok()?;
    let at = unix_ms(snapshot.taken_at());
    Some(File {
        name: format!("tourbillon-{}-{at}.json", std::process::id()),
        text: String::from_utf8(text).ok()?,
    })
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
