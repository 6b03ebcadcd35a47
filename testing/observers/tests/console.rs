//! tokio-console's protocol: a program for tokio with console-subscriber, both unmodified, lists
//! its tasks with their names and counts, and what they wait for.

use std::{
    collections::HashMap,
    net::TcpListener,
    process::{Child, Command},
    time::{Duration, Instant},
};

use console_api::{
    field::{Name, Value},
    instrument::{InstrumentRequest, Update, instrument_client::InstrumentClient},
    tasks::{Stats, Task},
};
use tokio::time::{sleep, timeout};

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program, until it is dropped.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// What the program has told.
#[derive(Default)]
struct Seen {
    names: HashMap<u64, String>,
    stats: HashMap<u64, Stats>,
    resources: Vec<String>,
    operations: Vec<String>,
}

impl Seen {
    fn add(&mut self, update: Update) {
        let tasks = update.task_update.unwrap_or_default();
        for task in tasks.new_tasks {
            let id = task.id.unwrap().id;
            self.names.insert(id, name_of(&task));
        }
        self.stats.extend(tasks.stats_update);
        let resources = update.resource_update.unwrap_or_default().new_resources;
        self.resources
            .extend(resources.into_iter().map(|it| it.concrete_type));
        let operations = update.async_op_update.unwrap_or_default().new_async_ops;
        self.operations
            .extend(operations.into_iter().map(|it| it.source));
    }

    /// Returns the counts of the task with this name.
    fn task(&self, name: &str) -> Option<&Stats> {
        let (id, _) = self.names.iter().find(|(_, it)| *it == name)?;
        self.stats.get(id)
    }

    fn polls(&self, name: &str) -> u64 {
        let polls = self.task(name).and_then(|it| it.poll_stats.as_ref());
        polls.map_or(0, |it| it.polls)
    }
}

fn name_of(task: &Task) -> String {
    let is_name = |name: &Option<Name>| match name {
        Some(Name::StrName(name)) => name == "task.name",
        _ => false,
    };
    let field = task.fields.iter().find(|it| is_name(&it.name));
    match field.and_then(|it| it.value.clone()) {
        Some(Value::DebugVal(name) | Value::StrVal(name)) => name,
        _ => String::new(),
    }
}

#[tokio::test]
async fn tasks_and_resources_are_listed_with_true_counts() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_watched"))
        .arg(free.to_string())
        .spawn();
    let _program = Watched(program.unwrap());
    let begin = Instant::now();
    let mut client = loop {
        match InstrumentClient::connect(format!("http://{free}")).await {
            Ok(client) => break client,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    };
    let updates = client.watch_updates(InstrumentRequest {}).await;
    let mut updates = updates.unwrap().into_inner();
    let mut seen = Seen::default();
    let has_all = |seen: &Seen| {
        seen.polls("yields five times") >= 6
            && seen.polls("sleeps again and again") >= 5
            && seen.polls("ticks again and again") >= 5
            && seen.polls("waits for a permit") >= 1
            && ["Interval", "Sleep", "Semaphore"]
                .iter()
                .all(|it| seen.resources.iter().any(|name| name == it))
            && seen.operations.iter().any(|it| it == "Interval::tick")
    };
    while !has_all(&seen) {
        let update = timeout(PATIENCE, updates.message()).await;
        let update = update.unwrap_or_else(|_| panic!("{:?} {:?}", seen.names, seen.resources));
        seen.add(update.unwrap().expect("the program runs"));
        assert!(begin.elapsed() < PATIENCE, "{:?}", seen.resources);
    }
    // A task that yields wakes itself, five times. One that waits is woken by nobody.
    let yields = seen.task("yields five times").unwrap();
    assert_eq!(seen.polls("yields five times"), 6);
    assert_eq!((yields.wakes, yields.self_wakes), (5, 5));
    assert_eq!(yields.dropped_at, None);
    let waits = seen.task("waits for a permit").unwrap();
    assert_eq!((seen.polls("waits for a permit"), waits.wakes), (1, 0));
    assert_eq!(waits.waker_clones, waits.waker_drops + 1);
    let sleeps = seen.task("sleeps again and again").unwrap();
    let polls = seen.polls("sleeps again and again");
    assert!(
        sleeps.wakes + 1 >= polls && sleeps.wakes <= polls,
        "{sleeps:?}"
    );
}
