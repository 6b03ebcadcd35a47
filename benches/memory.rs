//! The memory of a pending timer: resident bytes and allocations, for a million of each kind.
//!
//! | | pending |
//! |---|---|
//! | *callback* | callbacks that capture 16 bytes, with dropped handles |
//! | *sleep* | sleeps in a vector that one task holds; the vector counts, too |
//! | *task* | tasks that sleep |
//!
//! Each kind runs in its own process, for Tourbillon and tokio. Run `cargo bench --bench memory`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    env, fs,
    future::{Future, poll_fn},
    hint::black_box,
    pin::Pin,
    process::Command,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    task::Poll,
    time::Duration,
};

const TIMERS: u64 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Counts the calls of the system's allocator.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: forwards all calls unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Returns a random delay from the generator MINSTD.
fn delay(random: &mut u64) -> Duration {
    *random = *random * 48_271 % 0x7fff_ffff;
    HOUR + Duration::from_nanos(*random * 27)
}

/// Returns the resident memory, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.expect("a size").parse::<u64>().expect("a number") * 1024
}

/// Spawns a task that arms timers and sends a message when all are armed.
type Spawn = fn(Pin<Box<dyn Future<Output = ()> + Send>>);

/// Polls sleeps once and holds them.
async fn hold<F: Future<Output = ()> + Unpin>(mut sleeps: Vec<F>, armed: mpsc::Sender<()>) {
    poll_fn(|cx| {
        for sleep in &mut sleeps {
            assert!(Pin::new(sleep).poll(cx).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    armed.send(()).expect("the receiver exists");
    std::future::pending::<()>().await;
    drop(sleeps);
}

fn program(what: &str) {
    let (sender, armed) = mpsc::channel();
    let spawn: Spawn = if what.starts_with("tokio") {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime");
        let runtime: &'static _ = Box::leak(Box::new(runtime));
        TOKIO.set(runtime.handle().clone()).expect("once");
        |task| {
            drop(
                TOKIO
                    .get()
                    .expect("set")
                    .spawn(tokio::task::unconstrained(task)),
            )
        }
    } else {
        let runtime = tourbillon::runtime::Builder::new()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        let runtime: &'static _ = Box::leak(Box::new(runtime));
        OURS.set(runtime.handle().clone()).expect("once");
        |task| drop(OURS.get().expect("set").spawn(task))
    };
    // Measure after the runtime was built, and leak it, so that only timers count.
    let before = (resident(), ALLOCATIONS.load(Relaxed));
    let mut random = 1;
    match what {
        "callback" => spawn(Box::pin(async move {
            for i in 0..TIMERS {
                let captured = (i, random);
                let f = move || _ = black_box(captured);
                drop(tourbillon::after(delay(&mut random), f));
            }
            sender.send(()).expect("the receiver exists");
        })),
        "sleep" => spawn(Box::pin(async move {
            let sleeps = (0..TIMERS).map(|_| tourbillon::time::sleep(delay(&mut random)));
            hold(sleeps.collect(), sender).await;
        })),
        // tokio's sleeps are not `Unpin`: pin them in the vector's memory.
        "tokio sleep" => spawn(Box::pin(async move {
            let sleeps = (0..TIMERS).map(|_| tokio::time::sleep(delay(&mut random)));
            let sleeps: &'static mut [_] = Box::leak(sleeps.collect());
            // SAFETY: leaked memory never moves.
            let sleeps = sleeps
                .iter_mut()
                .map(|it| unsafe { Pin::new_unchecked(it) });
            let mut sleeps: Vec<_> = sleeps.collect();
            poll_fn(|cx| {
                for sleep in &mut sleeps {
                    assert!(sleep.as_mut().poll(cx).is_pending());
                }
                Poll::Ready(())
            })
            .await;
            drop(sleeps);
            sender.send(()).expect("the receiver exists");
        })),
        _ => {
            let tokios = what.starts_with("tokio");
            for _ in 0..TIMERS {
                let (delay, sender) = (delay(&mut random), sender.clone());
                let begun = move || sender.send(()).expect("the receiver exists");
                if tokios {
                    TOKIO.get().expect("set").spawn(async move {
                        begun();
                        tokio::time::sleep(delay).await;
                    });
                } else {
                    OURS.get().expect("set").spawn(async move {
                        begun();
                        tourbillon::time::sleep(delay).await;
                    });
                }
            }
            (1..TIMERS).for_each(|_| armed.recv().expect("it does not panic"));
        }
    }
    armed.recv().expect("it does not panic");
    // The task that sent the message goes to sleep next. Wait for that.
    std::thread::sleep(Duration::from_millis(500));
    let count = |now: u64, then: u64| now.saturating_sub(then) as f64 / TIMERS as f64;
    println!(
        "{what:<14} {:>8.1} bytes {:>8.3} allocations",
        count(resident(), before.0),
        count(ALLOCATIONS.load(Relaxed), before.1),
    );
    std::process::exit(0);
}

static TOKIO: std::sync::OnceLock<tokio::runtime::Handle> = std::sync::OnceLock::new();
static OURS: std::sync::OnceLock<tourbillon::Handle> = std::sync::OnceLock::new();

fn main() {
    let args: Vec<_> = env::args().collect();
    if let [_, run, what] = &args[..] {
        if run == "run" {
            return program(what);
        }
    }
    let this = env::current_exe().expect("it has a path");
    for what in ["callback", "sleep", "tokio sleep", "task", "tokio task"] {
        let status = Command::new(&this).args(["run", what]).status();
        assert!(status.expect("it runs").success());
    }
}
