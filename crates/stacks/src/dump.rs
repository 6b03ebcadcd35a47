//! Where the tasks of a runtime wait.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
    fmt, mem,
    panic::Location,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tourbillon::{Handle, runtime::dump::TaskState, task::Id};

use crate::{Frame, frames_at, stack::write_lines};

/// The most calls in a stack.
const FRAMES: usize = 512;

/// Tasks of one name, spawned at one place, that wait in the same functions.
///
/// `Display` writes a line about the tasks, and then the functions of each stack, innermost first:
///
/// ```text
/// 12 tasks shop::serve (spawned at src/main.rs:31:9), waiting in
///   tourbillon::time::sleep::Sleep::poll at src/time/sleep.rs:250
///   shop::price::load::{closure#0} at src/price.rs:18
///   shop::serve::{closure#0} at src/main.rs:12
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingTasks {
    /// The name of the tasks: see [`Task::name`](tourbillon::runtime::dump::Task::name).
    pub name: &'static str,
    /// Where they were spawned.
    pub spawned_at: &'static Location<'static>,
    /// The numbers of the tasks.
    pub tasks: Vec<Id>,
    /// What they did when the dump began.
    pub state: TaskState,
    /// Whether they were polled within the limit. If not, they have no stacks.
    pub is_traced: bool,
    /// Where they wait: one stack for each future that is awaited at once, as in `join!`. There is
    /// none if the task runs, or if it is ready to run again.
    pub stacks: Vec<TaskStack>,
}

/// The functions of a task, from the future that it waits for to the task itself.
///
/// `Display` prints a line for each function, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskStack {
    frames: Vec<Frame>,
}

/// What the polls have told: each stack once, by its addresses.
#[derive(Default)]
struct Told {
    numbers: HashMap<Vec<u64>, usize>,
    of_tasks: HashMap<Id, HashSet<usize>>,
}

/// Says at which `await` each task of a runtime waits. Most tasks come first.
///
/// The workers poll each task once more, and take its stack where a future takes the task's waker.
/// That costs some µs more than the poll: see
/// [`trace_waits`](tourbillon::Handle::trace_waits), which also says what the polls are to the
/// tasks. Tasks that were not polled within `limit`, as those of a worker that is stuck, are listed
/// without a stack. So are tasks that run, whose stacks [`capture`](crate::capture) takes.
///
/// Functions of the program that were inlined, and lines, are there if the program has debug
/// information: `debug = "line-tables-only"` is enough. A future with wakers of its own, such as
/// `FuturesUnordered`, is where a stack begins.
///
/// This blocks the calling thread, and names are found on it. Do not call it on a worker.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Runtime, time::sleep};
///
/// async fn load_prices() {
///     sleep(Duration::from_secs(60)).await;
/// }
///
/// # fn main() -> Result<(), tourbillon::BuildError> {
/// let runtime = Runtime::new()?;
/// runtime.spawn(async { load_prices().await });
/// # while runtime.dump().tasks().iter().count() == 0 {}
/// let rows = tourbillon_stacks::dump(runtime.handle(), Duration::from_secs(10));
/// assert!(rows[0].stacks[0].folded().contains("load_prices"));
/// # Ok(())
/// # }
/// ```
pub fn dump(handle: &Handle, limit: Duration) -> Vec<WaitingTasks> {
    let told = Arc::new(Mutex::new(Told::default()));
    let tells = told.clone();
    let dump = handle.trace_waits(limit, move |task| {
        let addresses = addresses();
        let mut told = tells.lock().unwrap_or_else(PoisonError::into_inner);
        let next = told.numbers.len();
        let number = *told.numbers.entry(addresses).or_insert(next);
        told.of_tasks.entry(task).or_default().insert(number);
    });
    // A poll that goes on tells no more.
    let told = mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
    let mut known = HashMap::new();
    let stacks = told.numbers.iter().map(|(addresses, &number)| {
        let stack = TaskStack::new(addresses, &mut known);
        (number, stack)
    });
    let stacks: HashMap<usize, TaskStack> = stacks.collect();
    let mut rows = HashMap::new();
    for task in dump.tasks().iter() {
        let own = told.of_tasks.get(&task.id()).into_iter().flatten();
        // Two stacks may differ only in what called the task.
        let own: BTreeSet<&TaskStack> = own.map(|number| &stacks[number]).collect();
        let key = (
            task.name(),
            task.spawned_at(),
            task.state(),
            task.is_traced(),
        );
        let ids: &mut Vec<_> = rows.entry((key, own)).or_default();
        ids.push(task.id());
    }
    let rows = rows.into_iter().map(|((key, own), tasks)| {
        let (name, spawned_at, state, is_traced) = key;
        WaitingTasks {
            name,
            spawned_at,
            tasks,
            state,
            is_traced,
            stacks: own.into_iter().cloned().collect(),
        }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| (Reverse(row.tasks.len()), row.name));
    rows
}

/// Returns the calls of this thread, innermost first.
#[inline(never)]
fn addresses() -> Vec<u64> {
    let mut addresses = Vec::new();
    // SAFETY: the lock that the safe function takes protects the unwinders of other systems. Threads
    // may use that of Linux at once.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            addresses.push(frame.ip() as u64);
            addresses.len() < FRAMES
        });
    }
    addresses
}

impl TaskStack {
    /// Names the functions of a stack, without those that took it, and without those that called
    /// the task.
    fn new(addresses: &[u64], known: &mut HashMap<u64, Vec<Frame>>) -> Self {
        let frames = addresses.iter().flat_map(|&it| {
            let frames = known.entry(it).or_insert_with(|| frames_at(it));
            frames.clone()
        });
        let mut frames: Vec<Frame> = frames.collect();
        let is_clone = |frame: &Frame| frame.is_in("tourbillon_tasks::waker::clone_traced");
        if let Some(taken) = frames.iter().rposition(is_clone) {
            frames.drain(..=taken);
        }
        // With few debug information, the names of inlined functions have no path.
        let of_waker = |frame: &&Frame| {
            let file = frame.file.as_ref();
            frame.is_in("core::task::") || file.is_some_and(|it| it.ends_with("task/wake.rs"))
        };
        let of_waker = frames.iter().take_while(of_waker).count();
        frames.drain(..of_waker);
        let calls = |frame: &Frame| frame.is_in("tourbillon_tasks::cell::");
        if let Some(calls) = frames.iter().position(calls) {
            frames.truncate(calls);
        }
        Self { frames }
    }

    /// Returns the functions, innermost first: the future that the task waits for, and those that
    /// await it. The line of an async function is that of its `await`.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns the names of the functions in one line, outermost first, with `;` between them. This
    /// is the form that tools for flame graphs read, followed by a count.
    pub fn folded(&self) -> String {
        let names: Vec<_> = self.frames.iter().rev().map(|it| &*it.function).collect();
        names.join(";")
    }
}

impl fmt::Display for TaskStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.frames.iter().map(Frame::to_string).collect();
        write_lines(f, &lines)
    }
}

impl fmt::Display for WaitingTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, .. } = self;
        match self.tasks.len() {
            1 => write!(f, "task {} {name}", self.tasks[0])?,
            count => write!(f, "{count} tasks {name}")?,
        }
        write!(f, " (spawned at {}), {}", self.spawned_at, self.state)?;
        if !self.is_traced && self.state != TaskState::Running {
            return f.write_str(", and not polled within the limit");
        }
        for (n, stack) in self.stacks.iter().enumerate() {
            f.write_str(if n == 0 { " in" } else { "\nand in" })?;
            for line in stack.to_string().lines() {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}
