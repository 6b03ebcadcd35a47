//! Handlers and masks, compared with those of the system.

use std::{
    io,
    mem::{self, MaybeUninit},
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_sim::{Simulation, assert_sometimes, is_running, pause, restart, send_signal};

/// What the handlers saw.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub fn set(numbers: &[i32]) -> libc::sigset_t {
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
pub fn mask(how: i32, change: &[i32]) -> Vec<i32> {
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
pub fn act(number: i32, handler: usize, flags: i32, blocks: &[i32]) -> Result<usize, i32> {
    // SAFETY: all bytes may be zero, and the handlers of these tests are what their flags say.
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

pub fn function(handler: extern "C" fn(i32)) -> usize {
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
