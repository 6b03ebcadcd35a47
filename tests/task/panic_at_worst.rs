//! Panics without memory or descriptors, or during another panic. They are contained, except where
//! Rust itself aborts the process.

use std::{
    os::unix::process::ExitStatusExt,
    panic,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::{
    Drops, HOUR, PATIENCE, alarm, eventually, on_worker,
    panics::{assert_alive, panics},
    process::{alone, child, is_child, test_name},
    use_up_descriptors,
};
use tourbillon::{
    Handle, Runtime, Timer,
    task::block_in_place,
    time::{sleep, timeout},
};

/// Calls `bang`, which panics, in each kind of job and callback. Returns how many panics were
/// counted.
fn panic_everywhere(runtime: &Runtime, bang: fn()) -> u64 {
    let before = panics(runtime);
    let drops = Drops::new();
    for _ in 0..20 {
        let token = drops.token();
        runtime.handle().after(Duration::ZERO, move || {
            let _token = token;
            bang();
        });
        let token = drops.token();
        let task = runtime.spawn(async move {
            let _token = token;
            sleep(Duration::from_micros(50)).await;
            bang();
        });
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        let token = drops.token();
        let job = runtime.spawn_blocking(move || {
            let _token = token;
            bang();
        });
        assert!(runtime.block_on(job).unwrap_err().is_panic());
        let token = drops.token();
        let blocks = runtime.spawn(async move {
            let _token = token;
            block_in_place(bang);
        });
        assert!(runtime.block_on(blocks).unwrap_err().is_panic());
        let token = drops.token();
        let timer = Timer::after(HOUR)
            .on(runtime.handle())
            .start_with(move |_| {
                let _token = token;
                bang();
            });
        timer.cancel();
    }
    let recurring = runtime.handle().every(Duration::from_micros(100), bang);
    let ran = || panics(runtime) - before;
    eventually("what recurs panics again and again", || ran() > 100);
    recurring.cancel();
    eventually("all is dropped that panicked", || drops.count() == 100);
    assert_alive(runtime);
    ran()
}

/// A backtrace cannot open the file with the names of its functions. The panic is still contained.
#[test]
fn panics_without_free_descriptors_are_contained() {
    alone(|| {
        let _alarm = alarm();
        // SAFETY: the runtime is not built yet. The test binary runs one test, and its other
        // threads only wait for that test and do not read the environment.
        unsafe { std::env::set_var("RUST_BACKTRACE", "1") };
        let runtime = crate::common::runtime(2);
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        let used_up = use_up_descriptors();
        panic_everywhere(&runtime, || panic!("no descriptor is left"));
        assert!(
            std::fs::File::open("/dev/null").is_err(),
            "the fault is there"
        );
        drop(used_up);
    });
}

/// A job asks for more memory than there is, and panics.
#[test]
fn panics_for_lack_of_memory_are_contained() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(2);
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        assert_alive(&runtime);
        // No machine has so large an address space, so the test does not have to limit the memory.
        panic_everywhere(&runtime, || {
            let mut much = Vec::<u8>::new();
            much.try_reserve_exact(1 << 62).expect("not so much");
        });
        panic_everywhere(&runtime, || drop(Vec::<u64>::with_capacity(usize::MAX)));
    });
}

/// For example, a hook may log through tasks and timers of the runtime whose worker panics.
#[test]
fn a_panic_hook_can_use_the_runtime() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(2);
        let logged = Arc::new(AtomicUsize::new(0));
        let hooks = Arc::new(AtomicUsize::new(0));
        let (log, called, handle) = (logged.clone(), hooks.clone(), runtime.handle().clone());
        panic::set_hook(Box::new(move |_| {
            called.fetch_add(1, SeqCst);
            let count = || {
                let log = log.clone();
                move || _ = log.fetch_add(1, SeqCst)
            };
            handle.after(Duration::ZERO, count());
            let noted = count();
            handle.spawn(async move {
                sleep(Duration::from_micros(10)).await;
                noted();
            });
            drop(handle.spawn_blocking(count()));
            let named = Timer::after(HOUR).name("hook").on(&handle).start(|| ());
            assert_eq!(named.cancel(), tourbillon::timer::Cancel::Cancelled);
            assert_eq!(handle.metrics().num_workers(), 2);
            // Use the thread's own context, if it has one.
            if let Ok(own) = Handle::try_current() {
                own.after(Duration::ZERO, count());
            } else {
                count()();
            }
        }));
        panic_everywhere(&runtime, || panic!("for the hook"));
        let _ = panic::take_hook();
        let expected = || 4 * hooks.load(SeqCst);
        eventually("all is logged", || logged.load(SeqCst) == expected());
        assert!(expected() > 400);
    });
}

/// A payload whose destructor panics with another payload of this type, to the given depth.
struct Nested(u32);

impl Drop for Nested {
    fn drop(&mut self) {
        if self.0 > 0 && !thread::panicking() {
            panic::panic_any(Nested(self.0 - 1));
        }
    }
}

#[test]
fn nested_panics_of_panic_payloads_are_contained() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(2);
        for depth in [1, 2, 5] {
            for _ in 0..10 {
                runtime
                    .handle()
                    .after(Duration::ZERO, move || panic::panic_any(Nested(depth)));
                // No caller takes the payload.
                drop(runtime.spawn(async move { panic::panic_any(Nested(depth)) }));
                let job = runtime.spawn_blocking(move || panic::panic_any(Nested(depth)));
                drop(job);
            }
            // Panics of blocking jobs without a join handle are not counted.
            eventually("they have panicked", || panics(&runtime) >= 20);
            assert_alive(&runtime);
            let job = runtime.spawn_blocking(|| 7);
            assert_eq!(runtime.block_on(job).unwrap(), 7);
        }
    });
}

/// Runs `body` in a child process. Checks that Rust aborts the child and that it does not hang.
fn ends_the_process<F: FnOnce()>(body: F) {
    let name = test_name::<F>();
    if is_child(name) {
        body();
        thread::sleep(2 * PATIENCE);
        unreachable!("it was to end here");
    }
    let _alarm = alarm();
    let ended = child(name).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("abort"), "{said}");
}

/// A destructor panics while a panic unwinds.
#[test]
fn a_panic_in_a_drop_during_unwinding_aborts_the_process() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the second, while the first unwinds");
        }
    }

    ends_the_process(|| {
        let runtime = crate::common::runtime(1);
        runtime.handle().after(Duration::ZERO, || {
            let _bomb = Bomb;
            panic!("the first");
        });
        thread::sleep(2 * PATIENCE);
    });
}

#[test]
fn a_panicking_panic_hook_aborts_the_process() {
    ends_the_process(|| {
        let runtime = crate::common::runtime(1);
        panic::set_hook(Box::new(|_| panic!("the hook panics")));
        runtime
            .handle()
            .after(Duration::ZERO, || panic!("the first"));
        thread::sleep(2 * PATIENCE);
    });
}

/// A thread of the program that waits for a job that panics is woken and goes on.
#[test]
fn waiters_of_panicking_jobs_are_woken() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(1);
        let used_up = use_up_descriptors();
        let (sender, receiver) = mpsc::channel::<()>();
        runtime.handle().after(Duration::from_millis(1), move || {
            let _sender = sender;
            panic!("before it has sent anything");
        });
        assert_eq!(
            receiver.recv_timeout(PATIENCE),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
        let limited = timeout(HOUR, runtime.spawn(async { panic!("within its limit") }));
        let ended = runtime.block_on(limited).unwrap();
        assert!(matches!(ended, Err::<(), _>(error) if error.is_panic()));
        on_worker(&runtime, || ());
        drop(used_up);
    });
}
