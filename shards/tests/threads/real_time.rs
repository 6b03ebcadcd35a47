//! A thread of a real-time class that waits for a shard's lock, which a normal thread of its core
//! holds.

use std::{
    io,
    mem::zeroed,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::common::{Scripted, expire, skip};
use tourbillon_shards::{Flow, NEVER, Options, Reset, Timer};

/// How long the holder computes under the lock.
const COMPUTES: Duration = Duration::from_millis(20);

/// Returns the processor time of the calling thread.
fn processor_time() -> Duration {
    // SAFETY: a timespec of zeros is valid, and the call writes one.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        assert_eq!(
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time),
            0
        );
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Keeps the calling thread on one core, which is the same for all callers.
fn stay_on_one_core() -> io::Result<()> {
    // SAFETY: a set of zeros is valid. Both calls get its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        let size = size_of_val(&set);
        if libc::sched_getaffinity(0, size, &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        let first = (0..libc::CPU_SETSIZE as usize).find(|&core| libc::CPU_ISSET(core, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first.expect("a thread has a core"), &mut set);
        libc::sched_setaffinity(0, size, &set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes the calling thread one of the class `SCHED_FIFO`.
fn become_real_time() -> io::Result<()> {
    // SAFETY: parameters of zeros are valid, and the call reads them.
    let result = unsafe {
        let mut param: libc::sched_param = zeroed();
        param.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &param)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The waiting thread sleeps in the end, and so lets the holder compute. A thread that yields takes
/// all of the core, or as much as the system lets real-time threads have.
#[test]
#[cfg_attr(miri, ignore = "needs a scheduler")]
fn a_real_time_thread_lets_the_holder_of_its_core_run() {
    let shard = Scripted::shard(true);
    let holds = Arc::new(AtomicBool::new(false));
    // The condition is asked under the lock, once its timer was moved later.
    let condition = {
        let holds = holds.clone();
        move || {
            holds.store(true, SeqCst);
            let begin = processor_time();
            while processor_time() - begin < COMPUTES {}
            true
        }
    };
    let options = Options {
        condition: Some(Box::new(condition)),
        ..Options::default()
    };
    let timer = Timer::build(&shard, 10, None, options, |_| Flow::Continue(()));
    timer.start(0);
    assert_eq!(timer.reset_at(NEVER - 1), Reset::Waiting);
    let waited = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            stay_on_one_core()?;
            become_real_time()?;
            while !holds.load(SeqCst) {
                thread::sleep(Duration::from_micros(100));
            }
            let begin = processor_time();
            shard.settle();
            io::Result::Ok(processor_time() - begin)
        });
        scope.spawn(|| {
            // If this fails, the waiter's call does, too.
            let _ = stay_on_one_core();
            assert!(expire(&shard, 10, usize::MAX).is_empty());
        });
        waiter.join().unwrap()
    });
    match waited {
        Ok(waited) => assert!(waited < COMPUTES, "the waiting thread took {waited:?}"),
        Err(error) => skip(&format!("no thread of a real-time class: {error}")),
    }
    drop(shard.close());
}
