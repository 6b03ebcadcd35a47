//! Feature `tracing`: a callback runs in a span, the start and a rescue are events, and a stall
//! is a warning.
//!
//! Each test has a process of its own, because a process has one global subscriber.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use crate::common::{PATIENCE, alarm, blocked::Blocked, eventually, process::alone};
use crate::traced::{self, Said, Told};
use tourbillon::{Runtime, Timer, runtime::Builder};
use tracing::{Level, Metadata, Span};

const MS: Duration = Duration::from_millis(1);

fn runtime(workers: usize) -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(workers).helpers(0..=0);
    builder.build().unwrap()
}

#[test]
fn a_callback_runs_in_its_span() {
    alone(|| {
        let _alarm = alarm();
        let told = traced::listen(|metadata| {
            metadata.target() == "tourbillon::timer" || metadata.target() == module_path!()
        });
        let runtime = runtime(1);
        let next = || told.recv_timeout(PATIENCE).unwrap();
        for round in 0..4 {
            let f = || tracing::info!("inside");
            match round {
                0 => drop(runtime.handle().after(20 * MS, f)),
                1 => drop(Timer::after(20 * MS).on(runtime.handle()).start(f)),
                2 => drop(Timer::after_boot(20 * MS).on(runtime.handle()).start(f)),
                _ => drop(Timer::every(20 * MS).on(runtime.handle()).times(1).start(f)),
            }
            let Told::Span(id, metadata, said) = next() else {
                panic!("no span");
            };
            assert_eq!(metadata.name(), "tourbillon.callback");
            assert_eq!(*metadata.level(), Level::TRACE);
            assert_eq!(said.field("worker"), Some("0"));
            let callback = said.field("callback").unwrap();
            assert!(callback.contains("a_callback_runs_in_its_span"), "{said:?}");
            let late: u64 = said.field("lateness_us").unwrap().parse().unwrap();
            assert!(late < PATIENCE.as_micros() as u64, "{said:?}");
            assert!(matches!(next(), Told::Enter(entered) if entered == id));
            assert!(matches!(next(), Told::Event(..)), "inside");
            assert!(matches!(next(), Told::Exit(left) if left == id));
        }
        // No span is left on the worker, not even after a callback that panics.
        let outside = crate::common::on_worker(&runtime, || {
            drop(tourbillon::after(Duration::ZERO, || panic!("in a span")));
            Span::current().is_none()
        });
        assert!(outside, "this subscriber knows no current span");
        eventually("it is counted", || runtime.metrics().total().panics() == 1);
        // Both callbacks have left their spans.
        let left = std::iter::from_fn(|| told.recv_timeout(20 * MS).ok());
        let exits = left.filter(|it| matches!(it, Told::Exit(_)));
        assert_eq!(exits.count(), 2);
    });
}

#[test]
fn the_start_is_an_event_also_for_a_subscriber_that_comes_later() {
    alone(|| {
        let _alarm = alarm();
        let mut builder = Builder::new();
        let first = builder.worker_threads(2).name("first").build().unwrap();
        first.block_on(first.spawn(async {})).unwrap();
        let told = traced::listen(|metadata| metadata.target() == "tourbillon::runtime");
        let second = Builder::new_current_thread().build().unwrap();
        let mut names = Vec::new();
        for (runtime, workers) in [(&first, "2"), (&second, "1")] {
            // A worker says it when it looks for events.
            let said = std::iter::repeat_with(|| {
                runtime.block_on(tourbillon::time::sleep(MS));
                told.try_recv()
            });
            let Told::Event(metadata, said) = said.flatten().next().unwrap() else {
                panic!("no event");
            };
            assert_eq!(*metadata.level(), Level::INFO);
            assert_eq!(said.field("workers"), Some(workers));
            assert_eq!(said.field("version"), Some(env!("CARGO_PKG_VERSION")));
            names.push(said.field("name").map(str::to_owned));
            runtime.block_on(tourbillon::time::sleep(MS));
        }
        assert_eq!(names, [Some("first".to_owned()), None]);
        assert!(told.try_recv().is_err(), "it is said once");
    });
}

#[test]
fn a_rescue_is_an_event() {
    alone(|| {
        let _alarm = alarm();
        let told = traced::listen(|metadata| metadata.target() == "tourbillon::rescue");
        let runtime = runtime(2);
        let (sender, ran) = mpsc::channel();
        let (blocked, ()) = Blocked::after(runtime.handle(), move || {
            drop(tourbillon::after(MS, move || sender.send(()).unwrap()));
        });
        ran.recv_timeout(PATIENCE).unwrap();
        let (from, rescuer) = (blocked.worker.to_string(), 1 - blocked.worker);
        let rescue = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).find_map(|told| {
            let Told::Event(metadata, said) = told else {
                panic!("no event: {told:?}");
            };
            // On a busy machine, the other worker may have been rescued before.
            (said.field("from") == Some(&from)).then_some((metadata, said))
        });
        let (metadata, said) = rescue.expect("there is one");
        assert_eq!(*metadata.level(), Level::DEBUG);
        assert_eq!(said.field("worker"), Some(&*rescuer.to_string()));
        assert_eq!(said.field("timers"), Some("1"));
        assert!(said.field("tasks").is_some());
        drop(blocked);
    });
}

#[test]
fn a_subscriber_that_panics_is_contained_and_counted() {
    alone(|| {
        let _alarm = alarm();
        std::panic::set_hook(Box::new(|_| ()));
        let _told = traced::listen(|metadata| {
            assert!(metadata.target() != "tourbillon::timer", "it is asked");
            false
        });
        let runtime = runtime(1);
        let (sender, ran) = mpsc::channel();
        for _ in 0..3 {
            let sender = sender.clone();
            drop(
                runtime
                    .handle()
                    .after(Duration::ZERO, move || sender.send(()).unwrap()),
            );
        }
        for _ in 0..3 {
            ran.recv_timeout(PATIENCE).expect("it runs all the same");
        }
        eventually("it is counted", || runtime.metrics().total().panics() > 0);
    });
}

#[track_caller]
fn warning(warnings: &Receiver<Told>) -> (&'static Metadata<'static>, Said) {
    match warnings.recv_timeout(PATIENCE).unwrap() {
        Told::Event(metadata, said) => (metadata, said),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stall_is_a_warning() {
    alone(|| {
        let _alarm = alarm();
        let warnings = traced::listen(|metadata| metadata.target() == "tourbillon::stall");
        let mut builder = Builder::new();
        builder.worker_threads(1);
        let runtime = builder
            .stall_threshold(Duration::from_millis(50))
            .build()
            .unwrap();

        let line = line!() + 1;
        runtime.spawn(async { thread::sleep(Duration::from_millis(300)) });
        let (metadata, said) = warning(&warnings);
        assert_eq!(*metadata.level(), Level::WARN);
        assert_eq!(said.field("worker"), Some("0"));
        let job = said.field("job").unwrap();
        assert!(job.contains("a_stall_is_a_warning"), "{said:?}");
        let at = format!("{}:{line}:", file!());
        assert!(said.field("spawned").unwrap().starts_with(&at), "{said:?}");
        assert!(said.field("elapsed_ms").unwrap().parse::<u64>().unwrap() >= 300);
        assert_eq!(said.field("is_running"), Some("false"));
        assert_eq!(said.field("jobs"), Some("1"));

        runtime.handle().after(Duration::ZERO, || {
            thread::sleep(Duration::from_millis(300));
        });
        let (_, said) = warning(&warnings);
        assert_eq!(said.field("spawned"), None, "{said:?}");
        assert_eq!((said.field("label"), said.field("stack")), (None, None));

        runtime.spawn(async {
            tourbillon::task::label("GET /report");
            thread::sleep(Duration::from_millis(300));
        });
        let (_, said) = warning(&warnings);
        assert_eq!(said.field("label"), Some("GET /report"), "{said:?}");
        let stall = runtime.recent_stalls().pop().unwrap().stall;
        runtime.handle().add_stack(&stall, "sum at a.rs:7".into());
        let (_, said) = warning(&warnings);
        assert_eq!(said.field("stack"), Some("sum at a.rs:7"), "{said:?}");
        assert_eq!(said.field("number"), Some("3"));
    });
}
