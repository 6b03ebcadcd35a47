//! A shard in an event loop of one's own: a bare `poll(2)` over a pipe.
//!
//! The loop sleeps until the shard's next deadline. Other threads arm, move and cancel timers
//! without a lock; if the loop would sleep past a new deadline, the shard has it woken by a byte in
//! the pipe.
//!
//! ```text
//! cargo run -p tourbillon-shards --example poll_loop
//! ```

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, FromRawFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, ThreadId},
    time::Instant,
};

use tourbillon_shards::{
    Cancel, Due, Flow, NEVER, Name, Names, Notice, Options, Outcome, Owner, Ran, Shard, Timer,
    Tolerance,
};

const MS: u64 = 1_000_000;

/// The event loop that owns the shard.
struct Loop {
    start: Instant,
    thread: ThreadId,
    /// The writing end of the pipe.
    waker: File,
    wakes: AtomicU32,
    /// Outcomes that the loop has yet to deliver.
    notices: Mutex<Vec<Notice<Loop>>>,
    done: AtomicBool,
}

impl Loop {
    /// Returns the time of the shard's clock: ns since the start, rounded down, so that no timer is
    /// early.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Owner for Loop {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        // If the pipe is full, the loop wakes anyway.
        let _ = (&self.waker).write(&[0]);
    }

    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }

    /// Queues an outcome, and wakes the loop, which runs the callback.
    fn deliver(&self, notice: Notice<Self>) {
        let mut notices = self.notices.lock().expect("nothing panics under it");
        notices.push(notice);
        drop(notices);
        // The byte stays in the pipe until the loop reads it, so this wake-up cannot be lost.
        self.wake();
    }
}

/// Returns the reading end and the writing end of a pipe. Neither blocks.
fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptors are open, and nothing else owns them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Sleeps until `until`, in ns, or until another thread wakes the loop. `poll(2)` counts in ms. The
/// wait is rounded up, so that the loop does not spin; `ppoll(2)` or a timerfd would be more
/// precise.
fn sleep(wakes: &mut File, now: u64, until: u64) -> io::Result<()> {
    let millis = match until {
        NEVER => -1,
        _ => until.saturating_sub(now).div_ceil(MS).min(i32::MAX as u64) as i32,
    };
    // A larger event loop watches more descriptors.
    let mut watched = libc::pollfd {
        fd: wakes.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, which lives through the call.
    let ready = unsafe { libc::poll(&mut watched, 1, millis) };
    if ready > 0 {
        // Read up to 64 bytes: one turn of the loop serves all of them.
        let _bytes = wakes.read(&mut [0; 64])?;
    }
    Ok(())
}

/// Runs the loop until it is done.
fn run(shard: &Shard<Loop>, wakes: &mut File) -> io::Result<()> {
    let owner = shard.owner();
    let mut due: Vec<Due<Loop>> = Vec::new();
    while !owner.done.load(Ordering::Acquire) {
        shard.expire(owner.now(), usize::MAX, &mut due);
        for timer in due.drain(..) {
            if let Ran::Panicked(_) = timer.run(|| owner.now()) {
                eprintln!("a callback panicked; the loop goes on");
            }
        }
        tell(owner);
        // `None` means that an update came meanwhile: expire once more before the sleep.
        if let Some(until) = shard.sleep_until() {
            let slept = sleep(wakes, owner.now(), until);
            shard.resume();
            slept?;
        }
    }
    Ok(())
}

/// Runs the callbacks of the queued outcomes.
fn tell(owner: &Loop) {
    let mut notices = owner.notices.lock().expect("nothing panics under it");
    let taken = std::mem::take(&mut *notices);
    drop(notices);
    for notice in taken {
        notice.run();
    }
}

fn main() -> io::Result<()> {
    let (mut wakes, waker) = pipe()?;
    let shard = Arc::new(Shard::new(Loop {
        start: Instant::now(),
        thread: thread::current().id(),
        waker,
        wakes: AtomicU32::new(0),
        notices: Mutex::default(),
        done: AtomicBool::new(false),
    }));

    // A timer of the loop's own thread goes straight into the store. This one need not be punctual,
    // so it seldom wakes the loop for itself.
    let ticks = Arc::new(AtomicU32::new(0));
    let count = ticks.clone();
    let tolerant = Options {
        recurring: true,
        tolerance: Tolerance::new(2 * MS),
        ..Options::default()
    };
    let tick = Timer::build(&shard, 5 * MS, tolerant, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Flow::Continue(())
    });
    tick.start(shard.owner().now());

    // Any thread can find timers by their names. The sessions expire in an hour, but this program
    // ends them before.
    let names = Arc::new(Names::new(4));
    for _ in 0..3 {
        let session = Options {
            name: Some(Name::new(&names, "session")),
            ..Options::default()
        };
        Timer::build(&shard, 3_600_000 * MS, session, |_| {
            unreachable!("it is cancelled")
        })
        .start(shard.owner().now());
    }

    // A request that is answered in time, or given up. In both cases, its callback gets the
    // outcome.
    let answered = Arc::new(Mutex::new(None));
    let answer = answered.clone();
    let told = Options {
        outcome: true,
        ..Options::default()
    };
    let request = Timer::build(&shard, 60_000 * MS, told, move |how| {
        *answer.lock().expect("nothing panics under it") = Some(how);
        Flow::Break(how)
    });
    request.start(shard.owner().now());

    // Timers of another thread go through the inbox.
    let home = shard.clone();
    let table = names.clone();
    let remote_thread = thread::spawn(move || {
        let ran = Arc::new(AtomicU32::new(0));
        for delay in (1..=10).rev() {
            let (count, own) = (ran.clone(), Arc::downgrade(&home));
            let wait = delay * MS;
            Timer::once(&home, home.owner().now() + wait, wait, move || {
                if count.fetch_add(1, Ordering::Relaxed) == 9 {
                    let home = own.upgrade().expect("the loop that runs this has it");
                    home.owner().done.store(true, Ordering::Release);
                }
            });
        }
        assert_eq!(table.cancel("session", usize::MAX), 3);
        // The answer has come, so cancel the request. The loop calls its callback with *cancelled*.
        assert_eq!(request.cancel(), Cancel::Cancelled);
        let late = Timer::once(&home, NEVER, NEVER, || unreachable!("it is cancelled"));
        late.refresh(home.owner().now());
        assert_eq!(late.cancel(), Cancel::Cancelled);
    });

    run(&shard, &mut wakes)?;

    remote_thread.join().expect("the thread does not panic");
    assert_eq!(tick.cancel(), Cancel::Cancelled);
    // Close the shard: until then, its timers hold references to it. The remaining timers end here.
    // Then deliver the outcomes that are still queued.
    drop(shard.close());
    tell(shard.owner());
    let answered = answered.lock().expect("nothing panics under it").take();
    assert_eq!(answered, Some(Outcome::Cancelled));
    assert_eq!(names.count("session"), 0);
    println!(
        "10 timers from another thread, {} ticks, 3 sessions ended, one request answered, woken {} times",
        ticks.load(Ordering::Relaxed),
        shard.owner().wakes.load(Ordering::Relaxed),
    );
    Ok(())
}

#[test]
fn ends_well() -> io::Result<()> {
    main()
}
