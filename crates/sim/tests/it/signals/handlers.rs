//! Handlers and masks, compared with those of the system.

use std::{
    fs,
    io::{self, Write},
    mem::{self, MaybeUninit},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::thread::JoinHandleExt,
    },
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use futures_lite::AsyncWriteExt;
use tourbillon::time::sleep;
use tourbillon_sim::{Simulation, assert_sometimes, is_running, pause, restart, send_signal};

/// What the handlers saw.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set(numbers: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call writes the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        set.assume_init()
    }
}

fn numbers(set: &libc::sigset_t) -> Vec<i32> {
    // SAFETY: it is a set.
    let is_member = |number: &i32| unsafe { libc::sigismember(set, *number) } == 1;
    (1..32).filter(is_member).collect()
}

/// Changes what the calling thread blocks. Returns what it did before.
fn mask(how: i32, change: &[i32]) -> Vec<i32> {
    let mut before = set(&[]);
    // SAFETY: both are sets.
    let result = unsafe { libc::pthread_sigmask(how, &set(change), &mut before) };
    assert_eq!(result, 0);
    numbers(&before)
}

fn masked() -> Vec<i32> {
    mask(libc::SIG_BLOCK, &[])
}

/// Sets what happens with a signal. Returns the handler before.
fn act(number: i32, handler: usize, flags: i32, blocks: &[i32]) -> Result<usize, i32> {
    // SAFETY: all bytes may be zero, and the handlers of this file are what their flags say.
    unsafe {
        let mut new: libc::sigaction = mem::zeroed();
        (new.sa_sigaction, new.sa_flags, new.sa_mask) = (handler, flags, set(blocks));
        let mut old = mem::zeroed();
        match libc::sigaction(number, &new, &mut old) {
            0 => Ok(old.sa_sigaction),
            _ => Err(errno()),
        }
    }
}

fn raise(number: i32) -> i32 {
    // SAFETY: the call takes a number.
    unsafe { libc::raise(number) }
}

/// Notes what it sees, and raises a signal that it may block.
extern "C" fn notes(number: i32) {
    let nested = number == libc::SIGUSR1;
    SEEN.lock()
        .unwrap()
        .push(format!("{number} blocks {:?}", masked()));
    if nested {
        raise(libc::SIGUSR2);
    }
    SEEN.lock().unwrap().push(format!("{number} ends"));
}

extern "C" fn informed(number: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the caller passes what it knows of the signal.
    let signal = unsafe { (*info).si_signo };
    SEEN.lock()
        .unwrap()
        .push(format!("{number} is informed of {signal}"));
}

extern "C" fn counts(_: i32) {
    COUNT.fetch_add(1, SeqCst);
}

fn function(handler: extern "C" fn(i32)) -> usize {
    handler as *const () as usize
}

/// Raises signals on the calling thread, and returns what happened.
fn use_handlers() -> Vec<String> {
    let (usr1, usr2) = (libc::SIGUSR1, libc::SIGUSR2);
    let tell = |text: String| SEEN.lock().unwrap().push(text);
    tell(format!("{:?}", act(libc::SIGKILL, function(notes), 0, &[])));
    tell(format!("{:?}", act(libc::SIGSTOP, libc::SIG_IGN, 0, &[])));
    tell(format!("{:?}", act(0, function(notes), 0, &[])));
    tell(format!("{:?}", act(libc::SIGPIPE, libc::SIG_IGN, 0, &[])));
    tell(format!(
        "{:?}",
        act(usr1, function(notes), 0, &[libc::SIGTERM])
    ));
    tell(format!(
        "{}",
        act(usr2, function(notes), 0, &[]) == Ok(libc::SIG_DFL)
    ));
    // SAFETY: the pointer is valid for this thread.
    unsafe { *libc::__errno_location() = 5 };
    let raised = raise(usr1);
    tell(format!(
        "raised {raised}, error {}, blocks {:?}",
        errno(),
        masked()
    ));
    // The handler blocks the other signal until it ends.
    tell(format!(
        "{}",
        act(usr1, function(notes), 0, &[usr2]) == Ok(function(notes))
    ));
    raise(usr1);
    _ = act(usr2, function(notes), libc::SA_NODEFER, &[]);
    raise(usr2);
    _ = act(usr2, function(notes), libc::SA_RESETHAND, &[]);
    raise(usr2);
    tell(format!("{:?}", act(usr2, libc::SIG_IGN, 0, &[])));
    raise(usr2);
    let handler = informed as *const () as usize;
    _ = act(usr2, handler, libc::SA_SIGINFO, &[]);
    raise(usr2);

    // Signals that are blocked wait, each once.
    tell(format!(
        "blocked {:?}",
        mask(libc::SIG_BLOCK, &[usr1, usr2, libc::SIGKILL])
    ));
    for _ in 0..3 {
        raise(usr2);
    }
    raise(usr1);
    let mut pending = set(&[]);
    // SAFETY: it is a set.
    unsafe { libc::sigpending(&mut pending) };
    tell(format!("pending {:?}", numbers(&pending)));
    let inherited = thread::spawn(masked).join().unwrap();
    tell(format!("inherited {inherited:?}"));
    tell(format!("unblocks {:?}", mask(libc::SIG_UNBLOCK, &[usr2])));
    tell("unblocked one".into());
    // What is ignored is pending no more.
    _ = act(usr1, libc::SIG_IGN, 0, &[]);
    mask(libc::SIG_SETMASK, &[]);
    tell("unblocked all".into());
    raise(libc::SIGCHLD);
    raise(libc::SIGWINCH);
    raise(libc::SIGCONT);
    // SAFETY: the calls take numbers.
    let exists = unsafe {
        (
            libc::kill(libc::getpid(), 0),
            libc::raise(0),
            libc::raise(-1),
        )
    };
    tell(format!("{exists:?}"));
    mem::take(&mut SEEN.lock().unwrap())
}

#[tourbillon_sim::test(seeds = 50)]
fn handlers_do_what_those_of_the_system_do(sim: &mut Simulation) {
    // This thread is not part of the simulation.
    let on_linux = use_handlers();
    sim.host("a", move || {
        let on_linux = on_linux.clone();
        async move { assert_eq!(use_handlers(), on_linux) }
    });
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

/// Returns what a signal does to a process of the system that has no handler: it ends, stands
/// still, or goes on.
fn default_action(number: i32) -> &'static str {
    // SAFETY: the child makes system calls alone. It has the actions of a process that begins.
    unsafe {
        match libc::fork() {
            0 => {
                // Linux stops no process by `SIGTSTP` whose group has no parent.
                libc::setpgid(0, 0);
                if number != libc::SIGPIPE {
                    libc::signal(number, libc::SIG_DFL);
                }
                libc::kill(libc::getpid(), number);
                libc::_exit(0)
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, libc::WUNTRACED), child);
                if libc::WIFSTOPPED(status) {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &mut status, 0);
                    return "stands still";
                }
                ["goes on", "ends"][usize::from(libc::WIFSIGNALED(status))]
            }
        }
    }
}

#[tourbillon_sim::test(seeds = 8)]
fn signals_without_a_handler_do_what_they_do_on_linux(sim: &mut Simulation) {
    static TICKS: AtomicUsize = AtomicUsize::new(0);
    let on_linux: Vec<_> = (1..32).map(default_action).collect();
    sim.host("server", || async {
        loop {
            sleep(Duration::from_millis(1)).await;
            TICKS.fetch_add(1, SeqCst);
        }
    });
    sim.client("client", move || {
        let on_linux = on_linux.clone();
        async move {
            for (number, on_linux) in (1..32).zip(on_linux) {
                send_signal("server", number);
                let before = TICKS.load(SeqCst);
                sleep(Duration::from_millis(20)).await;
                let does = match (is_running("server"), TICKS.load(SeqCst) > before) {
                    (false, _) => "ends",
                    (true, false) => "stands still",
                    (true, true) => "goes on",
                };
                assert_eq!(does, on_linux, "signal {number}");
                send_signal("server", libc::SIGCONT);
                restart("server");
            }
        }
    });
}

/// A signal that is pending is not queued again.
#[tourbillon_sim::test(seeds = 200)]
fn two_signals_may_be_one(sim: &mut Simulation) {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: i32) {
        HANDLED.fetch_add(1, SeqCst);
    }
    sim.host("server", || async {
        _ = act(libc::SIGUSR1, function(handler), 0, &[]);
        sleep(Duration::from_secs(1_000)).await;
    });
    sim.client("client", || async {
        sleep(Duration::from_secs(1)).await;
        send_signal("server", libc::SIGUSR1);
        send_signal("server", libc::SIGUSR1);
        sleep(Duration::from_secs(1)).await;
        let handled = HANDLED.load(SeqCst);
        assert!([1, 2].contains(&handled), "{handled}");
        assert_sometimes!(
            handled == 1,
            "the second one comes while the first one is pending"
        );
        assert_sometimes!(handled == 2, "the second one comes later");
        // No thread of the server takes the first one before the last one comes.
        pause("server", Duration::from_secs(1));
        for _ in 0..5 {
            send_signal("server", libc::SIGUSR1);
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!(HANDLED.load(SeqCst), handled + 1);
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

/// A program that reads memory which it has not ends the seed, as every such fault does.
#[test]
fn a_real_fault_ends_the_seed() {
    let mut sim = Simulation::new(1);
    sim.host("a", || async {
        let address = std::hint::black_box(ptr::without_provenance::<u8>(1));
        // SAFETY: there is nothing at this address: the system ends the process.
        _ = unsafe { address.read_volatile() };
    });
    let failure = sim.run().unwrap_err().to_string();
    assert!(failure.contains("signal 11 ended it"), "{failure}");
}

/// A signal for a process goes to a thread that does not block it, and waits as long as there is
/// none.
#[tourbillon_sim::test(seeds = 150)]
fn a_signal_finds_a_thread(sim: &mut Simulation) {
    static TAKER: AtomicUsize = AtomicUsize::new(0);
    fn own() -> usize {
        // SAFETY: the call has no arguments.
        unsafe { libc::pthread_self() as usize }
    }
    extern "C" fn handler(_: i32) {
        assert_eq!(TAKER.swap(own(), SeqCst), 0);
    }
    sim.host("a", || async {
        // The workers have begun before, and the process has no other handler.
        _ = act(libc::SIGUSR1, function(handler), 0, &[]);
        let taker = || {
            send_signal("a", libc::SIGUSR1);
            // The thread may have no core for some time.
            thread::sleep(Duration::from_millis(100));
            TAKER.swap(0, SeqCst)
        };
        let first = taker();
        assert_ne!(first, 0);
        assert_sometimes!(first == own(), "the main thread takes it");
        assert_sometimes!(first != own(), "another thread takes it");
        // From here on, the main thread takes none.
        mask(libc::SIG_BLOCK, &[libc::SIGUSR1]);
        for _ in 0..5 {
            assert!(![0, own()].contains(&taker()));
        }
    });
    sim.host("b", || async {
        static HANDLED: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn handler(_: i32) {
            HANDLED.fetch_add(1, SeqCst);
        }
        _ = act(libc::SIGUSR2, function(handler), 0, &[]);
        // One of two threads takes it: the one that is about to end, or the other.
        let ends = thread::spawn(|| thread::sleep(Duration::from_nanos(1_000)));
        for sent in 1..=20 {
            thread::sleep(Duration::from_nanos(tourbillon_sim::random() % 500));
            send_signal("b", libc::SIGUSR2);
            while HANDLED.load(SeqCst) < sent {
                thread::sleep(Duration::from_millis(1));
            }
        }
        ends.join().unwrap();
    });
}
