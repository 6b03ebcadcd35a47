//! A stall is a warning, with its fields (feature `tracing`).

mod common;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use common::{PATIENCE, alarm};
use tourbillon::runtime::Builder;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// What an event says.
#[derive(Debug, Default)]
struct Said(BTreeMap<&'static str, String>);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Passes the runtime's warnings on.
struct Warnings(Sender<(&'static Metadata<'static>, Said)>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tourbillon")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        self.0.send((event.metadata(), said)).unwrap();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_stall_is_a_warning() {
    let _alarm = alarm();
    let (sender, warnings) = channel();
    tracing::dispatcher::set_global_default(tracing::Dispatch::new(Warnings(sender))).unwrap();
    let builder = Builder::new().worker_threads(1);
    let runtime = builder
        .stall_threshold(Duration::from_millis(50))
        .build()
        .unwrap();

    let line = line!() + 1;
    runtime.spawn(async { thread::sleep(Duration::from_millis(300)) });
    let (metadata, said) = warnings.recv_timeout(PATIENCE).unwrap();
    assert_eq!(metadata.target(), "tourbillon::stall");
    assert_eq!(*metadata.level(), Level::WARN);
    let field = |field: &str| said.0.get(field).map(String::as_str);
    assert_eq!(field("worker"), Some("0"));
    assert!(field("job").unwrap().contains("a_stall_is_a_warning"));
    let at = format!("{}:{line}:", file!());
    assert!(field("spawned").unwrap().starts_with(&at), "{said:?}");
    assert!(field("elapsed_ms").unwrap().parse::<u64>().unwrap() >= 300);
    assert_eq!(field("is_running"), Some("false"));
    assert_eq!(field("jobs"), Some("1"));

    runtime.after(Duration::ZERO, || {
        thread::sleep(Duration::from_millis(300));
    });
    let (_, said) = warnings.recv_timeout(PATIENCE).unwrap();
    assert!(!said.0.contains_key("spawned"), "{said:?}");
}
