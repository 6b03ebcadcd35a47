//! Faults of the system on demand: system calls that a filter (seccomp) refuses, always or when the
//! test says so.
//!
//! A filter stays for the life of its thread and of all threads that it starts: a test with a
//! filter must run [`alone`](crate::process::alone).

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use crate::skip;

/// A system call that a filter recognizes: by its number and, if it matters, its first argument.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    number: libc::c_long,
    first: Option<u32>,
}

/// Returns the call of this number.
pub fn call(number: libc::c_long) -> Call {
    Call {
        number,
        first: None,
    }
}

impl Call {
    /// Restricts the call to this first argument.
    pub fn of(self, first: libc::c_int) -> Self {
        Self {
            first: Some(first as u32),
            ..self
        }
    }
}

/// Returns the calls that only make a runtime quicker, more precise or more polite.
pub fn dispensable() -> Vec<Call> {
    vec![
        call(libc::SYS_sched_setaffinity),
        call(libc::SYS_sched_getaffinity),
        call(libc::SYS_setpriority),
        call(libc::SYS_getpriority),
        call(libc::SYS_sched_setscheduler),
        call(libc::SYS_sched_getscheduler),
        call(libc::SYS_sched_setattr),
        call(libc::SYS_prctl).of(libc::PR_SET_NAME),
        call(libc::SYS_membarrier),
    ]
}

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
/// Zero: filters for other architectures are not supported.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: u32 = 0;

/// The offsets of these fields in `seccomp_data`.
const NUMBER_AT: u32 = mem::offset_of!(libc::seccomp_data, nr) as u32;
const ARCH_AT: u32 = mem::offset_of!(libc::seccomp_data, arch) as u32;
/// The offset of the lower half of the first argument, on a little-endian machine.
const FIRST_AT: u32 = mem::offset_of!(libc::seccomp_data, args) as u32;

/// Returns the program that the kernel runs at each system call. A listed call gets its action; all
/// others pass.
fn program(calls: impl IntoIterator<Item = (Call, u32)>) -> Vec<libc::sock_filter> {
    let step = |code: u32, if_not: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: if_not,
        k,
    };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at);
    let skip_unless = |steps, is| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, steps, is);
    let answer = |action| step(libc::BPF_RET | libc::BPF_K, 0, action);
    let mut program = vec![load(ARCH_AT), skip_unless(1, ARCH)];
    // Jump over the answer for other architectures, to the first step.
    program.push(step(libc::BPF_JMP | libc::BPF_JA, 0, 1));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(load(NUMBER_AT));
    for (call, action) in calls {
        match call.first {
            None => program.push(skip_unless(1, call.number as u32)),
            Some(first) => {
                program.push(skip_unless(4, call.number as u32));
                program.push(load(FIRST_AT));
                program.push(skip_unless(1, first));
            }
        }
        program.push(answer(action));
        if call.first.is_some() {
            program.push(load(NUMBER_AT));
        }
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs a filter on the calling thread and on all threads that it starts. With the flag for a
/// listener, returns the listener's descriptor.
fn install(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_int> {
    if ARCH == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let program = libc::sock_fprog {
        len: filter.len().try_into().expect("it is short"),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the first call takes numbers. The second takes a program that lives through the
    // call, and copies it.
    let installed = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program)
    };
    match installed {
        0.. => Ok(installed as libc::c_int),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reports that the test is skipped, if the kernel or a sandbox does not allow filters. Any other
/// error is a defect of the filter, and fails the test.
fn skip_without(what: &str, error: &io::Error) {
    let is_refused = matches!(
        error.raw_os_error(),
        // `EBUSY`: only one listener may exist, and some sandboxes and tracers have one already.
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL | libc::EBUSY)
    );
    let is_unknown = error.kind() == io::ErrorKind::Unsupported;
    assert!(is_refused || is_unknown, "no {what}: {error}");
    skip(&format!("no {what} here: {error}"));
}

/// Makes these calls fail with these errors, on the calling thread and on all threads that it
/// starts. Returns false if the system does not allow filters: the test is then skipped.
#[must_use]
pub fn refuse(calls: &[(Call, libc::c_int)]) -> bool {
    let with_action = |&(call, error): &(Call, libc::c_int)| {
        let action = libc::SECCOMP_RET_ERRNO | error as u32;
        (call, action)
    };
    match install(&program(calls.iter().map(with_action)), 0) {
        Ok(_) => true,
        Err(error) => {
            skip_without("filters of system calls", &error);
            false
        }
    }
}

/// Calls that fail when the test says so, one by one.
#[derive(Clone, Debug)]
pub struct Faulty(Arc<State>);

#[derive(Debug)]
struct State {
    /// How many more calls pass before calls fail.
    pass: AtomicUsize,
    /// How many calls fail then, before all pass again.
    fail: AtomicUsize,
    error: AtomicUsize,
    passed: AtomicUsize,
    failed: AtomicUsize,
}

impl Faulty {
    /// Gives the test control over these calls, on the calling thread and on all threads that it
    /// starts. Returns `None` if the system does not allow filters: the test is then skipped.
    pub fn calls(calls: &[Call]) -> Option<Self> {
        let state = Arc::new(State {
            pass: AtomicUsize::new(usize::MAX),
            fail: AtomicUsize::new(0),
            error: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
        });
        // This thread starts before the filter exists, so that its own calls pass.
        let (sender, receiver) = mpsc::channel();
        let judge = state.clone();
        thread::spawn(move || {
            if let Ok(listener) = receiver.recv() {
                judge.judge(&listener);
            }
        });
        let with_action = |&call: &Call| (call, libc::SECCOMP_RET_USER_NOTIF);
        let filter = program(calls.iter().map(with_action));
        match install(&filter, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER) {
            Ok(listener) => {
                // SAFETY: a fresh descriptor without another owner.
                let listener = unsafe { OwnedFd::from_raw_fd(listener) };
                sender.send(listener).expect("the thread waits for it");
                Some(Self(state))
            }
            Err(error) => {
                skip_without("listener for system calls", &error);
                None
            }
        }
    }

    /// Lets `pass` calls pass from now on, then `fail` fail with `error`, and then all pass.
    pub fn after(&self, pass: usize, fail: usize, error: libc::c_int) {
        let state = &self.0;
        state.pass.store(usize::MAX, SeqCst);
        state.error.store(error as usize, SeqCst);
        state.fail.store(fail, SeqCst);
        state.pass.store(pass, SeqCst);
    }

    /// Lets all calls pass from now on.
    pub fn heal(&self) {
        self.0.pass.store(usize::MAX, SeqCst);
    }

    /// Returns how many calls have passed.
    pub fn passed(&self) -> usize {
        self.0.passed.load(SeqCst)
    }

    /// Returns how many calls have failed.
    pub fn failed(&self) -> usize {
        self.0.failed.load(SeqCst)
    }
}

impl State {
    /// Answers calls until all threads with the filter have ended.
    fn judge(&self, listener: &OwnedFd) {
        while is_asked(listener) {
            // SAFETY: zeroes, which the kernel wants there, are a valid notification.
            let mut asked: libc::seccomp_notif = unsafe { mem::zeroed() };
            let fd = listener.as_raw_fd();
            // SAFETY: `asked` has the size that the number of the call says, and lives through it.
            let got = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
            if got != 0 {
                match io::Error::last_os_error().raw_os_error() {
                    // A signal has interrupted the caller, which asks again, or this thread.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    _ => return,
                }
            }
            let error = self.error();
            let response = libc::seccomp_notif_resp {
                id: asked.id,
                val: 0,
                error: -error.unwrap_or(0),
                flags: match error {
                    None => libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
                    Some(_) => 0,
                },
            };
            // SAFETY: as above. A caller that does not wait any more gets no answer.
            unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
        }
    }

    /// Returns the error of the next call, or `None` if that call is to succeed.
    fn error(&self) -> Option<libc::c_int> {
        let pass = self.pass.load(SeqCst);
        if pass == 0 && self.fail.load(SeqCst) > 0 {
            self.fail.fetch_sub(1, SeqCst);
            self.failed.fetch_add(1, SeqCst);
            return Some(self.error.load(SeqCst) as libc::c_int);
        }
        if pass > 0 && pass < usize::MAX {
            // This fails if the test has just set another number.
            let _ = self.pass.compare_exchange(pass, pass - 1, SeqCst, SeqCst);
        }
        self.passed.fetch_add(1, SeqCst);
        None
    }
}

/// Waits for the next call, and returns whether there is one: false means that no thread has the
/// filter any more. A newer kernel (seen: 6.18) would then report at once, over and over, that
/// there is no call.
fn is_asked(listener: &OwnedFd) -> bool {
    let mut ready = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        // SAFETY: `ready` is the one entry that the call is told of, and lives through the call.
        match unsafe { libc::poll(&raw mut ready, 1, -1) } {
            1 => return ready.revents & libc::POLLIN != 0,
            _ => assert_eq!(
                io::Error::last_os_error().kind(),
                io::ErrorKind::Interrupted
            ),
        }
    }
}

/// Returns the error of a system call that was made by its number, or `None` if the call
/// succeeded.
pub fn error_of(result: libc::c_long) -> Option<libc::c_int> {
    match result {
        -1 => io::Error::last_os_error().raw_os_error(),
        _ => None,
    }
}
