//! Stalls that are planted, each of which is named by the function that blocks.

use std::{
    collections::VecDeque,
    hint::black_box,
    io::Read,
    os::unix::net::UnixStream,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, channel},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use tourbillon::{
    Runtime,
    runtime::{Builder, Stall},
};
use tourbillon_stacks::{CaptureError, Stack, capture, on_stall};
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
    let names = |stack: &Stack| stack.folded().contains(name);
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
    plant("locks", |runtime, told| {
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

#[test]
fn a_generic_function_and_a_trait_object() {
    trait Blocks: Send {
        fn block(&self);
    }
    struct Planted<T>(T);
    impl<T: Fn() + Send> Blocks for Planted<T> {
        #[inline(never)]
        fn block(&self) {
            (self.0)();
        }
    }
    plant("hot_loop", |runtime, told| {
        let planted: Box<dyn Blocks> = Box::new(Planted(move || hot_loop(&told)));
        runtime.spawn(async move { planted.block() });
    });
}

#[test]
fn an_inlined_function_has_a_name_and_a_line() {
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

#[test]
fn a_destructor_of_a_task() {
    struct Slow(Told);
    impl Drop for Slow {
        #[inline(never)]
        fn drop(&mut self) {
            hot_loop(&self.0);
        }
    }
    plant("hot_loop", |runtime, told| {
        let slow = Slow(told);
        runtime.spawn(async move { drop(slow) });
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

#[test]
fn captures_disturb_no_thread() {
    const WORK: u64 = 2_000_000;
    let (sender, receiver) = channel();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let sender = sender.clone();
            thread::spawn(move || {
                // SAFETY: the call has no preconditions.
                sender.send(unsafe { libc::gettid() } as u32).unwrap();
                let mut kept = Vec::new();
                let mut sum = 0_u64;
                for n in 0..WORK {
                    kept.push(black_box(Box::new(n)));
                    if kept.len() > 1_000 {
                        sum += kept.drain(..).map(|n| *n).sum::<u64>();
                    }
                }
                sum + kept.into_iter().map(|n| *n).sum::<u64>()
            })
        })
        .collect();
    let ids: Vec<_> = (0..2)
        .map(|_| receiver.recv_timeout(PATIENCE).unwrap())
        .collect();
    let mut stacks = 0;
    while threads.iter().any(|thread| !thread.is_finished()) {
        for &id in &ids {
            // A thread that has ended is an error, and so is one without a core.
            stacks += u32::from(capture(id).is_ok_and(|stack| !stack.addresses().is_empty()));
        }
    }
    assert!(stacks > 0);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), WORK * (WORK - 1) / 2);
    }
    // The kernel may have the thread for a moment after it was joined.
    eventually("the thread is gone", || {
        matches!(capture(ids[0]), Err(CaptureError::Os(_)))
    });
    // SAFETY: the call has no preconditions.
    let own = capture(unsafe { libc::gettid() } as u32);
    assert!(matches!(own, Err(CaptureError::Os(_))), "{own:?}");
}
