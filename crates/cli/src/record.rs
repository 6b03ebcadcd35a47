//! The flight recorder of the runtimes that the program runs: options, and traces on SIGUSR2.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
    thread,
};

use clap::{Args, ValueEnum};
use tourbillon::{
    Runtime,
    flight::{FlightRecorder, Recording, Snapshot},
    runtime::Builder,
    signal::{SignalKind, signal},
};
use tourbillon_flight::write_trace;

use crate::{args::count, arguments::tame, complain};

/// Options of the flight recorder.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    /// How much the flight recorder records. On SIGUSR2 the program writes a trace into the working
    /// directory: see `tourbillon trace`.
    #[arg(long, value_enum, default_value_t = Record::Light)]
    record: Record,
    /// Number of events that the flight recorder keeps for each worker, such as 64k.
    #[arg(long, value_name = "COUNT", default_value = "64k", value_parser = count)]
    record_events: u32,
}

/// How much is recorded: see [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Record {
    /// Nothing.
    Off,
    /// What took 200 µs or more.
    Light,
    /// Each timer, job, sleep and wake-up.
    Full,
}

impl RecordArgs {
    /// Sets these options.
    pub fn configure(&self, builder: &mut Builder) {
        let recording = match self.record {
            Record::Off => Recording::Off,
            Record::Light => Recording::Light,
            Record::Full => Recording::Full,
        };
        builder
            .flight_recorder(recording)
            .flight_recorder_events(self.record_events as usize);
    }
}

/// A thread that writes a trace on each SIGUSR2, until the process ends.
pub struct Traces(Arc<OnceLock<FlightRecorder>>);

impl Traces {
    /// Starts the thread. From here on the signal does not end the process.
    ///
    /// The thread has a runtime of its own, so that it writes a trace also while all workers are
    /// stuck.
    pub fn listen() -> Result<Self, String> {
        let to_text = |error: io::Error| format!("cannot wait for SIGUSR2: {error}");
        let waits = Builder::new_current_thread()
            .flight_recorder(Recording::Off)
            .build()
            .map_err(|error| error.to_string())?;
        let usr2 = || signal(SignalKind::user_defined2());
        let mut usr2 = waits.block_on(async { usr2() }).map_err(to_text)?;
        let recorder = Arc::new(OnceLock::<FlightRecorder>::new());
        let traces = Self(recorder.clone());
        let main = move || {
            for number in 1.. {
                if waits.block_on(usr2.recv()).is_err() {
                    return;
                }
                if let Some(recorder) = recorder.get() {
                    write_numbered(recorder, number);
                }
            }
        };
        let thread = thread::Builder::new().name("traces".to_owned());
        thread.spawn(main).map_err(to_text)?;
        Ok(traces)
    }

    /// Sets the runtime of the traces. Until then a signal has no effect.
    pub fn show(&self, runtime: &Runtime) {
        // A program has one runtime to show.
        let _ = self.0.set(runtime.flight_recorder());
    }
}

/// Writes the trace with this number, and says where it is.
fn write_numbered(recorder: &FlightRecorder, number: u32) {
    let path = PathBuf::from(format!("tourbillon-{}-{number}.trace.json", process::id()));
    match save(&recorder.snapshot(), &path) {
        Ok(()) => complain(format_args!("trace: {}", path.display())),
        Err(error) => complain(format_args!("tourbillon: {error}")),
    }
}

/// Writes a trace to a file.
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), String> {
    let file = File::create(path);
    file.and_then(|file| write_trace(snapshot, file))
        .map_err(|error| cannot_write(path, &error))
}

/// Returns the complaint about a file that could not be written.
pub fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", tame(path))
}
