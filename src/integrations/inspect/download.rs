//! The answer to `/trace.json`: what the flight recorder has, as a file for trace viewers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release},
    },
    time::UNIX_EPOCH,
};

use crate::{api::handle::Handle, flight::Snapshot, task::spawn_blocking};

/// The most events of all rings in a file. An event takes some 100 bytes.
const MOST_EVENTS: usize = 500_000;

/// Admits one file at a time: each takes much memory while it is written and sent.
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

impl Downloads {
    /// Writes the trace of a runtime, on a thread for blocking jobs. Returns `None` if another one
    /// is being written, or if this one cannot be.
    pub(crate) async fn trace(&self, handle: &Handle) -> Option<File> {
        if self.0.swap(true, AcqRel) {
            return None;
        }
        // The job has it: the client may leave meanwhile.
        let turn = Turn(self.0.clone());
        let handle = handle.clone();
        let written = spawn_blocking(move || {
            let _turn = turn;
            write(&handle)
        });
        written.await.ok().flatten()
    }
}

fn write(handle: &Handle) -> Option<File> {
    let shared = handle.shared();
    let rings = shared.copy_rings(0).tracks.len();
    let snapshot = Snapshot::new(&shared.copy_rings(MOST_EVENTS / rings.max(1)));
    let mut text = Vec::new();
    // A vector takes all that is written, and JSON is UTF-8.
    snapshot.write_trace(&mut text).ok()?;
    let taken_at = snapshot.taken_at().duration_since(UNIX_EPOCH);
    let seconds = taken_at.unwrap_or_default().as_secs();
    Some(File {
        name: format!("tourbillon-{}-{seconds}.json", std::process::id()),
        text: String::from_utf8(text).ok()?,
    })
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}
