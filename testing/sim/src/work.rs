//! The operations of tasks that block, spawn, abort and talk. The oracle of lost parallelism looks
//! at all that they queue.

use std::{
    future::Future,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tourbillon::{
    Handle, JoinHandle, Timer,
    io::{AsyncFd, Interest},
    task::{LocalSet, block_in_place, spawn_local, yield_now},
    time::{sleep, timeout},
};
use tourbillon_sim::raw::{self as sim, Socket, below};

use crate::{
    cast::{Cast, lock},
    ledger::tally,
    life::{Life, Tracked},
};

const MS: u64 = 1_000_000;
/// The maximum number of tasks and timers of a seed.
const MOST: u64 = 150;
/// The maximum depth to which tasks spawn other tasks.
const DEPTH: u32 = 3;

/// A task that may be aborted and joined.
pub struct Work {
    task: JoinHandle<u64>,
    life: Arc<Life>,
}

/// Returns whether the runtime has begun to end. Then sockets and spawns fail, and waits end.
pub fn is_ending() -> bool {
    tally(|tally| tally.ending.is_some())
}

/// Does one operation on an outside thread.
pub fn act(cast: &Arc<Cast>) {
    match below(12) {
        0..4 => spawn(cast, 0),
        4 => spawn_pinned(cast),
        5 => local_set(cast),
        6 => abort(cast),
        7 => join(cast),
        8 => cast.notify.notify_waiters(),
        9 => batches(cast),
        10 => burst(cast),
        _ => timers(cast),
    }
}

/// Returns whether one more task may be spawned.
fn has_room(cast: &Cast) -> bool {
    cast.spawned.fetch_add(1, Relaxed) < MOST && !cast.over.load(Relaxed)
}

/// Occupies the calling thread: for a few points, or now and then for a long time.
pub fn compute(cast: &Cast) {
    if below(1_000) < u64::from(cast.plan.blocks) {
        let (least, most) = cast.plan.block_ns;
        block(least + below(most - least));
    } else {
        (0..below(30)).for_each(|_| sim::step());
    }
}

fn block(length: u64) {
    sim::note(|| format!("computes for {length} ns"));
    sim::block(length);
    tally(|tally| tally.blocks.push((0, length)));
}

/// Spawns a task that others may abort and join.
fn spawn(cast: &Arc<Cast>, depth: u32) {
    if has_room(cast) {
        let life = Life::new(false);
        let task = cast.spawn(life.of(program(cast.clone(), depth)));
        lock(&cast.works).push(Work { task, life });
    }
}

/// Spawns tasks one right after the other. One worker may take several of them at once.
fn burst(cast: &Arc<Cast>) {
    for _ in 0..2 + below(4) {
        if has_room(cast) {
            let (life, of) = (Life::new(false), cast.clone());
            let task = cast.spawn(life.of(async move {
                compute(&of);
                0
            }));
            lock(&cast.works).push(Work { task, life });
        }
    }
}

/// Spawns a task of one worker that others may abort and join.
fn spawn_pinned(cast: &Arc<Cast>) {
    if !has_room(cast) {
        return;
    }
    let life = Life::new(true);
    let (unmade, cast_of) = (life.unmade(), cast.clone());
    let create = move || unmade.make(local_program(cast_of));
    let task = cast.in_group(|| match below(2) {
        0 => Ok(cast.handle.spawn_pinned(create)),
        _ => {
            let worker = below(cast.plan.workers as u64) as usize;
            cast.handle.spawn_pinned_by_idx(create, worker)
        }
    });
    let task = match task {
        Ok(task) => task,
        Err(_) if is_ending() => return,
        Err(error) => sim::fail(&format!("a pinned task: {error}")),
    };
    lock(&cast.works).push(Work { task, life });
}

/// Takes a task out of the list of those that others abort and join.
fn any(cast: &Cast) -> Option<Work> {
    let mut works = lock(&cast.works);
    let count = works.len() as u64;
    (count > 0).then(|| works.swap_remove(below(count) as usize))
}

fn abort(cast: &Cast) {
    if let Some(work) = any(cast) {
        work.life.abort(&work.task);
        lock(&cast.works).push(work);
    }
}

fn join(cast: &Cast) {
    if let Some(Work { task, life }) = any(cast) {
        life.joined(cast.handle.block_on(task));
    }
}

/// Joins all tasks that are left. They have ended.
pub fn join_all(works: Vec<Work>, handle: &Handle) {
    for Work { task, life } in works {
        if !task.is_finished() {
            sim::fail(&format!("{task:?} has not ended, and there are no tasks"));
        }
        life.joined(handle.block_on(task));
    }
}

/// A future on the heap. It has a known type, so that a task can spawn another task of this type.
type Program = std::pin::Pin<Box<dyn Future<Output = u64> + Send>>;

fn program(cast: Arc<Cast>, depth: u32) -> Program {
    Box::pin(async move {
        let rounds = 1 + below(4);
        for _ in 0..rounds {
            if cast.over.load(Relaxed) {
                break;
            }
            step(&cast, depth).await;
        }
        rounds
    })
}

/// Spawns a task that only the caller can abort.
fn child(cast: &Arc<Cast>, depth: u32) -> Option<Work> {
    (depth < DEPTH && has_room(cast)).then(|| {
        let life = Life::new(false);
        let task = tourbillon::spawn(life.of(program(cast.clone(), depth + 1)));
        Work { task, life }
    })
}

async fn step(cast: &Arc<Cast>, depth: u32) {
    match below(15) {
        0..2 => compute(cast),
        2..4 => {
            for _ in 0..below(4) {
                if depth < DEPTH {
                    spawn(cast, depth + 1);
                }
            }
            compute(cast);
        }
        4 => yield_now().await,
        5..7 => nap(cast).await,
        7 => _ = timeout(Duration::from_nanos(below(2 * MS)), cast.notify.notified()).await,
        8 => {
            cast.notify.notify_waiters();
            compute(cast);
        }
        9 => talk(cast).await,
        10 => {
            // The task that was woken last is in the slot of this worker.
            cast.notify.notify_waiters();
            block_in_place(|| compute(cast));
        }
        11 => {
            if let Some(Work { task, life }) = child(cast, depth) {
                // Only a peer or a helper can run it.
                let result = block_in_place(|| cast.handle.block_on(task));
                life.joined(result);
            }
        }
        12 => {
            if let Some(Work { task, life }) = child(cast, depth) {
                if below(2) == 0 {
                    compute(cast);
                    life.abort(&task);
                }
                life.joined(task.await);
            }
        }
        13 => {
            let cast_of = cast.clone();
            let job = cast.handle.spawn_blocking(move || compute(&cast_of));
            if job.await.is_err() && !is_ending() {
                sim::fail("a blocking job was cancelled");
            }
        }
        _ => timers(cast),
    }
}

async fn nap(cast: &Cast) {
    let nanos = below(3 * MS);
    let from = sim::now();
    sleep(Duration::from_nanos(nanos)).await;
    if sim::now() < from + nanos && !is_ending() {
        sim::fail(&format!("a sleep is early\n{:?}", cast.plan));
    }
}

/// Arms timers of one worker that are due at the same time.
fn timers(cast: &Arc<Cast>) {
    let worker = below(cast.plan.workers as u64) as usize;
    let delay = below(2 * MS);
    for _ in 0..1 + below(5) {
        timer(cast, worker, delay, compute);
    }
}

/// Arms timers of one worker. Many are short, and come one after the other, so that the worker
/// expects short jobs and wakes no peer for the batch that follows. The first timer of the batch
/// is long, and so is a timer that follows a little later, which a peer takes over.
fn batches(cast: &Arc<Cast>) {
    let worker = below(cast.plan.workers as u64) as usize;
    let gap = 20_000 + below(MS / 10);
    for place in 0..16 {
        timer(cast, worker, place * gap, |_| ());
    }
    let long = |_: &Cast| block(MS + below(6 * MS));
    let due = 17 * gap;
    timer(cast, worker, due, long);
    for _ in 0..1 + below(3) {
        timer(cast, worker, due, compute);
    }
    timer(cast, worker, due + below(MS), long);
}

fn timer(cast: &Arc<Cast>, worker: usize, delay: u64, job: impl Fn(&Cast) + Send + 'static) {
    if !has_room(cast) {
        return;
    }
    let cast_of = cast.clone();
    let due = sim::now() + delay;
    let f = move || {
        if sim::now() < due {
            sim::fail(&format!("a timer is early\n{:?}", cast_of.plan));
        }
        job(&cast_of);
    };
    let builder = Timer::after(Duration::from_nanos(delay)).on(&cast.handle);
    drop(builder.on_worker(worker).start(f));
}

/// Connects to a new task and writes to it. The task must read all that was written.
async fn talk(cast: &Arc<Cast>) {
    if !has_room(cast) {
        return;
    }
    let reads = Life::new(false);
    let unmade = reads.unmade();
    let spawn = |theirs| tourbillon::spawn(unmade.make(read_all(theirs, cast.clone())));
    let Some((ours, task)) = connect(|ours, theirs| (ours, spawn(theirs))) else {
        return;
    };
    let total = 1 + below(16);
    let sent = write_all(&ours, total, cast).await;
    drop(ours);
    let got = reads.joined(task.await);
    if (sent != total || got != Some(sent)) && !is_ending() {
        sim::fail(&format!(
            "{sent} bytes of {total} were sent, and {got:?} came"
        ));
    }
}

/// A socket in a runtime.
pub type Stream = AsyncFd<Socket>;

/// Calls `f` with a new connection. Returns `None` if the runtime ends.
pub fn connect<R>(f: impl FnOnce(Stream, Stream) -> R) -> Option<R> {
    let (ours, theirs) = Socket::pair(1 + below(6) as usize).expect("the system has a descriptor");
    match (AsyncFd::new(ours), AsyncFd::new(theirs)) {
        (Ok(ours), Ok(theirs)) => Some(f(ours, theirs)),
        _ if is_ending() => None,
        (ours, theirs) => sim::fail(&format!("{:?}, {:?}", ours.err(), theirs.err())),
    }
}

/// Fails, unless the runtime is ending: then all operations fail.
fn ended(error: &io::Error) {
    if !is_ending() {
        sim::fail(&format!("a socket: {error:?}"));
    }
}

/// Writes `total` bytes, in parts. Returns how many were written.
pub async fn write_all(socket: &Stream, total: u64, cast: &Cast) -> u64 {
    let mut sent = 0;
    while sent < total {
        let part = (total - sent).min(1 + below(4)) as usize;
        match socket
            .async_io(Interest::WRITABLE, |it| it.write(part))
            .await
        {
            Ok(count) => sent += count as u64,
            Err(error) => {
                ended(&error);
                break;
            }
        }
        if below(4) == 0 {
            compute(cast);
        }
    }
    sent
}

/// Reads up to the end of the stream. Returns how many bytes came.
pub async fn read_all(socket: Stream, cast: Arc<Cast>) -> u64 {
    let mut got = 0;
    loop {
        let part = 1 + below(4) as usize;
        match socket
            .async_io(Interest::READABLE, |it| it.read(part))
            .await
        {
            Ok(0) => break,
            Ok(count) => got += count as u64,
            Err(error) => {
                ended(&error);
                break;
            }
        }
        if below(4) == 0 {
            compute(&cast);
        }
    }
    got
}

/// Runs as a task that stays on its thread. It holds a value that is not `Send` across its waits.
async fn local_program(cast: Arc<Cast>) -> u64 {
    let value = Rc::new(below(100));
    for _ in 0..1 + below(3) {
        if cast.over.load(Relaxed) {
            break;
        }
        match below(6) {
            0 => yield_now().await,
            1 => nap(&cast).await,
            2 => compute(&cast),
            3 => talk(&cast).await,
            4 => _ = timeout(Duration::from_nanos(below(MS)), cast.notify.notified()).await,
            _ if has_room(&cast) => {
                let (life, theirs, cast) = (Life::new(true), value.clone(), cast.clone());
                let future = async move {
                    nap(&cast).await;
                    *theirs
                };
                let task: JoinHandle<u64> = spawn_local::<Tracked<_>>(life.of(future));
                if below(3) == 0 {
                    life.abort(&task);
                }
                life.joined(task.await);
            }
            _ => {}
        }
    }
    *value
}

/// Runs local tasks on the calling thread, and drops the set with or without waiting for them.
fn local_set(cast: &Arc<Cast>) {
    let set = LocalSet::new();
    let mut works = Vec::new();
    while works.len() < 3 && below(4) > 0 && has_room(cast) {
        let life = Life::new(true);
        let task = set.spawn_local(life.of(local_program(cast.clone())));
        works.push(Work { task, life });
    }
    match below(3) {
        0 => {
            let nanos = below(MS);
            cast.handle
                .block_on(set.run_until(sleep(Duration::from_nanos(nanos))));
            // Dropping the set cancels what is left, as an abort does.
            for Work { task, life } in &works {
                life.abort(task);
            }
            drop(set);
        }
        _ => cast.handle.block_on(set),
    }
    for Work { task, life } in works {
        life.joined(cast.handle.block_on(task));
    }
}
