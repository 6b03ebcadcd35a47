//! Counts the instructions, the locked instructions and the shared cache lines of an operation.
//!
//! Each operation runs in a process of its own, under valgrind's tool lackey, which prints the
//! address of each instruction and of each access to memory. This process reads that trace:
//!
//! - *The thread* of an access follows from the stacks: each thread announces the address of its
//!   stack, and uses it every few instructions. Accesses between those of two threads count for
//!   neither.
//! - *An operation* lasts from one store to the mark of its thread to the next. The first quarter
//!   of a thread's operations warms up caches and pools.
//! - *Locked* are instructions with the prefix `lock`, `xchg` with memory, and `mfence`. Their
//!   bytes are read from the files of the program.
//! - *Shared* is a cache line of 64 bytes that several threads use during the operations, and that
//!   one of them writes; or one that another thread has written since this one used it. On as many
//!   cores as threads, such a line has to be fetched from another core. Lines that threads only
//!   read stay in all caches.
//!
//! The figures are medians over all operations of all threads, except for the shared lines, whose
//! figure is the mean. Rescues and reports of stalls are off, since valgrind makes each worker look
//! stuck.

use std::{
    cell::Cell,
    collections::HashMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tourbillon_support::bench::median;

use crate::operations::Operation;

/// The numbers of workers to count with.
const WORKERS: [usize; 4] = [2, 4, 8, 64];
/// How many operations each thread does.
const OPERATIONS: usize = 40;
/// The most threads that do operations.
const ACTORS: usize = 64;
/// How much of a stack lies below the announced address, and above it, in bytes. The thread-local
/// variables are above it.
const STACK: (u64, u64) = (1 << 20, 8 << 10);

/// A pair of words that mark a thread's operations in the trace. The thread writes `begin` where an
/// operation begins, and `end` where an operation ends and no other begins.
#[repr(align(128))]
struct Mark {
    begin: AtomicU64,
    end: AtomicU64,
}

static MARKS: [Mark; ACTORS] = [const {
    Mark {
        begin: AtomicU64::new(0),
        end: AtomicU64::new(0),
    }
}; ACTORS];

/// Runs the operation `args[0]` with `args[1]` workers, `args[2]` times on each thread.
pub fn child(args: &[String]) -> Result<(), String> {
    let [name, workers, n] = args else {
        return Err("run takes an operation and two numbers".to_owned());
    };
    let mut all = Operation::ALL.into_iter();
    let operation = all
        .find(|it| it.name() == name)
        .ok_or("no such operation")?;
    let number = |text: &String| text.parse::<usize>().map_err(|error| error.to_string());
    let (workers, n) = (number(workers)?, number(n)?);
    say(&format!("@marks {:x}", MARKS.as_ptr() as usize));
    let maps = fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
    for line in maps.lines().filter(|line| line.contains(" r-xp ")) {
        say(&format!("@code {line}"));
    }
    announce();
    let runtime = operation.runtime(workers, |builder| {
        builder
            .pin(false)
            .rescue_latency(Duration::MAX)
            .stall_threshold(Duration::MAX)
            .on_thread_start(announce)
    });
    operation.run(&runtime, operation.actors(workers), n, |at, begins| {
        // The outside threads announce themselves here.
        announce();
        let mark = &MARKS[at];
        if begins { &mark.begin } else { &mark.end }.store(1, Relaxed);
    });
    // Leak the runtime, so that its shutdown is not counted.
    std::mem::forget(runtime);
    Ok(())
}

/// Announces the stack of the calling thread in the trace, once.
fn announce() {
    thread_local! {
        static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_KNOWN.replace(true) {
        let here = 0_u8;
        say(&format!("@stack {:x}", &raw const here as usize));
    }
}

/// Prints a line to the trace, in one write.
fn say(line: &str) {
    let line = line.to_owned() + "\n";
    // If the reader has gone, there is nothing to count.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Counts the operations that have one of `parts` in their names, or all, and prints the table.
pub fn print(parts: &[String]) -> Result<(), String> {
    // Skip `Steal`, because it is not known which of its operations steal. Skip `ArmOneShard`,
    // because its runtime always has one worker.
    let all = Operation::ALL.into_iter().filter(|it| {
        !matches!(it, Operation::Steal | Operation::ArmOneShard)
            && (parts.is_empty() || parts.iter().any(|part| it.name().contains(part.as_str())))
    });
    println!("## Counted: instructions · locked instructions · shared cache lines\n");
    println!(
        "| workers | {} |",
        WORKERS.map(|n| n.to_string()).join(" | ")
    );
    println!("|---|{}", "---|".repeat(WORKERS.len()));
    for operation in all {
        let mut row = format!("| {} |", operation.name());
        for workers in WORKERS {
            row += &format!(" {} |", count(operation, workers)?);
        }
        println!("{row}");
    }
    Ok(())
}

/// Counts an operation, and formats the result.
fn count(operation: Operation, workers: usize) -> Result<String, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .args(["--fair-sched=yes", "--max-threads=1000"])
        .arg(program)
        .args([
            "run",
            operation.name(),
            &workers.to_string(),
            &OPERATIONS.to_string(),
        ])
        // One arena of the allocator for each thread, as on a machine with as many cores.
        .env("MALLOC_ARENA_MAX", "512")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("valgrind, which `apt-get install valgrind` installs: {error}"))?;
    let mut trace = Trace {
        warm_up: OPERATIONS / 4,
        ..Trace::default()
    };
    let mut lines = BufReader::with_capacity(1 << 20, child.stderr.take().expect("it is piped"));
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        trace.read(line.trim_ascii_end());
        line.clear();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{}: valgrind: {status}", operation.name()));
    }
    trace
        .result()
        .ok_or(format!("{}: the trace has no operation", operation.name()))
}

#[derive(Clone, Copy, PartialEq)]
enum Access {
    Instruction,
    Read,
    Write,
}

/// The record of a thread.
#[derive(Default)]
struct Thread {
    /// The lowest and the highest address of its stack.
    stack: (u64, u64),
    /// Whether the thread does operations.
    acts: bool,
    current: Option<Counts>,
    done: Vec<Counts>,
}

/// The counts of one operation.
#[derive(Default)]
struct Counts {
    instructions: u64,
    locked: u64,
    /// The cache lines that the operation used. The value is `true` if only other threads had the
    /// line in their caches.
    lines: HashMap<u64, bool>,
}

/// A cache line.
#[derive(Default)]
struct Line {
    /// The threads that have it in their caches: the one that wrote it last, and those that have
    /// read it since. Lines that were never written are in none.
    caches: Threads,
    /// The first thread that used it during the operations.
    user: Option<usize>,
    /// Whether several threads used it during the operations.
    is_shared: bool,
    /// Whether it was written during the operations.
    is_written: bool,
}

/// A set of threads, by their numbers.
#[derive(Clone, Copy, Default, PartialEq)]
struct Threads([u128; 2]);

impl Threads {
    fn only(thread: usize) -> Self {
        let mut only = Self::default();
        only.add(thread);
        only
    }

    fn add(&mut self, thread: usize) {
        self.0[thread / 128 % 2] |= 1 << (thread % 128);
    }

    fn has(&self, thread: usize) -> bool {
        self.0[thread / 128 % 2] >> (thread % 128) & 1 == 1
    }

    fn has_other(&self, thread: usize) -> bool {
        *self != Self::default() && *self != Self::only(thread)
    }
}

/// The state of the reader of a trace.
#[derive(Default)]
struct Trace {
    /// How many operations of a thread do not count.
    warm_up: usize,
    marks: u64,
    code: Code,
    threads: Vec<Thread>,
    /// The thread that runs.
    current: usize,
    /// The accesses since the current thread last used its stack. They count if the next stack that
    /// is used is the same one.
    since: Vec<(Access, u64, u64)>,
    lines: HashMap<u64, Line>,
    /// Whether a thread has warmed up.
    is_warm: bool,
}

impl Trace {
    /// Reads a line of the trace.
    fn read(&mut self, line: &[u8]) {
        let access = match line {
            [b'I', ..] => Access::Instruction,
            [b' ', b'L', ..] => Access::Read,
            // A modification is a read and a write.
            [b' ', b'S' | b'M', ..] => Access::Write,
            [b'@', line @ ..] => return self.announced(&String::from_utf8_lossy(line)),
            _ => return,
        };
        let Some((address, size)) = address_and_size(&line[2..]) else {
            return;
        };
        self.since.push((access, address, size));
        if access == Access::Instruction {
            return;
        }
        let is_on = |thread: &Thread| (thread.stack.0..thread.stack.1).contains(&address);
        if self.threads.get(self.current).is_some_and(is_on) {
            for (access, address, size) in std::mem::take(&mut self.since) {
                self.note(access, address, size);
            }
        } else if let Some(other) = self.threads.iter().position(is_on) {
            // It is not known which of the two threads made the accesses in between.
            self.since.clear();
            self.current = other;
        }
    }

    /// Reads a line that the program has printed.
    fn announced(&mut self, line: &str) {
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap_or_default();
        match line.split_once(' ') {
            Some(("marks", address)) => self.marks = hex(address),
            Some(("code", map)) => self.code.add(map),
            Some(("stack", address)) => {
                let at = hex(address);
                self.current = self.threads.len();
                self.since.clear();
                self.threads.push(Thread {
                    stack: (at - STACK.0, at + STACK.1),
                    ..Thread::default()
                });
            }
            _ => {}
        }
    }

    /// Counts an access of the current thread.
    fn note(&mut self, access: Access, address: u64, size: u64) {
        let thread = &mut self.threads[self.current];
        if access == Access::Instruction {
            if let Some(counts) = &mut thread.current {
                counts.instructions += 1;
                counts.locked += u64::from(self.code.is_locked(address));
            }
            return;
        }
        let marks = self.marks..self.marks + size_of_val(&MARKS) as u64;
        if marks.contains(&address) {
            // Each write to a mark ends the last operation. A write to its first word also begins
            // the next one.
            let begins = (address - self.marks) % size_of::<Mark>() as u64 == 0;
            thread.acts = true;
            thread.done.extend(thread.current.take());
            thread.current = begins.then(Counts::default);
            self.is_warm |= thread.done.len() >= self.warm_up;
            return;
        }
        if (thread.stack.0..thread.stack.1).contains(&address) {
            return;
        }
        // For a thread that does operations, only the lines that it uses during operations after
        // the warm-up count. For other threads, all lines count as soon as one thread has warmed
        // up.
        let warms_up = thread.current.is_none() || thread.done.len() < self.warm_up;
        let counts = self.is_warm && !(thread.acts && warms_up);
        for at in address >> 6..=(address + size - 1) >> 6 {
            let (by, line) = (self.current, self.lines.entry(at).or_default());
            if counts {
                line.is_shared |= line.user.is_some_and(|user| user != by);
                line.is_written |= access == Access::Write;
                line.user = line.user.or(Some(by));
                if let Some(counts) = &mut thread.current {
                    let is_fetched = line.caches.has_other(by) && !line.caches.has(by);
                    *counts.lines.entry(at).or_default() |= is_fetched;
                }
            }
            if access == Access::Write {
                line.caches = Threads::only(by);
            } else if line.caches.has_other(by) {
                line.caches.add(by);
            }
        }
    }

    /// Formats the figures of an operation. Returns `None` if no operation was traced.
    fn result(&self) -> Option<String> {
        let warm = self
            .threads
            .iter()
            .flat_map(|it| &it.done[it.done.len() / 4..]);
        let warm: Vec<_> = warm.collect();
        if warm.is_empty() {
            return None;
        }
        let median = |figure: fn(&Counts) -> u64| median(warm.iter().map(|counts| figure(counts)));
        let is_passed_on = |(at, fetched): &(&u64, &bool)| {
            let line = self.lines.get(*at);
            **fetched || line.is_some_and(|line| line.is_shared && line.is_written)
        };
        let shared = |counts: &&Counts| counts.lines.iter().filter(is_passed_on).count();
        let all_shared: usize = warm.iter().map(shared).sum();
        Some(format!(
            "{} · {} · {:.1}",
            median(|it| it.instructions),
            median(|it| it.locked),
            all_shared as f64 / warm.len() as f64,
        ))
    }
}

/// Parses `address,size`, after spaces.
fn address_and_size(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, size) = text.trim_ascii_start().split_once(',')?;
    Some((u64::from_str_radix(address, 16).ok()?, size.parse().ok()?))
}

/// The program's instructions.
#[derive(Default)]
struct Code {
    /// The first and the last address, and the bytes, of each file in memory.
    maps: Vec<(u64, u64, Vec<u8>)>,
    known: HashMap<u64, bool>,
}

impl Code {
    /// Adds a line of `/proc/self/maps`.
    fn add(&mut self, map: &str) {
        let read = || {
            let mut words = map.split_whitespace();
            let (first, last) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let path = words.nth(2)?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let (first, last, offset) = (hex(first)?, hex(last)?, hex(offset)? as usize);
            let mut bytes = fs::read(path).ok()?;
            bytes.drain(..offset.min(bytes.len()));
            Some((first, last, bytes))
        };
        self.maps.extend(read());
    }

    /// Returns whether the instruction at this address is locked.
    fn is_locked(&mut self, address: u64) -> bool {
        let maps = &self.maps;
        *self.known.entry(address).or_insert_with(|| {
            let map = maps.iter().find(|map| (map.0..map.1).contains(&address));
            let bytes = map.and_then(|map| map.2.get((address - map.0) as usize..));
            bytes.is_some_and(is_locked)
        })
    }
}

/// Returns whether an x86-64 instruction is locked, or a full fence.
fn is_locked(mut bytes: &[u8]) -> bool {
    loop {
        bytes = match bytes {
            [0xf0, ..] => return true,
            // Prefixes: of size, of repetition, of a segment, and REX.
            [
                0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65,
                rest @ ..,
            ] => rest,
            [0x40..=0x4f, rest @ ..] => rest,
            // `xchg` is locked if its operand is in memory.
            [0x86 | 0x87, operands, ..] => return *operands < 0xc0,
            _ => return bytes.starts_with(&[0x0f, 0xae, 0xf0]),
        }
    }
}
