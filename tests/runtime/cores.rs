//! The cores of what a runtime and its tasks start: threads, processes, other runtimes. They are
//! those of the process at that moment, and not the one core of a worker.
//!
//! Each test has a process of its own, whose masks it may change.

use std::{
    fs, io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::common::{Gate, PATIENCE, alarm, blocked::in_a_task, eventually, process::alone, skip};
use tourbillon::{
    Runtime,
    runtime::{Builder, with_all_cores},
    task::spawn_blocking,
};

/// The cores of a mask, in ascending order.
pub(super) type Cores = Vec<usize>;

/// Returns the mask of a thread; 0 is the calling one.
pub(super) fn mask_of(thread: i32) -> io::Result<Cores> {
    // SAFETY: all zeros is a valid, empty set, and the call writes at most its size.
    let (read, set) = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        let read = libc::sched_getaffinity(thread, mem::size_of_val(&set), &mut set);
        (read, set)
    };
    if read != 0 {
        return Err(io::Error::last_os_error());
    }
    let cores = 0..8 * mem::size_of_val(&set);
    // SAFETY: each number is within the set.
    Ok(cores
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect())
}

/// Returns the mask of the calling thread.
pub(super) fn mask() -> Cores {
    mask_of(0).unwrap()
}

/// Sets the mask of a thread; 0 is the calling one.
fn set_mask(thread: i32, cores: &[usize]) -> io::Result<()> {
    // SAFETY: all zeros is a valid, empty set, and the numbers are within it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        let size = mem::size_of_val(&set);
        cores.iter().for_each(|&core| libc::CPU_SET(core, &mut set));
        libc::sched_setaffinity(thread, size, &set)
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the threads of this process.
fn threads() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let number = |task: io::Result<fs::DirEntry>| task.unwrap().file_name().into_string().unwrap();
    tasks.map(|task| number(task).parse().unwrap()).collect()
}

/// Sets the mask of all threads of this process, as `taskset -ap` does.
pub(super) fn set_mask_of_all(cores: &[usize]) {
    for thread in threads() {
        match set_mask(thread, cores) {
            // It has ended since it was listed.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            set => set.unwrap(),
        }
    }
}

/// Returns the masks of all threads of this process.
fn masks_of_all() -> Vec<Cores> {
    threads()
        .into_iter()
        .filter_map(|thread| mask_of(thread).ok())
        .collect()
}

/// Returns the cores that a child process of the calling thread may use.
fn mask_of_child() -> String {
    let mut child = Command::new("grep");
    child.args(["Cpus_allowed_list", "/proc/self/status"]);
    String::from_utf8(child.output().unwrap().stdout).unwrap()
}

/// Runs `test` in a process of its own, with the cores of the process, if there are at least two.
#[track_caller]
fn with_cores(test: impl FnOnce(Cores)) {
    let _alarm = alarm();
    let cores = mask();
    if cores.len() < 2 {
        return skip("this needs two cores");
    }
    // Two of them, so that each core can have a worker of its own.
    let cores = vec![cores[0], cores[cores.len() - 1]];
    set_mask_of_all(&cores);
    test(cores);
}

/// Builds a runtime with a worker for each core.
fn runtime() -> Runtime {
    build(&mut Builder::new(), 0)
}

/// Builds a runtime, and waits until its workers and as many helpers have begun.
fn build(builder: &mut Builder, helpers: usize) -> Runtime {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let begins = move || _ = count.fetch_add(1, SeqCst);
    let runtime = builder.on_thread_start(begins).build().unwrap();
    let threads = runtime.metrics().num_workers() + helpers;
    eventually("the threads begin", || begun.load(SeqCst) >= threads);
    runtime
}

/// How many helpers a runtime may have, where a test blocks its workers.
const HELPERS: usize = 3;

/// Returns the mask of a thread that `runtime` starts for a blocking job.
fn blocking(runtime: &Runtime) -> Cores {
    in_a_task(runtime, || {
        futures_lite::future::block_on(spawn_blocking(mask)).unwrap()
    })
}

/// Returns the mask of a thread that `runtime` starts for a blocking job which comes from outside.
/// An idle thread may have been there before, and takes another job.
fn new_blocking_of(runtime: &Runtime) -> Cores {
    let gate = Gate::new();
    let wait = gate.clone();
    let waits = runtime.spawn_blocking(move || wait.wait());
    let mask = runtime.block_on(runtime.spawn_blocking(mask)).unwrap();
    gate.open();
    runtime.block_on(waits).unwrap();
    mask
}

#[test]
fn what_a_task_starts_with_all_cores_has_those_of_the_process() {
    alone(|| {
        with_cores(|cores| {
            let child = mask_of_child();
            let count = cores.len();
            in_a_task(&runtime(), move || {
                let own = mask();
                assert_eq!(own.len(), 1, "a worker is pinned");
                assert_eq!(with_all_cores(mask_of_child), child);
                assert_eq!(
                    with_all_cores(|| thread::spawn(mask).join().unwrap()),
                    cores
                );
                let counted = with_all_cores(thread::available_parallelism).unwrap();
                assert_eq!(counted.get(), count);
                // Within each other, and with a panic.
                let inner = with_all_cores(|| (with_all_cores(mask), mask()));
                assert_eq!(inner, (cores.clone(), cores.clone()));
                let panics = || with_all_cores(|| panic!("as it is meant"));
                catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
                assert_eq!(mask(), own, "the worker is pinned again");
            });
        });
    });
}

#[test]
fn only_a_pinned_worker_changes_its_mask() {
    alone(|| {
        with_cores(|cores| {
            let unpinned = Builder::new().pin(false).build().unwrap();
            assert_eq!(in_a_task(&unpinned, || with_all_cores(mask)), cores);
            // A thread of the user has the mask that the user gives it.
            set_mask(0, &cores[..1]).unwrap();
            assert_eq!(with_all_cores(mask), cores[..1]);
            // So has a worker.
            let to = vec![cores[1]];
            let mut builder = Builder::new();
            builder.worker_threads(1).on_thread_start({
                let to = to.clone();
                move || set_mask(0, &to).unwrap()
            });
            let moved = in_a_task(&builder.build().unwrap(), || (mask(), with_all_cores(mask)));
            assert_eq!(moved, (to.clone(), to));
        });
    });
}

#[test]
fn a_mask_that_is_set_meanwhile_stays() {
    alone(|| {
        with_cores(|cores| {
            let to = cores.clone();
            in_a_task(&runtime(), move || {
                let other = vec![to.iter().copied().find(|&core| mask() != [core]).unwrap()];
                with_all_cores(|| set_mask_of_all(&other));
                assert_eq!(mask(), other);
                assert_eq!(with_all_cores(mask), other);
            });
        });
    });
}

/// Runs `f` in a task of another runtime than that of the calling worker.
fn in_other<R: Send + 'static>(runtime: &Runtime, f: fn() -> R) -> R {
    let (sender, receiver) = std::sync::mpsc::channel();
    drop(runtime.spawn(async move { sender.send(f()).unwrap() }));
    receiver.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn a_runtime_that_is_built_in_a_task_has_the_cores_of_the_process() {
    alone(|| {
        with_cores(|cores| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let expected = cores.clone();
            in_a_task(&runtime(), move || {
                let own = mask();
                let inner = runtime();
                assert_eq!(inner.metrics().num_workers(), expected.len());
                assert_eq!(mask(), own);
                let unpinned = Builder::new().pin(false).build().unwrap();
                assert_eq!(in_other(&unpinned, mask), expected);
                // A single thread runs this one, and is pinned as before.
                let single = Builder::new_current_thread().build().unwrap();
                sender.send((inner, single)).unwrap();
            });
            let (inner, single) = receiver.recv().unwrap();
            assert_eq!(blocking(&inner), cores);
            assert_eq!(
                single
                    .block_on(async { spawn_blocking(mask).await })
                    .unwrap(),
                cores
            );
        });
    });
}

/// Blocks all workers and all helpers but one, so that these start.
fn start_helpers(runtime: &Runtime) -> Gate {
    let gate = Gate::new();
    let count = Arc::new(AtomicUsize::new(0));
    let jobs = runtime.metrics().num_workers() + HELPERS - 1;
    for job in 0..jobs {
        let (gate, begun) = (gate.clone(), count.clone());
        drop(runtime.spawn(async move {
            begun.fetch_add(1, SeqCst);
            gate.wait();
        }));
        eventually("a worker or a helper runs it", || count.load(SeqCst) > job);
    }
    gate
}

#[test]
fn no_thread_and_no_runtime_leaves_a_mask_that_was_narrowed() {
    alone(|| {
        with_cores(|cores| {
            let mut builder = Builder::new();
            builder.helpers(1..=HELPERS);
            let first = build(&mut builder, 1);
            let single = Builder::new_current_thread().build().unwrap();
            let narrow = cores[..1].to_vec();
            set_mask_of_all(&narrow);
            assert_eq!(in_a_task(&first, || with_all_cores(mask)), narrow);
            assert_eq!(blocking(&first), narrow);
            assert_eq!(
                single
                    .block_on(async { spawn_blocking(mask).await })
                    .unwrap(),
                narrow
            );
            let second = runtime();
            assert_eq!(second.metrics().num_workers(), 1);
            let third = in_a_task(&first, || runtime().metrics().num_workers());
            assert_eq!(third, 1);
            // The workers of the second runtime are pinned again, which must not deceive the first.
            let gate = start_helpers(&first);
            assert!(masks_of_all().iter().all(|it| *it == narrow));
            gate.open();
            // Widened again, what is new has all of it.
            set_mask_of_all(&cores);
            assert_eq!(new_blocking_of(&first), cores);
            assert_eq!(runtime().metrics().num_workers(), cores.len());
        });
    });
}

#[test]
fn one_thread_that_is_pinned_does_not_pin_others() {
    alone(|| {
        with_cores(|cores| {
            let runtime = build(Builder::new().helpers(1..=HELPERS), 1);
            // The main thread pins itself; it is not this one.
            let main = i32::try_from(std::process::id()).unwrap();
            set_mask(main, &cores[..1]).unwrap();
            let gate = start_helpers(&runtime);
            let masks = masks_of_all();
            // The main thread, and one worker.
            let pinned = masks.iter().filter(|it| **it == cores[..1]).count();
            assert_eq!(pinned, 2, "{masks:?}");
            gate.open();
            assert_eq!(blocking(&runtime), cores);
            in_a_task(&runtime, move || assert_eq!(with_all_cores(mask), cores));
        });
    });
}

/// The main thread pins itself, and so has a mask that no worker contradicts: there is none, or it
/// was pinned to that core from the beginning.
#[test]
fn a_main_thread_that_pins_itself_narrows_no_runtime_without_other_workers() {
    alone(|| {
        with_cores(|cores| {
            let main = i32::try_from(std::process::id()).unwrap();
            // A core that no worker has, and the worker's core.
            for core in [cores[1], cores[0]] {
                set_mask_of_all(&cores);
                let single = Builder::new_current_thread().build().unwrap();
                let one = build(Builder::new().cores([cores[0]]).helpers(0..=0), 0);
                set_mask(main, &[core]).unwrap();
                assert_eq!(new_blocking_of(&single), cores);
                assert_eq!(blocking(&one), cores);
                let to = cores.clone();
                in_a_task(&one, move || assert_eq!(with_all_cores(mask), to));
                // The operator means all threads.
                set_mask_of_all(&[core]);
                assert_eq!(new_blocking_of(&single), [core]);
                assert_eq!(new_blocking_of(&one), [core]);
            }
        });
    });
}

/// A main thread that takes more cores than it had does not give them to others.
#[test]
fn a_main_thread_that_widens_its_mask_widens_no_runtime() {
    alone(|| {
        with_cores(|cores| {
            let narrow = &cores[..1];
            set_mask_of_all(narrow);
            let single = Builder::new_current_thread().build().unwrap();
            let main = i32::try_from(std::process::id()).unwrap();
            set_mask(main, &cores).unwrap();
            assert_eq!(new_blocking_of(&single), narrow);
            set_mask_of_all(&cores);
            assert_eq!(new_blocking_of(&single), cores);
        });
    });
}
