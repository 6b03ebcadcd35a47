//! What stacks cost, for each operation and of all threads together.
//!
//! | | program | |
//! |---|---|---|
//! | *job* | a task yields | instructions by callgrind |
//! | *blocking job* | a task awaits a job of `spawn_blocking` that does nothing | the same |
//! | *capture* | the stack of a thread that reads from a socket is taken, without names | processor time: callgrind fails where a signal comes |
//! | *names* | the names of such a stack are found, when those of the program are read | the same |
//!
//! *off* is without this crate. *on* is with `on_stall` and `watch_blocking`. Nothing is stuck.
//! Run `cargo bench -p tourbillon-stacks --bench cost`, where valgrind is installed.

use std::{
    env,
    hint::black_box,
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use tourbillon::{Handle, runtime::Builder, task::yield_now};
use tourbillon_stacks::{Stack, capture, on_stall, watch_blocking};
use tourbillon_support::bench::instructions;

/// A limit that no job exceeds, though it is slow under valgrind.
const HOUR: Duration = Duration::from_secs(3_600);

/// Name, which of `off` and `on`, and number of operations.
const PROGRAMS: [(&str, &str, u64); 4] = [
    ("job", "off", 20_000),
    ("job", "on", 20_000),
    ("blocking job", "off", 5_000),
    ("blocking job", "on", 5_000),
];

fn program(what: &str, is_on: bool, n: u64) {
    let mut builder = Builder::new();
    builder.worker_threads(2).stall_threshold(HOUR);
    if is_on {
        on_stall(&mut builder, |_, _| ()).expect("a thread");
    }
    let runtime = builder.build().expect("a runtime");
    let _watch = is_on.then(|| watch_blocking(runtime.handle(), HOUR, |_, _| ()));
    let is_blocking = what == "blocking job";
    let done = runtime.spawn(async move {
        for _ in 0..n {
            match is_blocking {
                true => Handle::current()
                    .spawn_blocking(|| ())
                    .await
                    .expect("it ends"),
                false => yield_now().await,
            }
        }
    });
    runtime.block_on(done).expect("it ends");
}

/// Calls `f` with a function that takes the stack of a thread that reads from a socket.
fn with_stacks(f: impl FnOnce(&dyn Fn() -> Stack)) {
    let (mut here, mut there) = UnixStream::pair().expect("a socket");
    let (sender, numbers) = mpsc::channel();
    let reads = thread::spawn(move || {
        // SAFETY: the call has no preconditions.
        let number = unsafe { libc::gettid() };
        sender.send(number as u32).expect("it is received");
        there.read_exact(&mut [0]).expect("it comes");
    });
    let number = numbers.recv().expect("it is sent");
    f(&|| capture(number).expect("a stack"));
    here.write_all(&[0]).expect("it reads");
    reads.join().expect("it ends");
}

/// Prints the processor time of an operation.
fn print_time(what: &str, n: u32, operation: impl Fn()) {
    // SAFETY: zeros are a valid value, which the call then fills.
    let used = || unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        let times = [usage.ru_utime, usage.ru_stime];
        let of = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        times.map(of).iter().sum::<f64>()
    };
    operation();
    let before = used();
    (0..n).for_each(|_| operation());
    let each = (used() - before) / f64::from(n);
    println!("{what:<18} {each:>9.0} µs");
}

fn main() {
    let args: Vec<_> = env::args().collect();
    if let [_, run, what, on, n] = &args[..] {
        if run == "run" {
            return program(what, on == "on", n.parse().expect("a number"));
        }
    }
    for (what, on, n) in PROGRAMS {
        let args = |n: u64| ["run", what, on, &n.to_string()].map(str::to_owned);
        match instructions(n, args) {
            Some(count) => println!("{what:<13} {on:<4} {count:>9.0} instructions"),
            None => println!("{what:<13} {on:<4} needs valgrind"),
        }
    }
    with_stacks(|take| {
        print_time("capture", 1_000, || drop(take()));
        let stack = take();
        print_time("names", 1_000, || drop(black_box(stack.to_string())));
    });
}
