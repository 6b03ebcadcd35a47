//! Calls of the system: the signal that holds a thread, and the tables of the loaded files.
//!
//! One word says how far a capture is, and of which thread. One thread captures at a time, under a
//! lock.
//!
//! | word | set by | what it means |
//! |---|---|---|
//! | `IDLE` | either | no thread is asked for anything |
//! | `ASKED` and a thread | the capturing thread | that thread is to answer |
//! | `ANSWERS` and the thread | the handler on that thread, from `ASKED` | it writes its registers |
//! | `HELD` and the thread | the handler | they are written, and the thread waits in the handler |
//!
//! The handler turns `ASKED` into `ANSWERS` by one exchange, and the capturing thread that gives up
//! turns it into `IDLE` by another, so one of them wins. A signal that comes too late finds another
//! word. While the word is `HELD`, the stack does not change, and the capturing thread copies it.
//! Then either of both makes it `IDLE` by an exchange: the capturing thread, or the handler, which
//! does not wait for ever. If it was the handler, the copy does not count. The capturing thread
//! neither allocates nor takes a lock meanwhile, since the thread that is held may be inside of the
//! allocator.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_void},
    fs::{self, File},
    io, mem,
    os::unix::fs::FileExt,
    ptr,
    sync::atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    time::{Duration, Instant},
};

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERS: u32 = 2;
const HELD: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(IDLE);
static REGISTERS: Place = Place(UnsafeCell::new(Registers::NONE));

/// Returns the word of a thread. The kernel's numbers of threads have at most 22 bits.
fn word(thread: u32, state: u32) -> u32 {
    thread << 2 | state
}

/// What a thread is asked by. By default the kernel ignores it, so a program is not killed if
/// somebody has taken the handler away. Go's runtime uses it for the same reasons.
const SIGNAL: c_int = libc::SIGURG;

/// How long the capturing thread waits for an answer. A thread that has no core cannot answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many steps a thread is held at most, 50 ms in all, and how long each wait for a word takes
/// at most. A copy takes far less, unless the capturing thread has no core.
const HOLDS: u32 = 5;
const STEP: Duration = Duration::from_millis(10);

/// The registers of a thread from which its stack is walked: see [`Walker`](crate::Walker).
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    pub(crate) frame: u64,
    /// The return address, on a processor that has it in a register.
    #[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "it has none"))]
    pub(crate) link: u64,
}

impl Registers {
    /// Registers from which no stack is walked.
    pub const NONE: Self = Self {
        instruction: 0,
        stack: 0,
        frame: 0,
        link: 0,
    };

    /// Returns the registers at which a signal has interrupted a thread.
    #[cfg(target_arch = "x86_64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let at = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
        Self {
            instruction: at(libc::REG_RIP),
            stack: at(libc::REG_RSP),
            frame: at(libc::REG_RBP),
            link: 0,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let context = &context.uc_mcontext;
        Self {
            instruction: context.pc,
            stack: context.sp,
            frame: context.regs[29],
            link: context.regs[30],
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn of(_: &libc::ucontext_t) -> Self {
        Self::NONE
    }

    /// Returns the registers at which a signal has interrupted a thread, from the third argument of
    /// the handler. The handler itself may call this.
    ///
    /// # Safety
    ///
    /// `context` is what the kernel passed to a handler that was installed with `SA_SIGINFO`, and
    /// the handler has not returned.
    pub unsafe fn of_handler(context: *const c_void) -> Self {
        // SAFETY: as the caller guarantees, it points to the context of the interrupted thread.
        Self::of(unsafe { &*context.cast::<libc::ucontext_t>() })
    }

    /// Returns the stack pointer: where the stack begins that is to be copied.
    pub fn stack_pointer(&self) -> u64 {
        self.stack
    }
}

struct Place(UnsafeCell<Registers>);

// SAFETY: the handler writes it from `ANSWERS` on, and the capturing thread reads it from `HELD`
// on, which the handler stores with release.
unsafe impl Sync for Place {}

/// A copy of the top of a thread's stack.
pub(crate) struct Copied {
    pub(crate) registers: Registers,
    /// The words from the stack pointer on.
    pub(crate) words: Vec<u64>,
}

/// Holds a thread of this process, and copies the top of its stack, at most `room` words.
///
/// Returns `None` if the thread does not answer, as one that blocks the signal. The caller has a
/// lock, so that one thread is held at a time.
///
/// # Errors
///
/// Returns an error of the system: there is no such thread, or memory cannot be read by its file.
pub(crate) fn copy_stack(thread: u32, room: usize) -> io::Result<Option<Copied>> {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if thread == this_thread() {
        let why = "a thread cannot take its own stack";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: see `on_signal`.
    unsafe { install_handler(SIGNAL, on_signal)? };
    // 1. Everything that allocates comes before the thread is held. The buffer is written once, so
    //    that the kernel need not find pages for it later.
    let memory = File::open("/proc/self/mem")?;
    let ends = ends_of_mappings()?;
    let mut bytes = vec![1_u8; room * size_of::<u64>()];
    // 2. Ask, and wait for the answer.
    STATE.store(word(thread, ASKED), Release);
    // SAFETY: the call takes no pointers. The thread is one of this process, or the call fails.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) } != 0 {
        let error = io::Error::last_os_error();
        STATE.store(IDLE, Release);
        return Err(error);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let state = STATE.load(Acquire);
        if state == word(thread, HELD) {
            break;
        }
        let gives_up = Instant::now() >= until && becomes_idle(word(thread, ASKED));
        // The thread may have left the handler before this one saw it there.
        if gives_up || state == IDLE {
            return Ok(None);
        }
        wait(&STATE, state);
    }
    // SAFETY: the state is `HELD`, so the handler has written them, and nobody writes them before
    // the next capture.
    let registers = unsafe { *REGISTERS.0.get() };
    // 3. Copy up to the end of the mapping that has the stack. The copy sees the stack as it is,
    //    since its thread waits.
    let end = ends.iter().find(|&&end| end > registers.stack);
    let length = end.map_or(0, |end| usize::try_from(end - registers.stack).unwrap_or(0));
    let length = length.min(bytes.len());
    let read = memory.read_at(&mut bytes[..length], registers.stack);
    // 4. Let the thread go. If it has gone by itself, the stack may have changed.
    let was_held = becomes_idle(word(thread, HELD));
    wake(&STATE);
    bytes.truncate(read?);
    let words = bytes.chunks_exact(size_of::<u64>());
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    Ok(was_held.then(|| Copied {
        registers,
        words: words.map(word).collect(),
    }))
}

/// Turns this word into `IDLE`. Returns whether it was this one.
fn becomes_idle(word: u32) -> bool {
    STATE.compare_exchange(word, IDLE, AcqRel, Relaxed).is_ok()
}

fn this_thread() -> u32 {
    // SAFETY: the call has no preconditions.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
}

/// Returns where the mappings of this process end, in order.
fn ends_of_mappings() -> io::Result<Vec<u64>> {
    let maps = fs::read("/proc/self/maps")?;
    // The names of files may be any bytes.
    let maps = String::from_utf8_lossy(&maps);
    let end = |line: &str| {
        let (range, _) = line.split_once(' ')?;
        u64::from_str_radix(range.split_once('-')?.1, 16).ok()
    };
    Ok(maps.lines().filter_map(end).collect())
}

/// Where a thread sleeps in the kernel, as far as the system says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sleep {
    /// The function of the kernel.
    pub(crate) function: Option<String>,
    /// The call of the system.
    pub(crate) call: Option<String>,
}

impl Sleep {
    pub(crate) fn of(thread: u32) -> Self {
        let read = |name| fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok();
        let function = read("wchan").filter(|name| !name.is_empty() && name != "0");
        // The number of the call comes first. It is a word if the thread runs, and negative if it
        // sleeps outside of a call, for example until a page is there.
        let call = read("syscall");
        let call = call.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
        Self {
            function,
            call: call.filter(|number| *number >= 0).map(name_of_call),
        }
    }
}

/// Returns the name of a call of the system that may take long.
fn name_of_call(number: i64) -> String {
    macro_rules! name {
        ($($name:ident)*) => {
            [$((i64::from(libc::$name), stringify!($name))),*]
        };
    }
    #[allow(
        clippy::useless_conversion,
        reason = "its type depends on the processor"
    )]
    let mut names = name!(
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_openat SYS_close
        SYS_recvfrom SYS_recvmsg SYS_sendto SYS_sendmsg SYS_accept SYS_accept4 SYS_connect
        SYS_futex SYS_nanosleep SYS_clock_nanosleep SYS_ppoll SYS_pselect6 SYS_epoll_pwait
        SYS_fsync SYS_fdatasync SYS_flock SYS_fcntl SYS_wait4 SYS_waitid SYS_io_uring_enter
        SYS_mmap SYS_munmap SYS_mprotect SYS_madvise SYS_getrandom
    )
    .to_vec();
    #[cfg(target_arch = "x86_64")]
    names.extend(name!(SYS_poll SYS_select SYS_epoll_wait SYS_open));
    let name = names.iter().find(|(call, _)| *call == number);
    match name {
        Some((_, name)) => name["SYS_".len()..].to_owned(),
        None => format!("system call {number}"),
    }
}

/// A handler of a signal that also gets what was interrupted.
pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler of a signal, unless it is there. Calls of the system that it interrupts are
/// restarted where the kernel can, and no other handler interrupts it.
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the program has its own handler for the
/// signal, or an error of the system.
///
/// # Safety
///
/// The handler makes only calls that may be made in one.
#[doc(hidden)]
pub unsafe fn install_handler(signal: c_int, handler: Handler) -> io::Result<()> {
    let handler = handler as *const () as libc::sighandler_t;
    // SAFETY: zeros are a valid `sigaction`, which the call then fills.
    let present = unsafe {
        let mut present: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut present);
        present
    };
    if present.sa_sigaction == handler {
        return Ok(());
    }
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&present.sa_sigaction) {
        let why = match signal {
            SIGNAL => "the program has its own handler for SIGURG",
            _ => "the program has its own handler for the signal",
        };
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    // SAFETY: zeros are a valid `sigaction`, and the caller vouches for the handler.
    let installed = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(signal, &action, ptr::null_mut())
    };
    match installed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Answers a capture, and waits until the stack is copied. It allocates nothing, takes no lock, and
/// calls nothing but the system.
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: each thread has its own `errno`, and the interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    let this = this_thread();
    let is_asked = (STATE)
        .compare_exchange(word(this, ASKED), word(this, ANSWERS), AcqRel, Relaxed)
        .is_ok();
    if is_asked {
        // SAFETY: the kernel passes a context to a handler with `SA_SIGINFO`. The state is
        // `ANSWERS`, so no other thread looks at the registers.
        unsafe { *REGISTERS.0.get() = Registers::of_handler(context) };
        STATE.store(word(this, HELD), Release);
        wake(&STATE);
        // The capturing thread may have no core for long. Do not wait for ever.
        for _ in 0..HOLDS {
            if STATE.load(Acquire) != word(this, HELD) {
                break;
            }
            wait(&STATE, word(this, HELD));
        }
        becomes_idle(word(this, HELD));
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Waits until the word may have another value, for [`STEP`] at most.
fn wait(word: &AtomicU32, value: u32) {
    let step = libc::timespec {
        tv_sec: 0,
        tv_nsec: STEP.subsec_nanos().into(),
    };
    let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the pointers are to the word and to a time, which outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, value, &raw const step) };
}

/// Wakes the threads that wait for the word.
fn wake(word: &AtomicU32) {
    let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the pointer is to the word, which outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, c_int::MAX) };
}

/// A file that is loaded into this process, and its tables for unwinding.
pub(crate) struct Loaded {
    /// What is added to the addresses in the file.
    pub(crate) base: u64,
    /// The addresses in the file: all of it, its code, and its two tables.
    pub(crate) all: (u64, u64),
    pub(crate) code: (u64, u64),
    pub(crate) index: (u64, u64),
    pub(crate) frames: (u64, u64),
}

impl Loaded {
    /// Returns the memory of a part.
    pub(crate) fn memory(&self, (from, to): (u64, u64)) -> &'static [u8] {
        // SAFETY: `of_headers` has found the part within a segment that is loaded and constant.
        // The file stays loaded: the C library unloads one only by `dlclose`, and callers rely on
        // the program to unload none that has code on a stack. See the docs of `Walker::new`.
        unsafe { std::slice::from_raw_parts((self.base + from) as *const u8, (to - from) as usize) }
    }
}

/// Returns the files that are loaded and have an index of their tables for unwinding.
pub(crate) fn loaded() -> Vec<Loaded> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid description, and the pointer that it was given.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Loaded>>()) };
        // SAFETY: the description says where the headers are, and how many.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        #[allow(
            clippy::useless_conversion,
            reason = "its type depends on the C library"
        )]
        found.extend(of_headers(info.dlpi_addr.into(), headers));
        0
    }
    let mut found = Vec::new();
    // SAFETY: the function has the type that is asked for, and the pointer is to what it expects.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    found
}

/// The kind of the header of the index, `PT_GNU_EH_FRAME`.
const INDEX: u32 = 0x6474_e550;
/// How the index says where the table is: by a signed number of 32 bits, from its own place on.
const RELATIVE: u8 = 0x1b;

fn of_headers(base: u64, headers: &[libc::Elf64_Phdr]) -> Option<Loaded> {
    let part = |header: &libc::Elf64_Phdr| (header.p_vaddr, header.p_vaddr + header.p_memsz);
    let segments = || {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
    };
    let code = segments().find(|header| header.p_flags & libc::PF_X != 0)?;
    let index = part(headers.iter().find(|header| header.p_type == INDEX)?);
    let all = (
        segments().map(|header| part(header).0).min()?,
        segments().map(|header| part(header).1).max()?,
    );
    let mut loaded = Loaded {
        base,
        all,
        code: part(code),
        index,
        frames: (0, 0),
    };
    // Other threads may write to the other segments.
    let is_constant =
        |header: &&libc::Elf64_Phdr| header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R;
    let within = |place: u64| {
        segments()
            .filter(is_constant)
            .map(part)
            .find(|&(from, to)| from <= place && place < to)
    };
    // The index begins with its version, three encodings, and where the table is.
    within(index.0).filter(|&(_, to)| index.1 <= to && index.1 - index.0 >= 8)?;
    let start = loaded.memory(index);
    if start[..2] != [1, RELATIVE] {
        return None;
    }
    let distance = i32::from_ne_bytes(start[4..8].try_into().ok()?);
    let table = (index.0 + 4).checked_add_signed(distance.into())?;
    // Its end is not said. The index leads to its parts, so more than it is no harm.
    loaded.frames = (table, within(table)?.1);
    Some(loaded)
}
