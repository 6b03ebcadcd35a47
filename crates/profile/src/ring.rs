//! The samples of one thread, on their way from its signal handler to the thread of the profile.

use std::{
    cell::UnsafeCell,
    ffi::c_void,
    fs::File,
    os::fd::{AsRawFd, RawFd},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use tourbillon::metrics::{Activity, JobName};
use tourbillon_stacks::Registers;

use crate::spans::{self, Spans};

/// The most words of a stack that are copied: the innermost 64 KiB.
const ROOM: usize = 8 << 10;
/// How many bytes are copied while it is not known where the stack ends.
const BEFORE: u64 = 8 << 10;

/// A ring of samples. The handler on one thread writes, and the thread of the profile reads. The
/// handler never waits: it counts the samples for which there is no room.
pub(crate) struct Ring {
    /// How many samples were written, by the handler; and read, by the other thread.
    written: AtomicUsize,
    read: AtomicUsize,
    lost: AtomicU64,
    /// The mapping that has the thread's stack, by which the reader tells the handler how much to
    /// copy. Zeros if that is not known yet.
    from: AtomicU64,
    to: AtomicU64,
    heads: Box<[UnsafeCell<Head>]>,
    /// `ROOM` words for each sample. The kernel writes them.
    words: Box<[UnsafeCell<u64>]>,
    /// The memory of this process, as a file.
    memory: RawFd,
}

// SAFETY: one thread writes and one reads. A place belongs to the writer from the moment when the
// reader has stored `read` with release, and to the reader from the moment when the writer has
// stored `written` with release.
unsafe impl Sync for Ring {}
// SAFETY: as above. It has nothing that belongs to a thread.
unsafe impl Send for Ring {}

/// A sample, without its stack.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) registers: Registers,
    /// What the thread did as a worker. `None` if it was none.
    pub(crate) activity: Option<(Activity, Option<JobName>)>,
    pub(crate) spans: Spans,
    /// How many words of the stack there are.
    words: usize,
}

impl Ring {
    /// Makes a ring for so many samples. `memory` stays open while the ring is used.
    pub(crate) fn new(samples: usize, memory: &File) -> Self {
        let head = Head {
            registers: Registers::NONE,
            activity: None,
            spans: spans::NONE,
            words: 0,
        };
        // Zeros, of which the kernel makes memory where something is written.
        let words = vec![0_u64; samples * ROOM].into_boxed_slice();
        // SAFETY: an `UnsafeCell` has the layout of what is in it.
        let words = unsafe { Box::from_raw(Box::into_raw(words) as *mut [UnsafeCell<u64>]) };
        Self {
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            from: AtomicU64::new(0),
            to: AtomicU64::new(0),
            heads: (0..samples).map(|_| UnsafeCell::new(head)).collect(),
            words,
            memory: memory.as_raw_fd(),
        }
    }

    /// Writes a sample of the calling thread, which was interrupted at `registers`. Allocates
    /// nothing, takes no lock, and calls nothing but the system.
    ///
    /// # Safety
    ///
    /// Only one thread calls this, and no call interrupts another.
    pub(crate) unsafe fn write(&self, registers: Registers) {
        let written = self.written.load(Relaxed);
        if written - self.read.load(Acquire) == self.heads.len() {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let place = written % self.heads.len();
        let from = registers.stack_pointer();
        let end = match self.has(from) {
            true => self.to.load(Relaxed),
            false => from.saturating_add(BEFORE),
        };
        let room = ROOM * size_of::<u64>();
        let length = usize::try_from(end - from).unwrap_or(room).min(room);
        let words = &self.words[place * ROOM..][..ROOM];
        let into = words.as_ptr().cast::<c_void>().cast_mut();
        // By the kernel, which stops at memory that is not there: this may not be the stack that
        // was measured.
        // SAFETY: there is room for the bytes, and nobody else looks at them.
        let read = unsafe { libc::pread(self.memory, into, length, from as libc::off_t) };
        let head = Head {
            registers,
            activity: tourbillon::runtime::worker_activity(),
            spans: spans::entered(),
            words: usize::try_from(read).unwrap_or(0) / size_of::<u64>(),
        };
        // SAFETY: the ring has room, so the reader does not look at this place.
        unsafe { *self.heads[place].get() = head };
        self.written.store(written + 1, Release);
    }

    /// Calls `f` with each sample that was written since, with its stack.
    ///
    /// # Safety
    ///
    /// Only one thread calls this.
    pub(crate) unsafe fn read(&self, mut f: impl FnMut(&Head, &[u64])) {
        let written = self.written.load(Acquire);
        for number in self.read.load(Relaxed)..written {
            let place = number % self.heads.len();
            // SAFETY: the sample is written, and its place is not free before the store below.
            let head = unsafe { *self.heads[place].get() };
            let words = &self.words[place * ROOM..][..head.words];
            // SAFETY: as above. An `UnsafeCell` has the layout of what is in it.
            let words = unsafe { &*(std::ptr::from_ref(words) as *const [u64]) };
            f(&head, words);
            self.read.store(number + 1, Release);
        }
    }

    /// Returns whether the known stack has this address.
    pub(crate) fn has(&self, address: u64) -> bool {
        (self.from.load(Relaxed)..self.to.load(Relaxed)).contains(&address)
    }

    /// Tells where the mapping of the stack begins and ends. A mix of two mappings does no harm.
    pub(crate) fn set_stack(&self, (from, to): (u64, u64)) {
        self.from.store(from, Relaxed);
        self.to.store(to, Relaxed);
    }

    /// Returns how many samples had no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}
