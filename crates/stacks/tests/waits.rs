//! A dump of the tasks says at which `await` each waits, and disturbs none.

use std::{
    future::Future,
    io::Write,
    net,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc::{Receiver, channel},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_lite::AsyncReadExt;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tourbillon::{
    JoinHandle, Runtime,
    net::TcpStream,
    runtime::{Builder, dump::TaskState},
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};
use tourbillon_stacks::{TaskStack, WaitingTasks, dump};
use tourbillon_support::{PATIENCE, eventually};

const HOUR: Duration = Duration::from_secs(3600);

/// The line of an `await`, which its function tells before.
#[derive(Clone, Default)]
struct Line(Arc<AtomicU32>);

impl Line {
    fn is(&self, line: u32) {
        self.0.store(line, SeqCst);
    }
}

/// A leaf of another crate: it keeps the last waker, and no runtime knows of it.
#[derive(Clone, Default)]
struct Foreign(Arc<Mutex<(bool, Option<Waker>)>>);

impl Foreign {
    fn set(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        state.1.take().expect("the task waits").wake();
    }
}

impl Future for Foreign {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        match &mut state.1 {
            Some(there) => there.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

async fn sleeps(line: Line, until: Instant) {
    line.is(line!() + 1);
    sleep_until(until).await;
}

async fn receives(line: Line, mut messages: mpsc::Receiver<u32>) -> Vec<u32> {
    let mut all = Vec::new();
    line.is(line!() + 1);
    while let Some(message) = messages.recv().await {
        all.push(message);
    }
    all
}

async fn reads(line: Line, mut socket: TcpStream) -> [u8; 4] {
    let mut bytes = [0; 4];
    line.is(line!() + 1);
    socket.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn locks(line: Line, lock: Arc<AsyncMutex<u32>>) {
    line.is(line!() + 1);
    let mut guard = lock.lock().await;
    *guard += 1;
}

async fn is_told(line: Line, told: Arc<Notify>) {
    line.is(line!() + 1);
    told.notified().await;
}

async fn awaits_foreign(line: Line, foreign: Foreign) {
    line.is(line!() + 1);
    foreign.await;
}

async fn joins(line: Line, told: (Line, Arc<Notify>), foreign: (Line, Foreign)) {
    line.is(line!() + 1);
    futures::join!(
        is_told(told.0, told.1),
        awaits_foreign(foreign.0, foreign.1)
    );
}

async fn limits(line: Line, foreign: Foreign) -> bool {
    line.is(line!() + 1);
    timeout(2 * HOUR, foreign).await.is_ok()
}

/// Begins a task with the line of its `await`.
fn spawn<F>(runtime: &Runtime, future: impl FnOnce(Line) -> F) -> (Line, JoinHandle<F::Output>)
where
    F: Future<Output: Send> + Send + 'static,
{
    let line = Line::default();
    (line.clone(), runtime.spawn(future(line)))
}

fn all_wait(runtime: &Runtime, tasks: usize) {
    eventually("all tasks wait", || {
        let dump = runtime.dump();
        let waiting = dump.tasks().iter();
        waiting
            .filter(|it| it.state() == TaskState::Waiting)
            .count()
            == tasks
    });
}

/// Returns whether a stack has this function, at this line of this file if the program has debug
/// information. With `line-tables-only` the name of an async function has no path.
fn has(stack: &TaskStack, function: &str, line: &Line) -> bool {
    let line = line.0.load(SeqCst);
    stack
        .frames()
        .iter()
        .any(|frame| match (&frame.file, frame.line) {
            (Some(file), at) => file.ends_with("tests/waits.rs") && at == Some(line),
            (None, _) => frame.function.contains(&format!("waits::{function}")),
        })
}

/// Checks that one row has this function at this line, and returns it.
#[track_caller]
fn row<'a>(rows: &'a [WaitingTasks], function: &str, line: &Line) -> &'a WaitingTasks {
    let has_it = |row: &&WaitingTasks| row.stacks.iter().any(|it| has(it, function, line));
    let mut found = rows.iter().filter(has_it);
    let row = found
        .next()
        .unwrap_or_else(|| panic!("{function} at {} in {rows:#?}", line.0.load(SeqCst)));
    assert!(found.next().is_none());
    assert!(row.is_traced && row.state == TaskState::Waiting, "{row}");
    assert!(row.stacks.iter().all(|it| {
        let folded = it.folded();
        !folded.contains("tourbillon_stacks::") && !folded.contains("tourbillon_tasks::cell")
    }));
    row
}

#[test]
fn each_await_is_named_and_goes_on() {
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    let until = Instant::now() + HOUR;
    let (sleep_line, slept) = spawn(&runtime, |line| sleeps(line, until));
    let (sender, messages) = mpsc::channel(1);
    let (receive_line, received) = spawn(&runtime, |line| receives(line, messages));
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    server.set_nonblocking(true).unwrap();
    let (read_line, read) = spawn(&runtime, |line| async {
        reads(line, TcpStream::from_std(server).unwrap()).await
    });
    let lock = Arc::new(AsyncMutex::new(0));
    let guard = lock.clone().try_lock_owned().unwrap();
    let (lock_line, locked) = spawn(&runtime, |line| locks(line, lock.clone()));
    let (foreign, told) = (Foreign::default(), Arc::new(Notify::new()));
    let (notify_line, foreign_line) = (Line::default(), Line::default());
    let one = (notify_line.clone(), told.clone());
    let other = (foreign_line.clone(), foreign.clone());
    let (join_line, joined) = spawn(&runtime, |line| joins(line, one, other));
    let limited = Foreign::default();
    let (limit_line, in_time) = spawn(&runtime, |line| limits(line, limited.clone()));
    all_wait(&runtime, 6);
    let timers = || {
        let timers = runtime.timers();
        (timers.pending(), timers.next_deadline())
    };
    let before = timers();
    for _ in 0..3 {
        let rows = dump(runtime.handle(), PATIENCE);
        assert_eq!(rows.len(), 6);
        row(&rows, "sleeps", &sleep_line);
        row(&rows, "receives", &receive_line);
        row(&rows, "reads", &read_line);
        row(&rows, "locks", &lock_line);
        let joins = row(&rows, "joins", &join_line);
        assert_eq!(joins.stacks.len(), 2, "{joins}");
        let has_line = |function, line| joins.stacks.iter().any(|it| has(it, function, line));
        assert!(has_line("is_told", &notify_line), "{joins}");
        assert!(has_line("awaits_foreign", &foreign_line), "{joins}");
        // Of the foreign future, and of the timer.
        let limited = row(&rows, "limits", &limit_line);
        assert_eq!(limited.stacks.len(), 2, "{limited}");
    }
    assert_eq!(timers(), before);
    // What each waits for happens once.
    drop(guard);
    client.write_all(b"once").unwrap();
    told.notify_one();
    foreign.set();
    limited.set();
    runtime.block_on(async move {
        sender.send(1).await.unwrap();
        sender.send(2).await.unwrap();
        drop(sender);
        slept.abort();
        assert_eq!(received.await.unwrap(), [1, 2]);
        assert_eq!(read.await.unwrap(), *b"once");
        locked.await.unwrap();
        joined.await.unwrap();
        assert!(in_time.await.unwrap());
        assert_eq!(*lock.lock().await, 1);
    });
}

#[test]
fn tasks_that_are_alike_are_one_row() {
    let runtime = Runtime::new().unwrap();
    for _ in 0..10 {
        runtime.spawn(sleep(HOUR));
    }
    all_wait(&runtime, 10);
    let rows = dump(runtime.handle(), PATIENCE);
    assert_eq!((rows.len(), rows[0].tasks.len()), (1, 10));
    let text = rows[0].to_string();
    assert!(
        text.starts_with("10 tasks tourbillon::time::sleep::Sleep (spawned at "),
        "{text}"
    );
    assert!(text.contains("waits.rs:"), "{text}");
    assert!(text.contains(", waiting in\n  "), "{text}");
    assert!(!text.contains("not polled"), "{text}");
}

fn blocks(told: &Receiver<()>) {
    told.recv().unwrap();
}

#[test]
fn tasks_of_a_stuck_worker_have_no_stack_and_say_so() {
    let mut builder = Builder::new();
    builder.worker_threads(1).rescue_latency(Duration::MAX);
    let runtime = builder.build().unwrap();
    let foreign = Foreign::default();
    let (line, waits) = spawn(&runtime, |line| awaits_foreign(line, foreign.clone()));
    let begins = Foreign::default();
    let (begun, told) = (begins.clone(), channel());
    let blocked = runtime.spawn(async move {
        begun.await;
        blocks(&told.1);
    });
    all_wait(&runtime, 2);
    begins.set();
    let is_running = || {
        let dump = runtime.dump();
        let mut tasks = dump.tasks().iter();
        tasks.any(|task| task.state() == TaskState::Running)
    };
    eventually("it runs", is_running);
    let rows = dump(runtime.handle(), Duration::from_millis(20));
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert!(!row.is_traced && row.stacks.is_empty());
        let text = row.to_string();
        match row.state {
            TaskState::Running => assert!(text.ends_with(", running"), "{text}"),
            _ => assert!(
                text.ends_with(", waiting, and not polled within the limit"),
                "{text}"
            ),
        }
    }
    told.0.send(()).unwrap();
    runtime.block_on(blocked).unwrap();
    all_wait(&runtime, 1);
    let rows = dump(runtime.handle(), PATIENCE);
    assert_eq!(row(&rows, "awaits_foreign", &line).tasks, [waits.id()]);
    foreign.set();
    runtime.block_on(waits).unwrap();
}

#[test]
fn ten_thousand_tasks_are_dumped_while_they_work() {
    const TASKS: u32 = 10_000;
    const ROUNDS: u32 = 20;
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let done = done.clone();
            runtime.spawn(async move {
                let (sender, mut messages) = mpsc::channel(1);
                for round in 0..ROUNDS {
                    let until = Instant::now() + Duration::from_millis(u64::from(number % 50));
                    sleep_until(until).await;
                    assert!(Instant::now() >= until);
                    sender.send(round).await.unwrap();
                    assert_eq!(messages.recv().await, Some(round));
                    done.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let mut dumps = 0;
    while done.load(Relaxed) < u64::from(TASKS * ROUNDS) {
        let rows = dump(runtime.handle(), PATIENCE);
        let running = |row: &&WaitingTasks| row.state != TaskState::Running;
        assert!(
            rows.iter().filter(running).all(|row| row.is_traced),
            "{rows:#?}"
        );
        dumps += 1;
    }
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(dumps > 0);
    assert_eq!(done.load(Relaxed), u64::from(TASKS * ROUNDS));
}
