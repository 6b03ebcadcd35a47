//! Signals that interrupt calls which wait, compared with those of the system.

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::thread::JoinHandleExt,
    },
    ptr,
    sync::{
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use futures_lite::AsyncWriteExt;
use tourbillon::time::sleep;
use tourbillon_sim::{Simulation, is_running, send_signal};

use super::handlers::{act, errno, function, mask, set};

/// How many signals the handler has got.
static COUNT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counts(_: i32) {
    COUNT.fetch_add(1, SeqCst);
}

/// A call that waits.
#[derive(Clone, Copy, Debug)]
enum Call {
    Poll,
    PollWithMask,
    PollOfNothing,
    Select,
    SelectWithMask,
    Epoll,
    Sleep,
    SleepUntil,
    Read,
    ReadWithLimit,
    Futex,
    FutexWithLimit,
    Flock,
    Join,
}

const CALLS: [Call; 14] = [
    Call::Poll,
    Call::PollWithMask,
    Call::PollOfNothing,
    Call::Select,
    Call::SelectWithMask,
    Call::Epoll,
    Call::Sleep,
    Call::SleepUntil,
    Call::Read,
    Call::ReadWithLimit,
    Call::Futex,
    Call::FutexWithLimit,
    Call::Flock,
    Call::Join,
];

/// What a call waits for, and who makes it come.
struct Event {
    near: std::net::TcpStream,
    far: std::net::TcpStream,
    word: AtomicU32,
    /// Two open files of one file, of which the first one has a lock.
    files: [fs::File; 2],
    ends: AtomicBool,
}

impl Event {
    fn new(path: &str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        // The file of an earlier event keeps its locks.
        _ = fs::remove_file(path);
        fs::write(path, b"").unwrap();
        let files = [(); 2].map(|()| fs::File::open(path).unwrap());
        // SAFETY: the call takes numbers.
        unsafe { libc::flock(files[0].as_raw_fd(), libc::LOCK_EX) };
        Self {
            near,
            far,
            word: AtomicU32::new(0),
            files,
            ends: AtomicBool::new(false),
        }
    }

    /// Ends all calls that wait for it.
    fn come(&self) {
        (&self.far).write_all(b"1").unwrap();
        self.word.store(1, SeqCst);
        // SAFETY: the calls take numbers, and the address of a word that lives.
        unsafe {
            let at = self.word.as_ptr();
            libc::syscall(
                libc::SYS_futex,
                at,
                libc::FUTEX_WAKE,
                i32::MAX,
                0_usize,
                0_usize,
                0,
            );
            libc::flock(self.files[0].as_raw_fd(), libc::LOCK_UN);
        }
        self.ends.store(true, SeqCst);
    }
}

const LONG: libc::timespec = libc::timespec {
    tv_sec: 1_000,
    tv_nsec: 0,
};

fn no<T>() -> *mut T {
    ptr::null_mut()
}

/// Blocks the signal but for a wait with the set that this gets.
fn unblocked(wait: impl FnOnce(*const libc::sigset_t) -> i32) -> i64 {
    mask(libc::SIG_BLOCK, &[libc::SIGUSR1]);
    let result = wait(&set(&[]));
    let error = errno();
    mask(libc::SIG_UNBLOCK, &[libc::SIGUSR1]);
    // SAFETY: the pointer is valid for the calling thread.
    unsafe { *libc::__errno_location() = error };
    result.into()
}

/// Makes a call. Returns whether it succeeded, or its error.
fn make(call: Call, event: &'static Event) -> String {
    let near = event.near.as_raw_fd();
    let mut entry = libc::pollfd {
        fd: near,
        events: libc::POLLIN,
        revents: 0,
    };
    let futex = |limit: *const libc::timespec| {
        let at = event.word.as_ptr();
        // SAFETY: the word lives, and the limit is a time or null.
        unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAIT, 0, limit, 0_usize, 0) }
    };
    // SAFETY: the calls get what they ask for.
    let result = unsafe {
        match call {
            Call::Poll => libc::poll(&mut entry, 1, 1_000_000).into(),
            Call::PollWithMask => unblocked(|none| libc::ppoll(&mut entry, 1, &LONG, none)),
            Call::PollOfNothing => unblocked(|none| libc::ppoll(no(), 0, &LONG, none)),
            Call::SelectWithMask => {
                unblocked(|none| libc::pselect(0, no(), no(), no(), &LONG, none))
            }
            Call::Select => {
                let mut left = libc::timeval {
                    tv_sec: 1_000,
                    tv_usec: 0,
                };
                let result = libc::select(0, no(), no(), no(), &mut left);
                let error = errno();
                assert!(left.tv_sec < 1_000 && left.tv_sec > 900, "{}", left.tv_sec);
                *libc::__errno_location() = error;
                result.into()
            }
            Call::Epoll => {
                let instance = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
                let mut watched = libc::epoll_event {
                    events: libc::EPOLLIN as u32,
                    u64: 0,
                };
                let at = instance.as_raw_fd();
                libc::epoll_ctl(at, libc::EPOLL_CTL_ADD, near, &mut watched);
                libc::epoll_wait(at, &mut watched, 1, -1).into()
            }
            Call::Sleep => {
                let mut left = LONG;
                let result = libc::nanosleep(&LONG, &mut left);
                let error = errno();
                assert!(left.tv_sec < 1_000 && left.tv_sec > 900, "{}", left.tv_sec);
                *libc::__errno_location() = error;
                result.into()
            }
            Call::SleepUntil => {
                let mut until = LONG;
                libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut until);
                until.tv_sec += 1_000;
                let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
                let error = libc::clock_nanosleep(clock, flags, &until, ptr::null_mut());
                *libc::__errno_location() = error;
                -i64::from(error != 0)
            }
            Call::Read | Call::ReadWithLimit => {
                let limit = matches!(call, Call::ReadWithLimit).then(|| Duration::from_secs(1_000));
                event.near.set_read_timeout(limit).unwrap();
                libc::recv(near, [0_u8].as_mut_ptr().cast(), 1, 0) as i64
            }
            Call::Futex => futex(ptr::null()),
            Call::FutexWithLimit => futex(&LONG),
            Call::Flock => libc::flock(event.files[1].as_raw_fd(), libc::LOCK_EX).into(),
            Call::Join => {
                let waits = || {
                    while !event.ends.load(SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                };
                let other = thread::spawn(move || {
                    // The signal is for the thread that waits.
                    mask(libc::SIG_BLOCK, &[libc::SIGUSR1]);
                    waits();
                });
                -i64::from(other.join().is_err())
            }
        }
    };
    match result {
        // A futex may wake for a word that has changed meanwhile.
        0.. => "done".into(),
        _ if errno() == libc::EAGAIN => "done".into(),
        _ => format!("error {}", errno()),
    }
}

/// Returns whether a thread of the real process sleeps.
fn sleeps(thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('S'));
    state.unwrap_or(false)
}

/// Sends signals to a thread that makes a call, and lets its event come after some of them. Returns
/// how the call ended. `is_ready` says whether a thread may wait by now.
fn interrupt(call: Call, flags: i32, path: &str, is_ready: fn(i32) -> bool) -> String {
    _ = act(libc::SIGUSR1, function(counts), flags, &[]);
    let event: &'static Event = Box::leak(Box::new(Event::new(path)));
    static THREAD: AtomicI32 = AtomicI32::new(0);
    THREAD.store(0, SeqCst);
    let (send, ended) = mpsc::channel();
    let caller = thread::spawn(move || {
        // SAFETY: the call has no arguments.
        THREAD.store(unsafe { libc::gettid() }, SeqCst);
        send.send(make(call, event)).unwrap();
    });
    let handle = caller.as_pthread_t();
    let begin = COUNT.load(SeqCst);
    let result = loop {
        if let Ok(result) = ended.try_recv() {
            break result;
        }
        if COUNT.load(SeqCst) >= begin + 5 {
            event.come();
            break ended.recv().unwrap();
        }
        if is_ready(THREAD.load(SeqCst)) {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(handle, libc::SIGUSR1) };
        }
        thread::sleep(Duration::from_millis(2));
    };
    event.come();
    caller.join().unwrap();
    result
}

/// Interrupts all calls, with and without `SA_RESTART`.
fn interrupt_all(path: &str, is_ready: fn(i32) -> bool) {
    for call in CALLS {
        let interrupted = format!("error {}", libc::EINTR);
        let expected = match call {
            Call::Join => ["done", "done"],
            Call::Read | Call::Futex | Call::Flock => [&*interrupted, "done"],
            _ => [&*interrupted, &*interrupted],
        };
        for (flags, expected) in [0, libc::SA_RESTART].into_iter().zip(expected) {
            let result = interrupt(call, flags, path, is_ready);
            assert_eq!(result, expected, "{call:?} with flags {flags:x}");
        }
    }
}

/// What the simulation is compared with.
#[test]
fn handlers_interrupt_calls_of_the_system() {
    let path = std::env::temp_dir().join(format!("tourbillon-sim-{}", std::process::id()));
    interrupt_all(path.to_str().unwrap(), sleeps);
    fs::remove_file(path).unwrap();
}

#[tourbillon_sim::test(seeds = 100)]
fn handlers_interrupt_calls(sim: &mut Simulation) {
    sim.disk("/data", tourbillon_sim::Disk::new());
    sim.host("a", || async {
        // Faults end waits, too.
        tourbillon_sim::raw::settle();
        interrupt_all("/data/file", |_| true);
    });
}

/// The wait of `ppoll` is for that: a signal that has come before ends it, too.
#[tourbillon_sim::test(seeds = 200)]
fn a_signal_comes_before_a_wait(sim: &mut Simulation) {
    sim.disk("/data", tourbillon_sim::Disk::new());
    sim.host("a", || async {
        _ = act(libc::SIGUSR1, function(counts), libc::SA_RESTART, &[]);
        // The new thread blocks it, too.
        mask(libc::SIG_BLOCK, &[libc::SIGUSR1]);
        let event: &'static Event = Box::leak(Box::new(Event::new("/data/file")));
        let caller = thread::spawn(move || make(Call::PollWithMask, event));
        if tourbillon_sim::random() % 2 == 0 {
            thread::sleep(Duration::from_nanos(tourbillon_sim::random() % 5_000));
        }
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(caller.as_pthread_t(), libc::SIGUSR1) };
        assert_eq!(caller.join().unwrap(), format!("error {}", libc::EINTR));
    });
}

/// A signal that `ppoll` keeps back ends the process when the call is over, and nothing runs then.
#[tourbillon_sim::test(seeds = 50, workers = 1)]
fn a_signal_ends_a_process_behind_a_wait(sim: &mut Simulation) {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    sim.host("server", || async {
        tourbillon_sim::raw::settle();
        // The worker takes no signal, and a thread of the program that it starts takes none either.
        let blocks = tourbillon::spawn(async { mask(libc::SIG_BLOCK, &[libc::SIGTERM]) });
        blocks.await.unwrap();
        let listener = std::net::TcpListener::bind("0.0.0.0:7")?;
        let (stream, _) = listener.accept()?;
        let mut entry = libc::pollfd {
            fd: stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let all: Vec<i32> = (1..32).collect();
        // SAFETY: the call gets an entry, a time and a set.
        unsafe { libc::ppoll(&mut entry, 1, &LONG, &set(&all)) };
        GOES_ON.store(true, SeqCst);
        thread::sleep(Duration::from_millis(1));
        GOES_ON.store(true, SeqCst);
        io::Result::Ok(())
    });
    sim.client("client", || async {
        let mut stream = crate::network::connect("server", 7).await;
        sleep(Duration::from_secs(1)).await;
        send_signal("server", libc::SIGTERM);
        sleep(Duration::from_secs(1)).await;
        assert!(is_running("server"), "no thread takes the signal");
        stream.write_all(b"1").await?;
        sleep(Duration::from_secs(1)).await;
        assert!(!is_running("server") && !GOES_ON.load(SeqCst));
        io::Result::Ok(())
    });
}
