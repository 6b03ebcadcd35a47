//! Stalls that are planted, each of which is named by the function that blocks.

use std::{
    collections::VecDeque,
    env,
    hint::black_box,
    io::Read,
    os::unix::net::UnixStream,
    pin::pin,
    process::Command,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, channel},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tourbillon::{
    Runtime,
    runtime::{Builder, Stall},
};
use tourbillon_stacks::{Frame, Stack, blocking_stacks, on_stall, watch_blocking};
use tourbillon_support::{PATIENCE, eventually};

/// What `on_stall` was called with.
type Called = (Stall, Option<Stack>);

/// Says when a planted function may return.
type Told = Arc<AtomicBool>;

fn runtime() -> (Runtime, Receiver<Called>) {
    let (sender, called) = channel();
    let mut builder = Builder::new();
    builder
        .worker_threads(2)
        .stall_threshold(Duration::from_millis(5));
    on_stall(&mut builder, move |stall, stack| {
        let _ = sender.send((stall.clone(), stack.cloned()));
    })
    .unwrap();
    (builder.build().unwrap(), called)
}

/// Plants a stall: `job` blocks in a function of this name until it is told. Checks that a stack
/// names the function, and that the end is reported.
fn plant(name: &str, job: impl FnOnce(&Runtime, Told)) -> Vec<Stack> {
    let (runtime, called) = runtime();
    let told = Told::default();
    job(&runtime, told.clone());
    let tells = Tells(told);
    let mut stacks = Vec::new();
    let names = |stack: &Stack| names(stack, name);
    let stall = loop {
        let (stall, stack) = called.recv_timeout(PATIENCE).expect(name);
        assert!(stall.is_running, "it has not been told: {stall}");
        // A stack may show the moment before the function is called, or be missing, if the thread
        // had no core.
        stacks.extend(stack);
        if stacks.last().is_some_and(names) {
            break stall;
        }
        assert!(stacks.len() < 12, "none of {stacks:?} names {name}");
    };
    drop(tells);
    loop {
        let (end, stack) = called.recv_timeout(PATIENCE).expect("the end is reported");
        if end.number == stall.number && !end.is_running {
            assert!(stack.is_none() && end.elapsed >= stall.elapsed);
            return stacks;
        }
    }
}

/// Returns whether a stack has the function, and checks that it is there with its line, if the
/// program has debug information.
fn names(stack: &Stack, name: &str) -> bool {
    let frames = stack.frames_of_job();
    // Without parameters, which name other functions.
    let is_it = |frame: &&Frame| {
        let path = frame.function.split('<').next().unwrap_or_default();
        path.split("::").any(|part| part == name)
    };
    let Some(frame) = frames.iter().find(is_it) else {
        return false;
    };
    let (file, line) = (frame.file.as_ref(), frame.line);
    // `.ci/run` says whether there are lines.
    match env::var("TOURBILLON_REQUIRE_LINES").as_deref() {
        Ok("1") => assert!(file.is_some(), "the build has no lines: {frame}"),
        Ok(_) => assert!(file.is_none(), "the build has lines: {frame}"),
        Err(_) => {}
    }
    let has_line = file.is_none_or(|file| file.ends_with("tests/stalls.rs") && line > Some(0));
    assert!(has_line, "{frame} in {stack}");
    true
}

/// Plants a job of `spawn_blocking` that blocks in a function of this name until it is told. Checks
/// that a stack names the function, after the limit and at will.
fn plant_blocking(name: &str, job: impl FnOnce(Told) + Send + 'static) {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let (sender, called) = channel();
    let limit = Duration::from_millis(5);
    let _watch = watch_blocking(runtime.handle(), limit, move |job, stack| {
        let _ = sender.send((*job, stack.cloned()));
    });
    let told = Told::default();
    let tells = Tells(told.clone());
    let ends = runtime.spawn_blocking(move || job(told));
    let mut last = Duration::ZERO;
    for calls in 0.. {
        let (job, stack) = called.recv_timeout(PATIENCE).expect(name);
        assert!(job.elapsed >= limit.max(2 * last), "{job:?} after {last:?}");
        assert!(job.job.name.contains("stalls::"), "{job:?}");
        last = job.elapsed;
        if stack.as_ref().is_some_and(|stack| names(stack, name)) {
            break;
        }
        assert!(calls < 12, "{stack:?} does not name {name}");
    }
    let is_named = || {
        let stacks = blocking_stacks(runtime.handle());
        let mut of_jobs = stacks.iter().filter_map(|(_, stack)| stack.as_ref());
        of_jobs.any(|stack| names(stack, name))
    };
    eventually("it is named at will", is_named);
    // It is no stall, since it may block.
    assert!(runtime.recent_stalls().is_empty());
    drop(tells);
    runtime.block_on(ends).unwrap();
    eventually("it is over", || runtime.blocking_jobs().is_empty());
}

/// Lets the planted function return, also if a check fails.
struct Tells(Told);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn is_told(told: &Told) -> bool {
    told.load(SeqCst)
}

#[inline(never)]
fn hot_loop(told: &Told) {
    while !is_told(told) {
        std::hint::spin_loop();
    }
}

#[test]
fn a_hot_loop_in_a_task() {
    plant("hot_loop", |runtime, told| {
        drop(runtime.spawn(async move { hot_loop(&told) }))
    });
}

#[test]
fn a_hot_loop_in_a_callback() {
    plant("hot_loop", |runtime, told| {
        drop(
            runtime
                .handle()
                .after(Duration::ZERO, move || hot_loop(&told)),
        );
    });
}

#[test]
fn a_sleep_of_the_thread() {
    #[inline(never)]
    fn sleeps(told: &Told) {
        while !is_told(told) {
            thread::sleep(Duration::from_millis(300));
        }
    }
    let stacks = plant("sleeps", |runtime, told| {
        drop(runtime.spawn(async move { sleeps(&told) }))
    });
    // The kernel may not say where it waits, or the signal may find it between two sleeps.
    let mut waits = stacks.iter().filter_map(Stack::waits_in);
    assert!(waits.all(|waits| !waits.is_empty()));
}

#[test]
fn a_lock() {
    #[inline(never)]
    fn locks(lock: &Mutex<()>) {
        drop(lock.lock().unwrap());
    }
    let stacks = plant("locks", |runtime, told| {
        let lock = Arc::new(Mutex::new(()));
        let (holds, held) = channel();
        thread::spawn({
            let lock = lock.clone();
            move || {
                let _lock = lock.lock().unwrap();
                holds.send(()).unwrap();
                while !is_told(&told) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        held.recv_timeout(PATIENCE).unwrap();
        runtime.spawn(async move { locks(&lock) });
    });
    // It may spin at first, and the kernel may not say where it sleeps.
    let mut calls = stacks.iter().filter_map(Stack::system_call);
    assert!(calls.all(|call| call == "futex"), "{stacks:?}");
}

#[test]
fn a_read_that_blocks() {
    #[inline(never)]
    fn reads(mut stream: &UnixStream) {
        stream.read_exact(&mut [0]).unwrap();
    }
    plant("reads", |runtime, told| {
        let (here, there) = UnixStream::pair().unwrap();
        runtime.spawn(async move { reads(&here) });
        thread::spawn(move || {
            while !is_told(&told) {
                thread::sleep(Duration::from_millis(1));
            }
            std::io::Write::write_all(&mut &there, b"x").unwrap();
        });
    });
}

#[test]
fn a_recursion() {
    #[inline(never)]
    fn recurs(depth: u32, told: &Told) -> u32 {
        match depth {
            0 => {
                hot_loop(told);
                0
            }
            _ => black_box(recurs(depth - 1, told)) + 1,
        }
    }
    let stacks = plant("hot_loop", |runtime, told| {
        runtime.spawn(async move { recurs(100, &told) });
    });
    let last = stacks.last().unwrap().folded();
    assert_eq!(last.matches("::recurs;").count(), 101, "{last}");
}

#[test]
fn allocations() {
    #[inline(never)]
    fn allocates(told: &Told) {
        let mut kept = VecDeque::new();
        while !is_told(told) {
            kept.push_back(black_box(vec![0_u8; 100]));
            if kept.len() > 10_000 {
                kept.pop_front();
            }
        }
    }
    plant("allocates", |runtime, told| {
        drop(runtime.spawn(async move { allocates(&told) }))
    });
}

#[test]
fn faults_of_pages() {
    #[inline(never)]
    fn faults(told: &Told) {
        while !is_told(told) {
            // So large a value is mapped, and each of its pages is touched for the first time.
            black_box(vec![1_u8; 16 << 20]);
        }
    }
    plant("faults", |runtime, told| {
        drop(runtime.spawn(async move { faults(&told) }))
    });
}

#[test]
fn a_large_document() {
    #[inline(never)]
    fn parses(told: &Told) {
        let text = format!("[{}0]", "{\"price\": 1.5},".repeat(100_000));
        while !is_told(told) {
            let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
            black_box(parsed);
        }
    }
    plant("parses", |runtime, told| {
        drop(runtime.spawn(async move { parses(&told) }))
    });
}

/// A function of a type that only runs.
trait Blocks: Send {
    fn block(&self);
}

struct Planted<T>(T);

impl<T: Fn() + Send> Blocks for Planted<T> {
    #[inline(never)]
    fn block(&self) {
        (self.0)();
        // Otherwise the call is a jump, and this function is not in the stack.
        black_box(());
    }
}

fn planted(told: Told) -> Box<dyn Blocks> {
    Box::new(Planted(move || hot_loop(&told)))
}

/// A generic function, with one copy for each kind of function that it is called with.
#[inline(never)]
fn generic<F: Fn() -> bool>(is_over: F) {
    while !is_over() {
        black_box(&is_over);
    }
}

#[test]
fn a_trait_object_in_a_task() {
    let stacks = plant("hot_loop", |runtime, told| {
        let planted = planted(told);
        runtime.spawn(async move { planted.block() });
    });
    let last = stacks.last().unwrap().folded();
    assert!(last.contains("stalls::Blocks>::block"), "{last}");
}

#[test]
fn a_trait_object_in_a_callback() {
    plant("hot_loop", |runtime, told| {
        let planted = planted(told);
        drop(
            runtime
                .handle()
                .after(Duration::ZERO, move || planted.block()),
        );
    });
}

#[test]
fn a_trait_object_in_a_blocking_job() {
    plant_blocking("hot_loop", |told| planted(told).block());
}

#[test]
fn a_generic_function_in_a_task() {
    plant("generic", |runtime, told| {
        drop(runtime.spawn(async move { generic(|| is_told(&told)) }));
    });
}

#[test]
fn a_generic_function_in_a_callback() {
    plant("generic", |runtime, told| {
        let call = move || generic(|| is_told(&told));
        drop(runtime.handle().after(Duration::ZERO, call));
    });
}

#[test]
fn a_generic_function_in_a_blocking_job() {
    plant_blocking("generic", |told| generic(|| is_told(&told)));
}

#[test]
fn a_regular_expression() {
    #[inline(never)]
    fn searches(told: &Told) {
        let pattern = regex::Regex::new("(a|b|ab)*c").unwrap();
        let text = "ab".repeat(50_000);
        while !is_told(told) {
            black_box(pattern.is_match(&text));
        }
    }
    plant("searches", |runtime, told| {
        drop(runtime.spawn(async move { searches(&told) }))
    });
}

#[test]
fn a_block_on_of_a_library() {
    #[inline(never)]
    fn blocks_on(told: &Told) {
        futures_lite::future::block_on(std::future::poll_fn(|context| {
            // Another thread wakes it.
            let (waker, told) = (context.waker().clone(), told.clone());
            let is_over = is_told(&told);
            thread::spawn(move || {
                while !is_told(&told) {
                    thread::sleep(Duration::from_millis(1));
                }
                waker.wake();
            });
            if is_over {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
    }
    plant("blocks_on", |runtime, told| {
        drop(runtime.spawn(async move { blocks_on(&told) }))
    });
}

#[test]
fn a_condition() {
    #[inline(never)]
    fn waits(told: &Told) {
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        let mut guard = lock.lock().unwrap();
        while !is_told(told) {
            (guard, _) = condition
                .wait_timeout(guard, Duration::from_millis(50))
                .unwrap();
        }
    }
    plant("waits", |runtime, told| {
        drop(runtime.spawn(async move { waits(&told) }))
    });
}

#[test]
fn a_process_that_is_waited_for() {
    #[inline(never)]
    fn waits_for_a_child(told: &Told) {
        while !is_told(told) {
            let status = Command::new("sleep").arg("0.2").status();
            assert!(status.unwrap().success());
        }
    }
    plant("waits_for_a_child", |runtime, told| {
        drop(runtime.spawn(async move { waits_for_a_child(&told) }))
    });
}

#[test]
fn a_read_in_a_blocking_job() {
    #[inline(never)]
    fn reads_slowly(told: Told) {
        let (mut here, there) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            while !is_told(&told) {
                thread::sleep(Duration::from_millis(1));
            }
            drop(there);
        });
        assert_eq!(here.read(&mut [0]).unwrap(), 0);
    }
    plant_blocking("reads_slowly", reads_slowly);
}

// Not the same code as `hot_loop`: the compiler makes one function of two that are equal.
#[inline(always)]
fn inlined(told: &Told) {
    while !is_told(told) {
        black_box(told);
    }
}

#[inline(never)]
fn outer(told: &Told) {
    inlined(told);
}

#[test]
fn an_inlined_function_in_a_callback() {
    plant("outer", |runtime, told| {
        drop(runtime.handle().after(Duration::ZERO, move || outer(&told)));
    });
}

#[test]
fn an_inlined_function_in_a_blocking_job() {
    plant_blocking("outer", |told| outer(&told));
}

#[test]
fn an_inlined_function_has_a_name_and_a_line() {
    let stacks = plant("outer", |runtime, told| {
        drop(runtime.spawn(async move { outer(&told) }))
    });
    let frames = stacks.last().unwrap().frames_of_job();
    let place = |name| {
        frames
            .iter()
            .position(|frame| frame.function.ends_with(name))
    };
    let outer = place("outer").expect("its frame");
    // A build without debug information has names of functions that were not inlined.
    if frames[outer].file.is_none() {
        return;
    }
    let inner = place("inlined").expect("its frame");
    assert!(inner < outer, "innermost first: {frames:?}");
    let frame = &frames[inner];
    assert!(frame.file.as_ref().unwrap().ends_with("tests/stalls.rs"));
    let line = format!("tests/stalls.rs:{}", frame.line.unwrap());
    assert!(frame.to_string().ends_with(&line), "{frame}");
}

struct Slow(Told);

impl Drop for Slow {
    #[inline(never)]
    fn drop(&mut self) {
        hot_loop(&self.0);
    }
}

#[test]
fn a_destructor_of_a_task() {
    plant("hot_loop", |runtime, told| {
        let slow = Slow(told);
        runtime.spawn(async move { drop(slow) });
    });
}

#[test]
fn a_destructor_of_what_a_callback_has() {
    plant("hot_loop", |runtime, told| {
        let slow = Slow(told);
        drop(runtime.handle().after(Duration::ZERO, move || {
            // It ends with the callback.
            let _slow = slow;
        }));
    });
}

#[test]
fn a_destructor_of_a_trait_object_in_a_blocking_job() {
    plant_blocking("hot_loop", |told| {
        let slow: Box<dyn std::any::Any + Send> = Box::new(Slow(told));
        drop(slow);
    });
}

#[test]
fn a_block_on_inside_of_a_task() {
    #[inline(never)]
    fn polls_again_and_again(told: &Told) {
        let mut future = pin!(std::future::pending::<()>());
        while !is_told(told) {
            let _ = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
    }
    plant("polls_again_and_again", |runtime, told| {
        runtime.spawn(async move { polls_again_and_again(&told) });
    });
}
