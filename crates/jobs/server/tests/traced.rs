//! The spans of attempts, with feature `tracing`. A process of its own, as the subscriber is that
//! of the whole process.

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use tourbillon::{Runtime, runtime::Builder, time::sleep};
use tourbillon_jobs::{Attempt, Backoff, Failure, NewJob, Node, Queue, sqlite::Sqlite};
use tourbillon_support::{
    Gate, HOUR, PATIENCE,
    dir::Dir,
    traced::{Said, Told, listen},
};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What was told of one span.
#[derive(Debug)]
struct Spanned {
    fields: Said,
    /// What was recorded later.
    ends: Vec<Said>,
    /// How many events of the handler were in it.
    events: usize,
}

/// Returns what was told since the last call. If an attempt failed, waits until its span says so:
/// a handler that is given up may be dropped after the end of its job.
async fn all(told: &Receiver<Told>, has_failed: bool) -> Vec<Told> {
    let begun = Instant::now();
    let mut all = Vec::new();
    loop {
        all.extend(told.try_iter());
        let records = all.iter().filter(|told| matches!(told, Told::Record(..)));
        if !has_failed || records.count() >= 3 {
            return all;
        }
        assert!(begun.elapsed() < PATIENCE, "no record of {all:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

fn spans(told: Vec<Told>) -> Vec<Spanned> {
    let mut spans: Vec<(u64, Spanned)> = Vec::new();
    let mut entered = Vec::new();
    for told in told {
        match told {
            Told::Span(id, _, fields) => spans.push((
                id,
                Spanned {
                    fields,
                    ends: Vec::new(),
                    events: 0,
                },
            )),
            Told::Enter(id) => entered.push(id),
            Told::Exit(id) => entered.retain(|it| *it != id),
            Told::Record(id, said) => {
                let span = spans.iter_mut().find(|it| it.0 == id);
                span.unwrap().1.ends.push(said);
            }
            Told::Event(..) => {
                let [id] = entered[..] else {
                    panic!("the event is in {entered:?}");
                };
                let span = spans.iter_mut().find(|it| it.0 == id);
                span.unwrap().1.events += 1;
            }
        }
    }
    spans.into_iter().map(|it| it.1).collect()
}

async fn handle(attempt: Attempt) -> Result<(), Failure> {
    tracing::info!(target: "handler", "before");
    sleep(Duration::from_millis(2)).await;
    tracing::info!(target: "handler", "after");
    match attempt.key.as_str() {
        "fails" => Err(Failure::give_up("on purpose")),
        "fails at length" => Err(Failure::give_up("x".repeat(20_000))),
        "panics" => panic!("a bomb"),
        "hangs" => {
            sleep(HOUR).await;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns what the subscriber of the process tells. Each test has it alone.
fn told() -> MutexGuard<'static, Receiver<Told>> {
    static TOLD: OnceLock<Mutex<Receiver<Told>>> = OnceLock::new();
    let told = TOLD.get_or_init(|| {
        Mutex::new(listen(|metadata| {
            let target = metadata.target();
            target == "tourbillon_jobs::attempt" || target == "handler"
        }))
    });
    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
    while told.try_recv().is_ok() {}
    told
}

/// Opens a gate in the end, so that a test which fails does not hang.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn a_hook_that_blocks_is_reported_as_a_handler_is() {
    let _told = told();
    let (dir, gate) = (Dir::new(), Gate::default());
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let _opens = Opens(gate.clone());
        let queue = Queue::new(Sqlite::open(dir.path("jobs.db")).unwrap());
        let (reports, blocked) = channel();
        let waits = gate.clone();
        let node = Node::builder(queue.clone())
            .attempt_timeout(Duration::from_millis(100))
            .on_blocked(move |blocked| {
                let _ = reports.send(blocked.key.clone());
            })
            .on_span(move |_, _| waits.wait())
            .start(|_| async { Ok(()) });
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        let begun = Instant::now();
        let key = loop {
            if let Ok(key) = blocked.try_recv() {
                break key;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody is told of it");
            sleep(Duration::from_millis(2)).await;
        };
        assert_eq!((&*key, node.stats().blocked), ("job", 1));
        // No other attempt begins meanwhile, and what the handler returns counts.
        gate.open();
        while queue.count().await.unwrap().live > 0 {
            assert!(begun.elapsed() < PATIENCE, "the job does not end");
            sleep(Duration::from_millis(2)).await;
        }
        let stats = node.stats();
        assert_eq!((stats.done, stats.failed), (1, 0));
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn an_attempt_has_a_span() {
    let told = told();
    let dir = Dir::new();
    let cut = format!("{}…", "x".repeat(16 * 1024));
    Runtime::new().unwrap().block_on(async {
        let queue = Queue::new(Sqlite::open(dir.path("jobs.db")).unwrap());
        for (key, error) in [
            ("works", None),
            ("fails", Some(("error", "on purpose"))),
            ("fails at length", Some(("error", &*cut))),
            ("panics", Some(("panic", "the handler panicked: a bomb"))),
            ("hangs", Some(("time_limit", "it took too long"))),
        ] {
            // A busy machine may keep any handler from its end for so long.
            let limit = match key {
                "hangs" => Duration::from_millis(100),
                _ => HOUR,
            };
            let node = Node::builder(queue.clone())
                .backoff(Backoff {
                    attempts: 1,
                    ..Backoff::default()
                })
                .attempt_timeout(limit)
                .queue("mails", 1)
                // The handler runs all the same.
                .on_span(|_, _| panic!("on_span, on purpose"))
                .on_kind("mail", handle)
                .start_kinds();
            let job = NewJob::new(key, Duration::ZERO, "12345");
            let job = job.kind("mail").queue("mails").traceparent(TRACE);
            queue.schedule_job(job).await.unwrap();
            let begun = Instant::now();
            while queue.count().await.unwrap().live > 0 {
                assert!(begun.elapsed() < PATIENCE, "`{key}` does not end");
                sleep(Duration::from_millis(2)).await;
            }
            let spans = spans(all(&told, error.is_some()).await);
            let [span] = &spans[..] else {
                panic!("{spans:?}");
            };
            for (name, value) in [
                ("otel.name", "process mails"),
                ("otel.kind", "consumer"),
                ("messaging.system", "tourbillon_jobs"),
                ("messaging.operation.name", "process"),
                ("messaging.operation.type", "process"),
                ("messaging.destination.name", "mails"),
                ("messaging.message.id", key),
                ("messaging.message.body.size", "5"),
                ("job.kind", "mail"),
                ("job.attempt", "1"),
                ("job.traceparent", TRACE),
            ] {
                assert_eq!(span.fields.field(name), Some(value), "{name}");
            }
            assert!(span.fields.field("job.token").is_some());
            // The time limit may end a handler between its steps.
            assert!(span.events == 2 || key == "hangs", "{span:?}");
            let end = |name: &str| span.ends.iter().find_map(|said| said.field(name));
            assert_eq!(end("error.type"), error.map(|it| it.0));
            assert_eq!(end("otel.status_description"), error.map(|it| it.1));
            assert_eq!(end("otel.status_code"), error.map(|_| "ERROR"));
            assert_eq!(node.stats().panics, 1);
            assert!(node.stop(PATIENCE).await);
        }
    });
}
