//! Calls that leave the simulation.

use std::{
    env,
    ffi::CStr,
    fs::{self, File},
    io::{Read, Write},
    mem,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::net::UnixStream,
    },
    process::{self, Command},
    ptr, thread,
    time::{Duration, Instant},
};

use libc::c_char;
use tourbillon_sim::{Disk, Report, Simulation, raw::run_for};

use crate::shrink::run_test;

/// Describes a host `a` with this program.
fn host(program: fn()) -> Simulation {
    let mut sim = Simulation::new(0);
    sim.client("a", move || async move { program() });
    sim
}

/// Runs a program on a host `a`, and returns why it fails.
fn why(program: fn()) -> String {
    host(program).run().expect_err("it fails").why().to_owned()
}

/// Runs a program on a host `a`, and returns the calls that left the simulation.
fn outside(program: fn()) -> Vec<(String, u64)> {
    let report = host(program).run();
    let report: Report = report.unwrap_or_else(|failure| panic!("{failure}"));
    let outside = report.outside();
    outside
        .map(|(call, times)| (call.to_owned(), times))
        .collect()
}

fn begins(text: &str, expected: &str) {
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn child_processes_fail_a_seed() {
    let spawn = || _ = Command::new("true").status();
    begins(
        &why(spawn),
        "a: main calls posix_spawn(\"true\"): a child process is not simulated",
    );
    // SAFETY: the calls fail the seed.
    let fork = || _ = unsafe { libc::fork() };
    begins(&why(fork), "a: main calls fork(): a child process");
    // SAFETY: as above.
    let shell = || _ = unsafe { libc::system(c"true".as_ptr()) };
    begins(
        &why(shell),
        "a: main calls system(\"true\"): a child process",
    );
}

#[test]
fn a_wait_for_a_real_descriptor_fails_a_seed() {
    let began = Instant::now();
    let text = why(|| {
        let (mut one, _other) = UnixStream::pair().unwrap();
        _ = one.read(&mut [0]);
    });
    begins(&text, "a: main calls recvfrom(");
    assert!(
        text.contains("it would wait for something outside of the simulation"),
        "{text}"
    );
    assert!(text.contains("These calls left the simulation: "), "{text}");
    assert!(text.contains("socketpair() by a"), "{text}");
    let text = why(|| {
        let mut fds = [0; 2];
        // SAFETY: there is room for two descriptors.
        assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
        // SAFETY: the descriptor is a new one.
        let mut pipe = unsafe { File::from_raw_fd(fds[0]) };
        _ = pipe.read(&mut [0]);
    });
    begins(&text, "a: main calls read(");
    let text = why(|| {
        let (one, _other) = UnixStream::pair().unwrap();
        let fd = one.as_raw_fd();
        let mut entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut entry, 1, -1) };
    });
    begins(&text, "a: main calls poll()");
    // Without the check, each waits until its time is over.
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// What is in a pipe already was written by a thread of the simulation.
#[test]
fn what_is_there_can_be_read() {
    let found = outside(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"x").unwrap();
        let mut byte = [0];
        one.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        one.set_nonblocking(true).unwrap();
        one.read(&mut byte).expect_err("there is no more");
    });
    assert_eq!(found, [("socketpair() by a".into(), 1)]);
}

#[test]
fn a_poll_of_nothing_is_a_sleep() {
    let mut sim = host(|| {
        // SAFETY: no entries.
        unsafe { libc::poll(ptr::null_mut(), 0, 100_000) };
    });
    let report = sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.simulated() >= Duration::from_secs(100));
}

#[test]
fn a_select_of_nothing_is_a_sleep() {
    let mut sim = host(|| {
        let null = ptr::null_mut();
        let mut time = libc::timeval {
            tv_sec: 100,
            tv_usec: 0,
        };
        // SAFETY: no descriptors.
        let result = unsafe { libc::select(0, null, null, null, &mut time) };
        assert_eq!((result, time.tv_sec), (0, 0), "Linux writes what is left");
        // SAFETY: as above.
        unsafe { libc::pselect(0, null, null, null, &LONG, ptr::null()) };
    });
    let report = sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.simulated() >= Duration::from_secs(200));
}

const LONG: libc::timespec = libc::timespec {
    tv_sec: 100,
    tv_nsec: 0,
};

/// Has `select` look at a pipe that is empty, for at most so many seconds.
fn select(seconds: libc::time_t) -> i32 {
    let (one, _other) = UnixStream::pair().unwrap();
    let fd = one.as_raw_fd();
    // SAFETY: all bytes may be zero.
    let mut set: libc::fd_set = unsafe { mem::zeroed() };
    let mut time = libc::timeval {
        tv_sec: seconds,
        tv_usec: 0,
    };
    // SAFETY: the set has room for the descriptor, which is below 1,024.
    unsafe {
        libc::FD_SET(fd, &mut set);
        libc::select(
            fd + 1,
            &mut set,
            ptr::null_mut(),
            ptr::null_mut(),
            &mut time,
        )
    }
}

#[test]
fn a_select_fails_a_seed_if_it_may_wait() {
    let mut sim = host(|| assert_eq!(select(0), 0));
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    begins(&why(|| _ = select(100)), "a: main calls select()");
}

#[test]
fn a_wait_for_a_lock_of_a_real_file_fails_a_seed() {
    let text = why(|| {
        let path = env::temp_dir().join(format!("tourbillon-sim-lock-{}", process::id()));
        let files = [(); 2].map(|()| File::create(&path).unwrap());
        fs::remove_file(&path).unwrap();
        // SAFETY: all bytes may be zero.
        let mut lock: libc::flock = unsafe { mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        for file in &files {
            // SAFETY: the call reads a lock.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &lock) };
        }
    });
    begins(&text, "a: main calls fcntl(");
}

/// The child of a process with threads may not ask for memory: another thread may have the lock of
/// it. `Command` with `pre_exec` makes such a child.
#[test]
fn a_child_runs_a_program_without_new_memory() {
    // There is no room for a copy of it.
    let mut path = vec![b'/'; 70 << 20];
    path.push(0);
    let path = CStr::from_bytes_with_nul(&path).unwrap();
    let arguments = [c"program".as_ptr(), ptr::null()];
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let calls: [fn(*const c_char, *const *const c_char); 2] = [
        // SAFETY: the caller passes a text, and texts.
        |path, arguments| _ = unsafe { libc::execvp(path, arguments) },
        // SAFETY: as above.
        |path, arguments| _ = unsafe { libc::execve(path, arguments, &ptr::null()) },
    ];
    for call in calls {
        let mut status = 0;
        // SAFETY: the child makes calls of the system alone, and the pointers are valid.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                libc::setrlimit(libc::RLIMIT_AS, &none);
                call(path.as_ptr(), arguments.as_ptr());
                libc::_exit(*libc::__errno_location());
            }
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert_eq!(status, libc::ENAMETOOLONG << 8);
    }
}

#[test]
fn files_of_the_real_system_are_named() {
    let found = outside(|| {
        _ = fs::read("/etc/hosts");
        _ = fs::read("/etc/hosts");
        _ = fs::read("/proc/meminfo");
        fs::read("/proc/self/exe").unwrap();
        fs::read("/dev/null").unwrap();
        let path = env::temp_dir().join("tourbillon-sim-no-such-folder/x");
        fs::write(&path, "").unwrap_err();
        fs::remove_file(&path).unwrap_err();
        _ = fs::read_dir("/etc");
    });
    let calls: Vec<_> = found
        .iter()
        .map(|(call, times)| (call.as_str(), *times))
        .collect();
    let dir = env::temp_dir().join("tourbillon-sim-no-such-folder/x");
    let [open, unlink] = ["open", "unlink"].map(|call| format!("{call}({dir:?}) by a"));
    let mut expected = vec![
        ("open(\"/etc/hosts\") by a", 2),
        ("open(\"/proc/meminfo\") by a", 1),
        (&open, 1),
        (&unlink, 1),
        ("opendir(\"/etc\") by a", 1),
    ];
    expected.sort_unstable();
    assert_eq!(calls, expected);
}

/// A temporary file has another name in each process.
#[test]
fn reports_are_equal_whatever_the_real_files_are_called() {
    let read = |path: &'static str| {
        let mut sim = Simulation::new(0);
        sim.client("a", move || async move { _ = fs::read(path) });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"))
    };
    let [one, other] = ["/no-such-folder/1", "/no-such-folder/2"].map(read);
    assert!(one.outside().ne(other.outside()));
    assert_eq!(one, other);
}

#[test]
fn system_calls_by_number_are_named() {
    let found = outside(|| {
        // SAFETY: calls without arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_gettid) };
    });
    let name = format!("syscall({}) by a", libc::SYS_getppid);
    assert_eq!(found, [(name, 1)]);
}

#[test]
fn a_failure_names_the_calls_in_one_line() {
    let text = why(|| {
        _ = fs::read("/etc/hosts");
        panic!("it fails");
    });
    let line = "\nThese calls left the simulation: open(\"/etc/hosts\") by a\n";
    assert!(text.contains(line), "{text}");
}

/// The library in C would read and write the real file of that name.
#[test]
fn a_stream_of_c_on_a_simulated_disk_fails_a_seed() {
    fn open(path: &CStr) -> bool {
        // SAFETY: both are texts.
        let file = unsafe { libc::fopen(path.as_ptr(), c"w".as_ptr()) };
        if file.is_null() {
            return false;
        }
        // SAFETY: the file is open.
        unsafe { libc::fclose(file) };
        true
    }
    let mut sim = host(|| assert!(!open(c"/proc/self/cgroup")));
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mut sim = host(|| _ = open(c"/data/log"));
    sim.disk("/data", Disk::new());
    let failure = sim.run().unwrap_err();
    begins(
        failure.why(),
        "a: main calls fopen(\"/data/log\"): streams of C",
    );
}

/// Waits by a function of the C library that is not replaced.
#[inline(never)]
fn wait_in_c() {
    // SAFETY: the path is a text.
    unsafe { libc::access(c"/etc/hosts".as_ptr(), libc::R_OK) };
    // SAFETY: all bytes may be zero: nobody has posted.
    let mut semaphore: libc::sem_t = unsafe { mem::zeroed() };
    // SAFETY: the semaphore lives until the call ends.
    unsafe { libc::sem_wait(&mut semaphore) };
}

#[test]
#[ignore = "another test runs it, in a process without other tests"]
fn a_thread_is_stuck() {
    let mut sim = Simulation::new(0);
    sim.client("a", || async {
        let named = thread::Builder::new().name("the stuck one".into());
        named.spawn(wait_in_c).unwrap().join().unwrap();
    });
    println!("it says: {}", run_for(&sim, 5).unwrap_err().why());
}

/// The standard library has a lock for backtraces, which another test could have at the fork.
#[test]
fn a_thread_that_is_stuck_is_named() {
    let text = run_test("outside::a_thread_is_stuck", &[]);
    let late = "it says: after 5 s it has not ended: it waits for something outside of the \
                simulation\n";
    assert!(text.contains(late), "{text}");
    let named = "a: the stuck one has the core. The last call that the real system answered is \
                 faccessat. It is here:\n";
    assert!(text.contains(named), "{text}");
    assert!(text.contains("wait_in_c"), "{text}");
}
