//! A worker of a real-time class whose shard is locked by a normal thread of its core.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

use tourbillon_shards::{Options, Reset, Timer};

use crate::{runtime::Builder, sys, util::nanos::nanos};

/// How long the holder of the lock computes, in ns.
const COMPUTES: u64 = 20_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Makes the calling thread one of the class `SCHED_FIFO` on the first core.
fn become_real_time() -> bool {
    let priority: libc::c_int = 1;
    // SAFETY: `sched_param` begins with the priority, the only part that the kernel reads.
    let set = unsafe {
        let (call, class) = (libc::SYS_sched_setscheduler, libc::SCHED_FIFO);
        libc::syscall(call, 0, class, &raw const priority)
    };
    sys::cpu::pin(0) && set == 0
}

/// The worker sleeps in the end, and so lets the holder compute. If it only yielded, it would take
/// all of its core, or as much as the system lets real-time threads have.
#[test]
fn a_real_time_worker_lets_the_holder_of_its_shard_run() {
    let is_real_time = Arc::new(AtomicBool::new(false));
    let became = is_real_time.clone();
    let runtime = Builder::new()
        .worker_threads(1)
        .on_thread_start(move || became.store(become_real_time(), SeqCst))
        .build()
        .unwrap();
    let begin = runtime.block_on(runtime.spawn(async { sys::clock::thread_cpu() }));
    if !is_real_time.load(SeqCst) {
        // `tests/common` is not at hand here.
        eprintln!("skipped: no thread of a real-time class");
        return;
    }
    let (sender, ran) = mpsc::channel();
    let handle = runtime.handle().clone();
    let shared = handle.shared().clone();
    thread::spawn(move || {
        assert!(sys::cpu::pin(0));
        let shard = shared.workers.load()[0].clone();
        let now = shared.clock.now();
        // The condition is asked under the lock, once its timer was moved later. It makes a timer
        // due: the worker is denied the lock meanwhile.
        let condition = move || {
            let sender = sender.clone();
            handle.after(Duration::ZERO, move || {
                let _ = sender.send(sys::clock::thread_cpu());
            });
            let begin = sys::clock::thread_cpu();
            while sys::clock::thread_cpu() - begin < COMPUTES {}
            true
        };
        let options = Options {
            condition: Some(Box::new(condition)),
            ..Options::default()
        };
        let call = |_| ControlFlow::Continue(());
        let timer = Timer::build(&shard, 1, Some(now + nanos(HOUR)), options, call);
        timer.start(now);
        // Into the store.
        shard.settle();
        assert_eq!(timer.reset_at(now + nanos(3 * HOUR)), Reset::Waiting);
        shard.expire(now + nanos(2 * HOUR), usize::MAX, &mut Vec::new());
        timer.cancel();
    })
    .join()
    .unwrap();
    let took = ran.recv().unwrap() - begin.unwrap();
    assert!(took < COMPUTES, "the worker took {took} ns");
}
