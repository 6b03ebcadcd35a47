//! A thread of a real-time class that waits for a shard's lock, which a normal thread of its core
//! holds.

use std::{
    fs, io,
    mem::zeroed,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::{Scripted, expire, skip};
use tourbillon_shards::{Flow, NEVER, Options, Reset, Timer};

/// How often the waiting thread sleeps before the holder releases the lock.
const SLEEPS: u64 = 10;
/// The processor time after which a waiting thread that has not slept never will. Ten sleeps take
/// 0.2 ms.
const RESTLESS: Duration = Duration::from_millis(500);

/// A thread, as another one sees it.
struct Thread {
    id: libc::pid_t,
    clock: libc::clockid_t,
}

impl Thread {
    fn current() -> Self {
        // SAFETY: both calls are about the calling thread. The second one writes a clock's number.
        unsafe {
            let mut clock = 0;
            assert_eq!(
                libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock),
                0
            );
            let id = libc::gettid();
            Self { id, clock }
        }
    }

    /// Returns the thread's processor time.
    fn processor_time(&self) -> Duration {
        // SAFETY: a timespec of zeros is valid, and the call writes one.
        let time = unsafe {
            let mut time: libc::timespec = zeroed();
            assert_eq!(libc::clock_gettime(self.clock, &mut time), 0);
            time
        };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Returns how often the thread has left its core to sleep. A yield does not count.
    fn sleeps(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/self/task/{}/status", self.id));
        let status = status.expect("the thread lives");
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("Linux counts them").trim().parse().unwrap()
    }
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
///
/// The holder counts the sleeps. Times would depend on who else wants the core: the longer the
/// holder waits for it, the more processor time the sleeps take together.
#[test]
#[cfg_attr(miri, ignore = "needs a scheduler")]
fn a_real_time_thread_lets_the_holder_of_its_core_run() {
    let shard = Scripted::shard(true);
    let holds = Arc::new(AtomicBool::new(false));
    let (waits, waiter) = mpsc::channel::<Thread>();
    let (ends, sleeps) = mpsc::channel();
    let waiter = Mutex::new(waiter);
    // The condition is asked under the lock, once its timer was moved later.
    let held = holds.clone();
    let condition = move || {
        held.store(true, SeqCst);
        // No thread comes where none can be of a real-time class.
        if let Ok(waiter) = waiter.lock().unwrap().recv() {
            let (begin, slept) = (waiter.processor_time(), waiter.sleeps());
            let sleeps = || waiter.sleeps() - slept;
            while sleeps() < SLEEPS && waiter.processor_time() - begin < RESTLESS {}
            ends.send(sleeps()).unwrap();
        }
        true
    };
    let options = Options {
        condition: Some(Box::new(condition)),
        ..Options::default()
    };
    let timer = Timer::build(&shard, 10, options, |_| Flow::Continue(()));
    timer.start(0);
    assert_eq!(timer.reset_at(NEVER - 1), Reset::Pending);
    let waited = thread::scope(|scope| {
        let shard = &shard;
        let waiter = scope.spawn(move || {
            stay_on_one_core()?;
            become_real_time()?;
            // A real-time thread that receives may wait for the sender by yields.
            while !holds.load(SeqCst) {
                thread::sleep(Duration::from_micros(100));
            }
            waits.send(Thread::current()).unwrap();
            shard.settle();
            io::Result::Ok(())
        });
        scope.spawn(|| {
            // If this fails, the waiter's call does, too.
            let _ = stay_on_one_core();
            assert!(expire(shard, 10, usize::MAX).is_empty());
        });
        waiter.join().unwrap()
    });
    match waited {
        Ok(()) => assert!(
            sleeps.recv().unwrap() >= SLEEPS,
            "the waiting thread yields"
        ),
        Err(error) => skip(&format!("no thread of a real-time class: {error}")),
    }
    drop(shard.close());
}
