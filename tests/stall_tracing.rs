//! A stall is a warning, with its fields (feature `tracing`).

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::{sync::mpsc::Receiver, thread, time::Duration};

use common::{PATIENCE, alarm};
use tourbillon::runtime::Builder;
use traced::{Said, Told};
use tracing::{Level, Metadata};

#[track_caller]
fn warning(warnings: &Receiver<Told>) -> (&'static Metadata<'static>, Said) {
    match warnings.recv_timeout(PATIENCE).unwrap() {
        Told::Event(metadata, said) => (metadata, said),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stall_is_a_warning() {
    let _alarm = alarm();
    let warnings = traced::listen(|metadata| metadata.target() == "tourbillon::stall");
    let builder = Builder::new().worker_threads(1);
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

    runtime.after(Duration::ZERO, || {
        thread::sleep(Duration::from_millis(300));
    });
    let (_, said) = warning(&warnings);
    assert_eq!(said.field("spawned"), None, "{said:?}");
}
