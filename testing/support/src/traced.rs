//! Shared set-up of the tests of feature `tracing`: a subscriber that sends what it receives to the
//! test.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// The fields of an event or a span.
#[derive(Clone, Debug, Default)]
pub struct Said(BTreeMap<&'static str, String>);

impl Said {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// An event or a span that the subscriber received.
#[derive(Clone, Debug)]
pub enum Told {
    Event(&'static Metadata<'static>, Said),
    Span(u64, &'static Metadata<'static>, Said),
    Enter(u64),
    Exit(u64),
    /// Later values of a span's fields.
    Record(u64, Said),
}

struct Passes {
    wanted: fn(&Metadata<'_>) -> bool,
    spans: AtomicU64,
    told: Sender<Told>,
}

impl Passes {
    fn tell(&self, told: Told) {
        // The test may be over.
        let _ = self.told.send(told);
    }
}

impl Subscriber for Passes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.wanted)(metadata)
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let id = self.spans.fetch_add(1, Ordering::Relaxed) + 1;
        let mut said = Said::default();
        span.record(&mut said);
        self.tell(Told::Span(id, span.metadata(), said));
        span::Id::from_u64(id)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let mut said = Said::default();
        values.record(&mut said);
        self.tell(Told::Record(span.into_u64(), said));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        self.tell(Told::Event(event.metadata(), said));
    }

    fn enter(&self, span: &span::Id) {
        self.tell(Told::Enter(span.into_u64()));
    }

    fn exit(&self, span: &span::Id) {
        self.tell(Told::Exit(span.into_u64()));
    }
}

/// Installs the subscriber for the whole process. It receives the `wanted` events and spans.
pub fn listen(wanted: fn(&Metadata<'_>) -> bool) -> Receiver<Told> {
    let (told, receiver) = channel();
    let spans = AtomicU64::new(0);
    let passes = Passes {
        wanted,
        spans,
        told,
    };
    tracing::dispatcher::set_global_default(Dispatch::new(passes)).expect("one for each process");
    receiver
}
