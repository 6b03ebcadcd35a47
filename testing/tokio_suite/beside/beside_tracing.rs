//! What a subscriber may do when a task has its span.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{
    runtime::Builder,
    task::{LocalSet, spawn_local},
};
use tracing::{Event, Metadata, Subscriber, span, subscriber::with_default};

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
