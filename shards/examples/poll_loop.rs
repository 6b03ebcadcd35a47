//! A shard in an event loop of one's own: a bare `poll(2)` over a socket pair.
//!
//! The loop sleeps until the shard's next deadline. Other threads arm, move and cancel timers without
//! a lock; if the loop would sleep past a new deadline, the shard has it woken by a byte in the socket.
//!
//! ```text
//! cargo run -p tourbillon-shards --example poll_loop
//! ```

use std::{
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, ThreadId},
    time::Instant,
};

use tourbillon_shards::{Cancel, NEVER, Owner, Searchers, Shard, Timer};

/// What the shard knows of the loop that owns it.
struct Loop {
    start: Instant,
    thread: ThreadId,
    waker: UnixStream,
    wakes: AtomicU32,
}

impl Loop {
    /// The clock of the shard: ns since the start. Rounded down, so that no timer is early.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Owner for Loop {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        // A full socket wakes as well.
        let _ = (&self.waker).write(&[0]);
    }

    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }
}

/// Sleeps until the moment comes, in ns, or somebody wakes the loop. `poll(2)` counts in ms, and
/// rounding up is what keeps it from spinning; `ppoll(2)` or a timerfd would be more precise.
fn sleep(wakes: &mut UnixStream, now: u64, until: u64) -> io::Result<()> {
    let millis = match until {
        NEVER => -1,
        _ => until
            .saturating_sub(now)
            .div_ceil(1_000_000)
            .min(i32::MAX as u64) as i32,
    };
    let mut watched = libc::pollfd {
        fd: wakes.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, which lives through the call.
    let ready = unsafe { libc::poll(&mut watched, 1, millis) };
    if ready > 0 {
        // However many there were.
        let _bytes = wakes.read(&mut [0; 64])?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let (mut reader, writer) = UnixStream::pair()?;
    writer.set_nonblocking(true)?;
    let shard = Arc::new(Shard::new(Loop {
        start: Instant::now(),
        thread: thread::current().id(),
        waker: writer,
        wakes: AtomicU32::new(0),
    }));
    let ran = Arc::new(AtomicU32::new(0));
    const MS: u64 = 1_000_000;

    // From the loop's own thread: straight into the store.
    let ticks = Arc::new(AtomicU32::new(0));
    let count = ticks.clone();
    let tick = Timer::recurring(&shard, 5 * MS, 5 * MS, move || {
        count.fetch_add(1, Ordering::Relaxed);
    });

    // From another thread: through the inbox.
    let (home, count) = (shard.clone(), ran.clone());
    let stranger = thread::spawn(move || {
        for delay in (1..=10).rev() {
            let count = count.clone();
            let wait = delay * MS;
            Timer::once(&home, home.owner().now() + wait, wait, move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        let late = Timer::once(&home, NEVER, NEVER, || unreachable!("it is cancelled"));
        late.refresh(home.owner().now());
        assert_eq!(late.cancel(), Cancel::Cancelled);
    });

    // The loop. It has no peers that search for work, and no work but timers.
    let alone = Searchers::new(1);
    let mut due = Vec::new();
    while ran.load(Ordering::Relaxed) < 10 {
        shard.expire(shard.owner().now(), usize::MAX, &mut due);
        for timer in due.drain(..) {
            timer.run(|| shard.owner().now());
        }
        let mut slept = Ok(());
        shard.park(
            &alone,
            false,
            || ran.load(Ordering::Relaxed) == 10,
            |until| slept = sleep(&mut reader, shard.owner().now(), until),
        );
        slept?;
    }
    stranger.join().expect("the thread does not panic");
    assert_eq!(tick.cancel(), Cancel::Cancelled);
    // Its timers refer to the shard until it is closed.
    shard.close();
    println!(
        "10 timers from another thread, {} ticks, woken {} times",
        ticks.load(Ordering::Relaxed),
        shard.owner().wakes.load(Ordering::Relaxed),
    );
    Ok(())
}
