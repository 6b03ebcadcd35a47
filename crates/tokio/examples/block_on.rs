//! Measures calls of `block_on` on a current-thread runtime whose clock is paused: with the facade,
//! and with a runtime of the real tokio.
//!
//! Without arguments, prints the shortest of five turns of a million calls each. With three, it
//! only makes the calls, for callgrind: `facade` or `tokio`, `sleep` or `ready`, and their number.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

const CALLS: u32 = 1_000_000;
const TURNS: usize = 5;

/// The name of a runtime, what the future does, and a function that makes so many calls.
type Way = (&'static str, &'static str, fn(u32));

const WAYS: [Way; 4] = [
    ("tokio", "sleep", |calls| {
        real(calls, || real::time::sleep(Duration::from_millis(1)));
    }),
    ("facade", "sleep", |calls| {
        facade(calls, || tokio::time::sleep(Duration::from_millis(1)));
    }),
    ("tokio", "ready", |calls| real(calls, || async {})),
    ("facade", "ready", |calls| facade(calls, || async {})),
];

/// Defines a function that calls `block_on` of a runtime with futures of a kind.
macro_rules! calls {
    ($name:ident, $tokio:ident) => {
        fn $name<F: Future<Output = ()>>(calls: u32, future: fn() -> F) {
            let mut builder = $tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().start_paused(true).build().unwrap();
            for _ in 0..calls {
                // The sleep asks for the runtime when it is created.
                runtime.block_on(async { black_box(future()).await });
            }
        }
    };
}

calls!(facade, tokio);
calls!(real, real);

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [name, what, calls] = &arguments[..] {
        let is_it = |way: &&Way| (way.0, way.1) == (name, what);
        let (.., call) = WAYS.iter().find(is_it).expect("a runtime and a future");
        call(calls.parse().expect("a number"));
        return;
    }
    let mut shortest = [Duration::MAX; WAYS.len()];
    for _ in 0..TURNS {
        for ((.., call), shortest) in WAYS.iter().zip(&mut shortest) {
            let start = Instant::now();
            call(CALLS);
            *shortest = start.elapsed().min(*shortest);
        }
    }
    for ((name, what, _), shortest) in WAYS.iter().zip(shortest) {
        println!("{name}, {what}: {:?} a call", shortest / CALLS);
    }
}
