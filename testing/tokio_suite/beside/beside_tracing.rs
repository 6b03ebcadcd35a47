//! What a subscriber may do when a task has its span, and the spans of intervals.

use std::{
    cell::{Cell, RefCell},
    fmt::{Debug, Write},
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Builder,
    task::{LocalSet, spawn_local},
    time::{interval, sleep},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::with_default,
};

thread_local! {
    static ACTS: Cell<bool> = const { Cell::new(false) };
    static PLACES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Calls its function once with the span of a task, after [`ACTS`] was set. Keeps the fields of
/// all such spans.
struct AtSpan(fn(), AtomicU64);

impl Subscriber for AtSpan {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        if span.metadata().name() == "runtime.spawn" {
            PLACES.with_borrow_mut(|places| places.push(format!("{:?}", span.values())));
            if ACTS.take() {
                self.0();
            }
        }
        span::Id::from_u64(self.1.fetch_add(1, Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Runs `f` with a subscriber that calls `act` with the span of the next task.
fn at_span<R>(act: fn(), f: impl FnOnce() -> R) -> R {
    with_default(AtSpan(act, 1.into()), f)
}

/// Has the subscriber act when this task starts another.
async fn start_one() {
    ACTS.set(true);
    spawn_local(async {}).await.unwrap();
    assert!(!ACTS.get());
}

fn run(set: &LocalSet) {
    let runtime = Builder::new_current_thread().build().unwrap();
    set.block_on(&runtime, start_one());
}

#[test]
fn a_subscriber_starts_a_local_task() {
    at_span(|| drop(spawn_local(async {})), || run(&LocalSet::new()));
}

#[test]
fn a_task_whose_span_panics_is_not_started() {
    let set = LocalSet::new();
    let runs = || at_span(|| panic!("on purpose"), || run(&set));
    assert!(catch_unwind(AssertUnwindSafe(runs)).is_err());
    drop(set);
}

#[test]
fn only_the_tasks_of_the_program_have_spans() {
    at_span(|| (), || run(&LocalSet::new()));
    PLACES.with_borrow(|places| {
        assert!(!places.is_empty());
        assert!(places.iter().all(|it| it.contains("beside_tracing.rs")), "{places:?}");
    });
}

/// Writes what an interval tells: its spans, and the operations on it. Spans are called by their
/// names.
#[derive(Default)]
struct OfIntervals {
    names: Mutex<Vec<Option<&'static str>>>,
}

thread_local! {
    static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn tell(line: String) {
    TOLD.with_borrow_mut(|told| told.push(line));
}

/// The fields, but for the line and the column.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !["loc.line", "loc.col"].contains(&field.name()) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }
}

impl OfIntervals {
    /// Writes what happens to a span. Sleeps have numbers, too, but are not written.
    fn about(&self, what: &str, id: &span::Id) {
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        if let Some(name) = self.names.lock().unwrap()[index] {
            tell(format!("{what} {name}"));
        }
    }
}

impl Subscriber for OfIntervals {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let metadata = span.metadata();
        let (name, target) = (metadata.name(), metadata.target());
        let is_ours = ["tokio::time::interval", "tokio::util::trace"].contains(&target);
        if is_ours {
            let mut fields = Fields::default();
            span.record(&mut fields);
            let root = if span.is_root() { "root " } else { "" };
            tell(format!("new {root}{name} {target}{}", fields.0));
        }
        let mut names = self.names.lock().unwrap();
        names.push(is_ours.then_some(name));
        span::Id::from_u64(names.len().try_into().unwrap())
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.0.contains("poll_tick") {
            tell(format!("{}{}", event.metadata().target(), fields.0));
        }
    }

    fn enter(&self, id: &span::Id) {
        self.about("in", id);
    }

    fn exit(&self, id: &span::Id) {
        self.about("out of", id);
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
}

#[test]
fn an_interval_is_a_resource_and_a_tick_is_an_operation_on_it() {
    const TICK: [&str; 14] = [
        "in runtime.resource",
        "new runtime.resource.async_op tokio::util::trace source=\"Interval::tick\" \
         inherits_child_attrs=false",
        "in runtime.resource.async_op",
        "new runtime.resource.async_op.poll tokio::util::trace",
        "out of runtime.resource.async_op",
        "out of runtime.resource",
        "in runtime.resource",
        "in runtime.resource.async_op",
        "in runtime.resource.async_op.poll",
        "runtime::resource::poll_op op_name=\"poll_tick\" is_ready=",
        "out of runtime.resource.async_op.poll",
        "out of runtime.resource.async_op",
        "out of runtime.resource",
        "",
    ];
    let ticks = async {
        let mut interval = interval(Duration::from_secs(3_600));
        tell(String::new());
        // The first tick is due, also by tokio's clock of whole milliseconds.
        sleep(Duration::from_millis(10)).await;
        interval.tick().await;
        tell(String::new());
        let mut waits = pin!(interval.tick());
        poll_fn(|cx| Poll::Ready(assert!(waits.as_mut().poll(cx).is_pending()))).await;
        tell(String::new());
    };
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    with_default(OfIntervals::default(), || runtime.block_on(ticks));
    let told = TOLD.take();
    assert_eq!(
        told[..2],
        [
            "new root runtime.resource tokio::time::interval concrete_type=\"Interval\" \
             kind=\"timer\" loc.file=\"tests/beside_tracing.rs\"",
            ""
        ]
    );
    let expected = ["true", "false"].map(|is_ready| {
        let of_poll = |line: &str| match line.ends_with('=') {
            true => format!("{line}{is_ready}"),
            false => line.to_owned(),
        };
        TICK.map(of_poll)
    });
    assert_eq!(told[2..], expected.concat());
}
