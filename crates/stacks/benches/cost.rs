//! What stacks cost: instructions by callgrind, of all threads together.
//!
//! | | program |
//! |---|---|
//! | *job* | a task yields |
//! | *blocking job* | a task awaits a job of `spawn_blocking` that does nothing |
//! | *capture* | the stack of a thread that reads from a socket is taken; without names |
//! | *names* | the names of such a stack are found, when the program's names are read |
//!
//! *off* is without this crate. *on* is with `on_stall`, and with `watch_blocking` for jobs of 100
//! ms; nothing is stuck. Run `cargo bench -p tourbillon-stacks --bench cost`, where valgrind is
//! installed.

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

/// Name, which of `off` and `on`, and number of operations.
const PROGRAMS: [(&str, &str, u64); 6] = [
    ("job", "off", 20_000),
    ("job", "on", 20_000),
    ("blocking job", "off", 5_000),
    ("blocking job", "on", 5_000),
    ("capture", "", 200),
    ("names", "", 200),
];

fn program(what: &str, is_on: bool, n: u64) {
    match what {
        "capture" => with_stacks(|take| (0..n).for_each(|_| drop(take()))),
        "names" => with_stacks(|take| {
            let stack = take();
            (0..n).for_each(|_| drop(black_box(stack.to_string())));
        }),
        _ => {
            let mut builder = Builder::new();
            builder.worker_threads(2);
            if is_on {
                on_stall(&mut builder, |_, _| ()).expect("a thread");
            }
            let runtime = builder.build().expect("a runtime");
            let limit = Duration::from_millis(100);
            let _watch = is_on.then(|| watch_blocking(runtime.handle(), limit, |_, _| ()));
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
    }
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
    f(&|| loop {
        // Under valgrind, one thread runs at a time, and an answer may come too late.
        if let Ok(stack) = capture(number) {
            return stack;
        }
    });
    here.write_all(&[0]).expect("it reads");
    reads.join().expect("it ends");
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
}
