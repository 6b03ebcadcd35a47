//! The metrics of a node and of a queue, by families.

use tourbillon_jobs::{
    node::{Histogram, KindMetrics, NodeMetrics},
    queue::QueueStats,
};

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Counter,
    Gauge,
    Histogram,
}

use Of::{Counter as COUNTER, Gauge as GAUGE, Histogram as HISTOGRAM};

/// Gets the families, one behind the other.
pub(crate) trait Sink {
    /// Begins a family. `name` has no prefix, and `help` neither backslashes nor line breaks.
    fn family(&mut self, name: &'static str, of: Of, help: &'static str);

    /// Gets a sample of the present family, a counter or a gauge.
    fn sample(&mut self, labels: &[(&str, &str)], value: u64);

    /// Gets a sample of the present family, a histogram of times.
    fn histogram(&mut self, labels: &[(&str, &str)], times: &Histogram);

    /// Gets a family of one sample without labels.
    fn one(&mut self, name: &'static str, of: Of, help: &'static str, value: u64) {
        self.family(name, of, help);
        self.sample(&[], value);
    }
}

/// Gives all families to a sink.
pub(crate) fn visit(sink: &mut impl Sink, node: &NodeMetrics, queue: &QueueStats) {
    of_node(sink, node);
    of_kinds(sink, &node.kinds);
    of_requests(sink, node);
    sink.family(
        "answers_total",
        COUNTER,
        "Answers to clients of this process that schedule, move and cancel jobs.",
    );
    for (answer, value) in [
        ("created", queue.created),
        ("existing", queue.existing),
        ("replaced", queue.replaced),
        ("replaced_running", queue.replaced_running),
        ("moved", queue.moved),
        ("retried", queue.retried),
        ("discarded", queue.discarded),
        ("cancelled", queue.cancelled),
        ("missing", queue.missing),
        ("never", queue.never),
        ("failed", queue.failed),
    ] {
        sink.sample(&[("answer", answer)], value);
    }
}

fn of_node(sink: &mut impl Sink, node: &NodeMetrics) {
    let total = &node.total;
    sink.one(
        "held",
        GAUGE,
        "Jobs in the node's timers, or due and not begun.",
        total.held,
    );
    sink.one(
        "blocked",
        GAUGE,
        "Attempts that are past their time limit and block their threads.",
        total.blocked,
    );
    sink.one(
        "attempts_cancelled_total",
        COUNTER,
        "Attempts that learned that their job was cancelled, moved or replaced.",
        total.cancelled,
    );
    sink.one("leases_total", COUNTER, "Leases of the node.", total.leases);
    sink.one(
        "leases_lost_total",
        COUNTER,
        "Leases that ended before the node stopped.",
        total.leases_lost,
    );
    sink.one(
        "has_lease",
        GAUGE,
        "Whether the node has a lease, so that it begins attempts.",
        u64::from(node.store.has_lease),
    );
    sink.one(
        "callback_panics_total",
        COUNTER,
        "Panics of on_end, on_error, on_blocked and on_span.",
        total.panics,
    );
    sink.one(
        "errors_untold_total",
        COUNTER,
        "Failures of which on_error was not told.",
        total.untold,
    );
}

/// A metric that each kind has: its name, whether it is a counter, its description and its value.
type OfKind = (&'static str, Of, &'static str, fn(&KindMetrics) -> u64);

/// A histogram that each kind has.
type Times = (&'static str, &'static str, fn(&KindMetrics) -> &Histogram);

fn of_kinds(sink: &mut impl Sink, kinds: &[KindMetrics]) {
    let all: [OfKind; 4] = [
        ("running", GAUGE, "Attempts whose handlers run.", |it| {
            it.running
        }),
        (
            "attempts_begun_total",
            COUNTER,
            "Attempts that began.",
            |it| it.begun,
        ),
        ("died_total", COUNTER, "Jobs that died here.", |it| it.dead),
        (
            "ends_refused_total",
            COUNTER,
            "Attempts whose end the store refused, as their token was stale.",
            |it| it.stale,
        ),
    ];
    for (name, of, help, value) in all {
        sink.family(name, of, help);
        for kind in kinds {
            labelled(kind, &[], |labels| sink.sample(labels, value(kind)));
        }
    }
    sink.family(
        "attempts_ended_total",
        COUNTER,
        "Attempts whose handlers have ended, by outcome.",
    );
    for kind in kinds {
        let others = kind.panicked + kind.timed_out;
        for (outcome, value) in [
            ("done", kind.done),
            ("failed", kind.failed - others),
            ("panicked", kind.panicked),
            ("timed_out", kind.timed_out),
            ("snoozed", kind.snoozed),
        ] {
            labelled(kind, &[("outcome", outcome)], |labels| {
                sink.sample(labels, value);
            });
        }
    }
    let times: [Times; 2] = [
        (
            "start_lateness_seconds",
            "How long after its time each attempt began.",
            |it| &it.lateness,
        ),
        (
            "attempt_duration_seconds",
            "How long each handler took.",
            |it| &it.duration,
        ),
    ];
    for (name, help, histogram) in times {
        sink.family(name, HISTOGRAM, help);
        for kind in kinds {
            labelled(kind, &[], |labels| sink.histogram(labels, histogram(kind)));
        }
    }
}

/// Calls `f` with the labels of a kind, and more. Kinds that share an entry have the label
/// `overflow`, as each name may be that of a kind.
fn labelled<'a>(
    kind: &'a KindMetrics,
    more: &[(&'a str, &'a str)],
    f: impl FnOnce(&[(&str, &str)]),
) {
    let name = kind.kind.as_deref();
    let mut labels = vec![
        ("queue", kind.queue.as_str()),
        ("kind", name.unwrap_or_default()),
    ];
    if name.is_none() {
        labels.push(("overflow", "true"));
    }
    labels.extend(more);
    f(&labels);
}

fn of_requests(sink: &mut impl Sink, node: &NodeMetrics) {
    sink.one(
        "store_up",
        GAUGE,
        "Whether the store answered the node's last request.",
        u64::from(node.store.is_up),
    );
    sink.family(
        "store_errors_total",
        COUNTER,
        "Requests of the node that failed at the store.",
    );
    for request in &node.store.requests {
        sink.sample(&[("request", request.name)], request.failed);
    }
    sink.family(
        "store_request_duration_seconds",
        HISTOGRAM,
        "How long the store took for requests of the node.",
    );
    for request in &node.store.requests {
        sink.histogram(&[("request", request.name)], &request.duration);
    }
}
