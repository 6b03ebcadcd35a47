//! A trace of a simulation for Perfetto: the JSON format of trace events.
//!
//! Each host is a process. It has a track for each thread, with a slice while the thread has the
//! baton, and one for its network, with a slice for each packet that it sends or gets. Arrows lead
//! from the sending of a packet to its arrival. What the seed decides and what the program asks for
//! are instants.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{BEGIN, State, story::Part};

/// The numbers of processes and threads. Perfetto takes 0 for the idle thread of the system, the
/// number of a process for its main thread, and equal numbers in two processes for one thread.
const HOSTS: usize = 1;
const THREADS: usize = 1_000;
const NETWORKS: usize = 100_000_000;

/// The trace that is written.
struct Trace {
    path: PathBuf,
    events: String,
    /// By the numbers of the host and the thread.
    threads: BTreeMap<(usize, usize), String>,
    hosts: BTreeMap<usize, String>,
    /// From when on the network of a host has no slice.
    free: BTreeMap<usize, u64>,
    /// The host and the number of the thread with the baton, and since when it has had it.
    runs: (usize, usize),
    begun: u64,
    /// The moment of the latest event.
    latest: u64,
}

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a trace, which is written to a file at the end of the process.
pub(super) fn begin(path: PathBuf) {
    *lock() = Some(Trace {
        path,
        events: String::new(),
        threads: BTreeMap::new(),
        hosts: BTreeMap::new(),
        free: BTreeMap::new(),
        runs: (0, 0),
        begun: BEGIN,
        latest: BEGIN,
    });
}

/// Writes the trace, if there is one. `failure` is why the seed has failed.
pub(super) fn write(failure: Option<&str>) {
    if let Some(trace) = lock().take() {
        let path = trace.path.clone();
        if let Err(error) = fs::write(&path, trace.text(failure)) {
            eprintln!("{}: {error}", path.display());
        }
    }
}

/// A text as a JSON string, in quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                character if character < ' ' => write!(f, "\\u{:04x}", character as u32)?,
                character => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

/// A moment or a length in ns, as µs with three digits: the unit of trace events.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

impl Trace {
    /// Adds an event. `rest` is the end of its object, after the common fields.
    fn event(
        &mut self,
        phase: char,
        (host, thread): (usize, usize),
        at: u64,
        name: &str,
        rest: &str,
    ) {
        let (host, at, name) = (HOSTS + host, Micros(at.saturating_sub(BEGIN)), Quoted(name));
        self.latest = self.latest.max(BEGIN + at.0);
        let comma = if self.events.is_empty() { "" } else { ",\n" };
        let _ = write!(
            self.events,
            "{comma}{{\"ph\":\"{phase}\",\"pid\":{host},\"tid\":{thread},\"ts\":{at},\
             \"name\":{name}{rest}}}"
        );
    }

    /// Names a process, or a thread of it.
    fn name(&mut self, host: usize, thread: Option<usize>, name: &str) {
        let what = ["process_name", "thread_name"][usize::from(thread.is_some())];
        let rest = format!(",\"args\":{{\"name\":{}}}", Quoted(name));
        self.event('M', (host, thread.unwrap_or(0)), BEGIN, what, &rest);
    }

    /// Adds a slice of the thread with the baton, until a moment.
    fn run_until(&mut self, until: u64) {
        let (host, thread) = self.runs;
        let length = Micros(until.saturating_sub(self.begun));
        let rest = format!(",\"dur\":{length}");
        self.event('X', (host, THREADS + thread), self.begun, "runs", &rest);
    }

    fn text(mut self, failure: Option<&str>) -> String {
        self.run_until(self.latest);
        if let Some(why) = failure {
            let (host, thread) = self.runs;
            let what = format!("fails: {why}");
            let place = (host, THREADS + thread);
            self.event(
                'i',
                place,
                self.latest,
                &what,
                ",\"s\":\"g\",\"cat\":\"failure\"",
            );
        }
        for ((host, thread), name) in std::mem::take(&mut self.threads) {
            self.name(host, Some(THREADS + thread), &name);
        }
        for (host, name) in std::mem::take(&mut self.hosts) {
            self.name(host, None, &name);
            self.name(host, Some(NETWORKS + host), "network");
        }
        let events = self.events;
        format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{events}\n]}}\n")
    }
}

impl State {
    /// Calls `f` with the trace, if one is written.
    fn on_trace(&self, f: impl FnOnce(&mut Trace)) {
        if self.draws {
            if let Some(trace) = &mut *lock() {
                f(trace);
            }
        }
    }

    /// Notes that a thread has had the baton until `until`, and that another one has it now.
    pub(super) fn draw_run(&self, thread: usize, until: u64, next: usize) {
        self.on_trace(|trace| {
            for number in [thread, next] {
                let it = &self.threads[number];
                trace.threads.insert((it.host, number), it.name.clone());
                let host = &self.hosts[it.host].name;
                trace.hosts.entry(it.host).or_insert_with(|| host.clone());
            }
            trace.run_until(until);
            trace.runs = (self.threads[next].host, next);
            (trace.begun, trace.latest) = (self.now, self.now);
        });
    }

    /// Notes something that happens to a thread, or to no thread.
    pub(super) fn draw_instant(&self, thread: Option<usize>, part: Part, what: &str) {
        self.on_trace(|trace| {
            let place = match thread {
                Some(thread) => (self.threads[thread].host, THREADS + thread),
                None => (0, NETWORKS),
            };
            // What concerns all is a line through all tracks.
            let scope = match (thread, part) {
                (None, Part::Asked | Part::Decided) => 'g',
                _ => 't',
            };
            let rest = format!(",\"s\":\"{scope}\",\"cat\":\"{part:?}\"");
            trace.event('i', place, self.now, what, &rest);
        });
    }

    /// Notes that a packet leaves a host, or arrives at one.
    pub(super) fn draw_packet(&self, flow: u64, host: usize, what: &str, arrives: bool) {
        self.on_trace(|trace| {
            let name = &self.hosts[host].name;
            trace.hosts.entry(host).or_insert_with(|| name.clone());
            let place = (host, NETWORKS + host);
            // An arrow is bound to the slice at its moment. So each has a length, and a moment of
            // its own: what comes at the same time is drawn a nanosecond later.
            let free = trace.free.entry(host).or_default();
            let at = self.now.max(*free);
            *free = at + 1;
            trace.event('X', place, at, what, ",\"dur\":0.001");
            let (phase, bound) = [('s', ""), ('f', ",\"bp\":\"e\"")][usize::from(arrives)];
            let rest = format!(",\"cat\":\"packet\",\"id\":{flow}{bound}");
            trace.event(phase, place, at, "packet", &rest);
        });
    }
}
