//! A snapshot as a file for trace viewers: the JSON format of trace events.
//!
//! Process 1 is the runtime, with a thread for each worker and helper. Process 2 has the cores, if
//! workers are pinned. Process 3 has the late timers: an asynchronous slice for each, from its
//! deadline until it ran, divided by causes. Arrows lead from the arming of a timer to its run.

use std::{
    collections::HashMap,
    fmt::{self, Display},
    io::{self, BufWriter, Write},
    time::{Duration, UNIX_EPOCH},
};

use tourbillon::{
    flight::{Event, LIGHT_THRESHOLD, Lost, Snapshot, Thread, Track, WakeReason},
    metrics::JobName,
};

use crate::{
    LateTimer, causes, jobs,
    json::{Micros, Quoted},
    late_timers, nanos,
    stalls::{Stacks, own_line, stalls},
};

const RUNTIME: u64 = 1;
const CORES: u64 = 2;
const LATE: u64 = 3;

/// How many late timers a trace has at most: the latest ones.
const MOST_LATE: usize = 10_000;

/// The numbers of threads. Perfetto takes 0 for the idle thread of the system, the number of a
/// process for its main thread, and equal numbers in two processes for one thread.
const WORKERS: u64 = 10_000;
const OUTSIDE: u64 = 20_000;
const ALL_CORES: u64 = 30_000;
const ALL_LATE: u64 = 40_000;

/// Returns the number of the thread of a worker or helper, or of all others.
fn thread_of(thread: Thread) -> u64 {
    thread.number().map_or(OUTSIDE, thread_of_worker)
}

fn thread_of_worker(number: usize) -> u64 {
    WORKERS + number as u64
}

fn thread_of_core(core: usize) -> u64 {
    ALL_CORES + core as u64
}

/// Writes trace events, one a line.
struct Events<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> Events<W> {
    /// Writes an event. `rest` is the end of its object, after the common fields.
    fn event(
        &mut self,
        phase: char,
        (process, thread): (u64, u64),
        at: u64,
        name: impl Display,
        rest: impl Display,
    ) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_first) {
            ""
        } else {
            ",\n"
        };
        let (name, at) = (Quoted(name), Micros(at));
        write!(
            self.out,
            "{comma}{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread},\"ts\":{at},\
             \"name\":{name}{rest}}}"
        )
    }

    fn slice(
        &mut self,
        place: (u64, u64),
        (from, to): (u64, u64),
        name: impl Display,
        args: impl Display,
    ) -> io::Result<()> {
        let length = Micros(to.saturating_sub(from));
        let rest = format_args!(",\"dur\":{length},\"args\":{{{args}}}").to_string();
        self.event('X', place, from, name, rest)
    }

    fn instant(
        &mut self,
        place: (u64, u64),
        at: u64,
        name: impl Display,
        args: impl Display,
    ) -> io::Result<()> {
        let rest = format_args!(",\"s\":\"t\",\"args\":{{{args}}}").to_string();
        self.event('i', place, at, name, rest)
    }

    /// Writes the sums of a cause or a job, the `i`-th of its list.
    fn total(
        &mut self,
        i: usize,
        of: &str,
        name: impl Display,
        (timers, worst, sum): (usize, Duration, Duration),
    ) -> io::Result<()> {
        let comma = if i == 0 { "" } else { "," };
        let (name, worst, sum) = (Quoted(name), Micros(nanos(worst)), Micros(nanos(sum)));
        write!(
            self.out,
            "{comma}{{\"{of}\":{name},\"timers\":{timers},\"worst_us\":{worst},\"sum_us\":{sum}}}"
        )
    }

    /// Names a process, or with `thread` a thread of it.
    fn name(&mut self, process: u64, thread: Option<u64>, name: impl Display) -> io::Result<()> {
        let what = match thread {
            Some(_) => "thread_name",
            None => "process_name",
        };
        let rest = format_args!(",\"args\":{{\"name\":{}}}", Quoted(name)).to_string();
        self.event('M', (process, thread.unwrap_or(0)), 0, what, rest)
    }
}

/// Writes a snapshot in the JSON format of trace events, which Perfetto and Chrome's
/// `about:tracing` open. It includes the [late timers](late_timers) that were 200 µs late or later.
///
/// There is a track for each worker and helper, one for all other threads, and one for each core if
/// workers are pinned. An arrow leads from the arming of a timer to its run, if both were recorded.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_trace(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut events = Events {
        out: BufWriter::new(out),
        is_first: true,
    };
    writeln!(events.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    // 1. The names of all tracks.
    let runtime = snapshot.name.as_deref().unwrap_or("tourbillon");
    events.name(RUNTIME, None, runtime)?;
    events.name(LATE, None, "late timers")?;
    for track in &snapshot.tracks {
        let thread = Some(thread_of(track.thread));
        match track.thread {
            Thread::Worker(number) => {
                events.name(RUNTIME, thread, format_args!("worker {number}"))?
            }
            Thread::Helper(number) => {
                events.name(RUNTIME, thread, format_args!("helper {number}"))?
            }
            Thread::Other => events.name(RUNTIME, thread, "other threads")?,
        }
    }
    if let Some(cores) = &snapshot.cores {
        events.name(CORES, None, "cores")?;
        for core in cores {
            events.name(
                CORES,
                Some(thread_of_core(*core)),
                format_args!("core {core}"),
            )?;
        }
    }
    // 2. What each thread did.
    let armed = armed(snapshot);
    for track in &snapshot.tracks {
        let core = match (track.thread, &snapshot.cores) {
            (Thread::Worker(number), Some(cores)) => cores.get(number).copied(),
            _ => None,
        };
        write_track(&mut events, track, core, &armed, snapshot.at)?;
    }
    let stacks = Stacks::new(snapshot);
    for stall in stalls(snapshot) {
        let mut args = format!(
            "\"culprit\":{},\"elapsed_us\":{},\"is_running\":{}",
            Quoted(Name(stall.job)),
            Micros(stall.elapsed),
            stall.is_running
        );
        // A viewer shows each as an argument of its own. Equal ones behind each other are one.
        let mut places = stacks.of(stall.number).to_vec();
        places.dedup();
        for (i, place) in places.into_iter().enumerate() {
            args += &format!(",\"stack {}\":{}", i + 1, Quoted(&stacks.rows[place].stack));
        }
        let place = (RUNTIME, thread_of_worker(stall.worker));
        events.instant(place, stall.at, "STALL", args)?;
    }
    // 3. The late timers, and why.
    let late = late_timers(snapshot, LIGHT_THRESHOLD);
    for (number, timer) in late.iter().take(MOST_LATE).enumerate() {
        write_late(&mut events, number, timer, &stacks)?;
    }
    // 4. What `tourbillon trace` reads.
    let wall = snapshot
        .taken_at
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let recording = Quoted(snapshot.recording);
    let threads = snapshot.tracks.iter().map(|track| track.thread);
    let workers = threads.filter(|it| matches!(it, Thread::Worker(_)));
    write!(
        events.out,
        "\n],\n\"tourbillon\":{{\"version\":1,\"recording\":{recording},\"taken_at\":{},\
         \"workers\":{},\"events\":{},\"late\":[",
        wall.as_secs(),
        workers.count(),
        snapshot.num_events(),
    )?;
    for (i, timer) in late.iter().take(MOST_LATE).enumerate() {
        let comma = if i == 0 { "\n" } else { ",\n" };
        let late = Micros(nanos(timer.late));
        let text = Quoted(timer);
        write!(events.out, "{comma}{{\"late_us\":{late},\"text\":{text}")?;
        // The number of a row of `stacks`, counted from 1.
        let found = stacks.places(timer).into_iter().flatten().next();
        if let Some(place) = found {
            write!(events.out, ",\"stack\":{}", place + 1)?;
        }
        write!(events.out, ",\"spans\":[")?;
        for (i, span) in timer.spans.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let (cause, length) = (Quoted(span.cause.name()), Micros(nanos(span.length)));
            write!(
                events.out,
                "{comma}{{\"cause\":{cause},\"us\":{length},\"text\":{}}}",
                Quoted(span)
            )?;
        }
        write!(events.out, "]}}")?;
    }
    write!(events.out, "],\n\"causes\":[")?;
    for (i, it) in causes(&late).iter().enumerate() {
        events.total(i, "cause", it.cause, (it.timers, it.worst, it.sum))?;
    }
    write!(events.out, "],\n\"jobs\":[")?;
    for (i, it) in jobs(&late).iter().enumerate() {
        events.total(i, "job", it.job, (it.timers, it.worst, it.sum))?;
    }
    write!(events.out, "],\n\"stacks\":[")?;
    for (i, it) in stacks.rows.iter().enumerate() {
        let comma = if i == 0 { "\n" } else { ",\n" };
        let (job, stack) = (Quoted(Name(it.job)), Quoted(&it.stack));
        let (times, worst) = (it.times, Micros(nanos(it.worst)));
        write!(
            events.out,
            "{comma}{{\"job\":{job},\"times\":{times},\"worst_us\":{worst},\"stack\":{stack}}}"
        )?;
    }
    writeln!(events.out, "]}}}}")?;
    events.out.flush()
}

/// The time without a core, as arguments of a slice.
struct WithoutCore(Lost);

impl Display for WithoutCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"preempted_us\":{},\"stolen_us\":{},\"throttled_us\":{}",
            Micros(self.0.preempted),
            Micros(self.0.stolen),
            Micros(self.0.throttled)
        )
    }
}

/// Returns a number for the arrow of each armed timer, by its deadline. Timers that share a
/// deadline have no arrows, since the events do not tell which of them ran.
fn armed(snapshot: &Snapshot) -> HashMap<u64, usize> {
    let all = snapshot.tracks.iter().flat_map(|track| &track.events);
    let armed = all.filter_map(|(_, event)| match event {
        Event::Armed { deadline } => Some(*deadline),
        _ => None,
    });
    let mut numbers = HashMap::new();
    for (i, deadline) in armed.enumerate() {
        let number = numbers.entry(deadline).or_insert(Some(i));
        if *number != Some(i) {
            *number = None;
        }
    }
    let unique = |(deadline, number): (u64, Option<usize>)| Some((deadline, number?));
    numbers.into_iter().filter_map(unique).collect()
}

/// Writes the events of a thread, from a snapshot that was taken at `end`.
fn write_track<W: Write>(
    events: &mut Events<W>,
    track: &Track,
    core: Option<usize>,
    armed: &HashMap<u64, usize>,
    end: u64,
) -> io::Result<()> {
    let place = (RUNTIME, thread_of(track.thread));
    let (mut parked, mut run) = (None, None);
    // Slices of one thread must not overlap, so each begins at the end of the last one.
    let mut last = 0;
    for &(at, event) in &track.events {
        // A job ends where the next event of the loop begins.
        if let Event::JobBegan { .. } | Event::Turn { .. } | Event::Parked { .. } = event {
            if let Some((from, job)) = run.take() {
                write_job(events, place, core, (from, at), Name(job), "")?;
                last = at;
            }
        }
        match event {
            Event::JobBegan { job, .. } => run = Some((at, job)),
            Event::Parked { .. } => parked = Some(at),
            Event::Resumed { until, lost } => {
                let from = parked
                    .take()
                    .unwrap_or(until.unwrap_or(at).min(at))
                    .max(last);
                let late = match until {
                    None => 0,
                    Some(until) => at.saturating_sub(until.max(from)),
                };
                let args =
                    format_args!("\"late_us\":{},{}", Micros(late), WithoutCore(lost)).to_string();
                events.slice(place, (from, at), "asleep", args)?;
                last = at;
            }
            Event::Looped { took, lost } => {
                let from = at.saturating_sub(took).max(last);
                events.slice(place, (from, at), "in its loop", WithoutCore(lost))?;
                last = at;
            }
            Event::Turn {
                took,
                jobs,
                last: job,
                lost,
            } => {
                let from = at.saturating_sub(took).max(last);
                if from < at {
                    let more = format_args!("\"jobs\":{jobs},{}", WithoutCore(lost)).to_string();
                    // Of several jobs, the last one need not have taken the time.
                    if jobs == 1 {
                        write_job(events, place, core, (from, at), Name(job), &more)?;
                    } else {
                        let more = format!("\"last\":{},{more}", Quoted(Name(job)));
                        let name = format_args!("{jobs} jobs").to_string();
                        write_job(events, place, core, (from, at), name, &more)?;
                    }
                }
                last = at;
            }
            Event::Taken {
                late,
                count,
                rescue,
                ..
            } => {
                let args = format!("\"timers\":{count},\"late_us\":{}", Micros(late));
                match rescue {
                    None => events.instant(place, at, "taken", args)?,
                    Some(rescue) => {
                        let name = format!("rescued from worker {}", rescue.from);
                        events.instant(place, at, name, args)?;
                    }
                }
            }
            Event::TimerRan { late, timer, .. } => {
                let args = format!("\"late_us\":{}", Micros(late));
                events.instant(place, at, format_args!("ran {}", Name(timer)), args)?;
                if let Some(number) = armed.get(&at.saturating_sub(late)) {
                    // A callback is a slice that begins now. A task has begun before.
                    let around = timer.is_some_and(|job| job.spawned.is_some());
                    write_arrow(events, 'f', place, at, (*number, around))?;
                }
            }
            Event::Armed { deadline } => {
                let left = Micros(deadline.saturating_sub(at));
                events.instant(place, at, "armed", format_args!("\"due_in_us\":{left}"))?;
                if let Some(number) = armed.get(&deadline) {
                    write_arrow(events, 's', place, at, (*number, true))?;
                }
            }
            Event::Moved => events.instant(place, at, "moved", "")?,
            Event::WokeWorker { worker, why } => {
                let name = match why {
                    WakeReason::Search => format!("wakes worker {worker} to search"),
                    WakeReason::Update => format!("tickles worker {worker}"),
                };
                events.instant(place, at, name, "")?;
            }
            Event::Stole { from, jobs } => {
                let name = format!("stole from worker {from}");
                events.instant(place, at, name, format_args!("\"jobs\":{jobs}"))?;
            }
            Event::Stepped { by } => {
                let args = format!("\"by_us\":{}", by / 1_000);
                events.instant(place, at, "the wall clock was set", args)?;
            }
            Event::Suspended { length } => {
                let args = format!("\"length_us\":{}", Micros(length));
                events.instant(place, at, "the machine was suspended", args)?;
            }
            _ => {}
        }
    }
    // The job that runs at the end of the trace has no event behind it.
    if let Some((from, job)) = run {
        write_job(events, place, core, (from, end.max(from)), Name(job), "")?;
    }
    Ok(())
}

/// Writes a slice for a job, or for several: on the thread, and on the core.
fn write_job<W: Write>(
    events: &mut Events<W>,
    place: (u64, u64),
    core: Option<usize>,
    time: (u64, u64),
    name: impl Display,
    args: &str,
) -> io::Result<()> {
    events.slice(place, time, &name, args)?;
    if let Some(core) = core {
        events.slice((CORES, thread_of_core(core)), time, &name, "")?;
    }
    Ok(())
}

/// Writes the begin (`s`) or the end (`f`) of an arrow.
fn write_arrow<W: Write>(
    events: &mut Events<W>,
    phase: char,
    place: (u64, u64),
    at: u64,
    (number, around): (usize, bool),
) -> io::Result<()> {
    // It binds to the slice around it, or to the next one.
    let binds = if around { ",\"bp\":\"e\"" } else { "" };
    let rest = format!(",\"cat\":\"timer\",\"id\":{number}{binds}");
    events.event(phase, place, at, "timer", rest)
}

/// Writes a late timer with its spans, as asynchronous slices inside of each other.
fn write_late<W: Write>(
    events: &mut Events<W>,
    number: usize,
    timer: &LateTimer,
    stacks: &Stacks,
) -> io::Result<()> {
    let place = (LATE, ALL_LATE);
    let deadline = nanos(timer.deadline);
    // The number is unique in this process, so Perfetto shows the slice below it.
    let id = format!("\"id2\":{{\"local\":\"{number}\"}}");
    let rest = |args: String| format!(",\"cat\":\"late\",{id},\"args\":{{{args}}}");
    let name = Name(timer.timer).to_string();
    let text = format!("\"why\":{}", Quoted(timer));
    events.event('b', place, deadline, &name, rest(text))?;
    let mut at = deadline;
    for (span, row) in timer.spans.iter().zip(stacks.places(timer)) {
        let to = at + nanos(span.length);
        let mut text = format!("\"why\":{}", Quoted(span));
        // The slice of the stall has the whole stack.
        let line = row.and_then(|row| own_line(stacks.rows[row].stack.lines()));
        if let Some(line) = line {
            text += &format!(",\"in\":{}", Quoted(line));
        }
        events.event('b', place, at, span.cause.name(), rest(text))?;
        events.event('e', place, to, span.cause.name(), rest(String::new()))?;
        at = to;
    }
    events.event('e', place, at, &name, rest(String::new()))
}

/// Displays a job that may be unknown.
struct Name(Option<JobName>);

impl Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(job) => job.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}
