//! The samples of one thread, on their way from its signal handler to the thread of the profile.

use std::{
    cell::UnsafeCell,
    ffi::c_void,
    fs::File,
    io, ops,
    os::fd::{AsRawFd, RawFd},
    ptr::{self, NonNull},
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
    words: Words,
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
    pub(crate) fn new(samples: usize, memory: &File) -> io::Result<Self> {
        let head = Head {
            registers: Registers::NONE,
            activity: None,
            spans: spans::NONE,
            words: 0,
        };
        Ok(Self {
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            from: AtomicU64::new(0),
            to: AtomicU64::new(0),
            heads: (0..samples).map(|_| UnsafeCell::new(head)).collect(),
            words: Words::new(samples * ROOM)?,
            memory: memory.as_raw_fd(),
        })
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
        let end = self.end(from).unwrap_or(from.saturating_add(BEFORE));
        let room = ROOM * size_of::<u64>();
        let length = usize::try_from(end.saturating_sub(from))
            .unwrap_or(room)
            .min(room);
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

    /// Returns where the known stack ends, if it has this address.
    pub(crate) fn end(&self, address: u64) -> Option<u64> {
        // Each is read once: the other thread may change them meanwhile.
        let (from, to) = (self.from.load(Relaxed), self.to.load(Relaxed));
        (from..to).contains(&address).then_some(to)
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

/// Zeros, of which the kernel makes memory where something is written. They are a mapping of their
/// own: the allocator would keep the memory of large blocks after a profile.
struct Words(NonNull<[UnsafeCell<u64>]>);

impl Words {
    fn new(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = length * size_of::<u64>();
        // SAFETY: the kernel chooses an address where nothing is.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        match NonNull::new(at.cast::<UnsafeCell<u64>>()) {
            Some(words) if at != libc::MAP_FAILED => {
                Ok(Self(NonNull::slice_from_raw_parts(words, length)))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl ops::Deref for Words {
    type Target = [UnsafeCell<u64>];

    fn deref(&self) -> &Self::Target {
        // SAFETY: the mapping has so many zeros, and it is there until the drop.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let bytes = self.0.len() * size_of::<u64>();
        // SAFETY: `new` has mapped so many bytes, and no reference to them is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_an_end_for_its_own_addresses_only() {
        let memory = File::open("/proc/self/mem").unwrap();
        let ring = Ring::new(1, &memory).unwrap();
        assert_eq!(ring.end(0), None);
        ring.set_stack((10, 20));
        assert_eq!(
            [9, 10, 19, 20].map(|it| ring.end(it)),
            [None, Some(20), Some(20), None]
        );
    }

    #[test]
    fn the_memory_of_a_ring_goes_with_it() {
        // So much that no other test maps all of it again.
        let bytes = 1 << 30;
        let words = Words::new(bytes / size_of::<u64>()).unwrap();
        let at = words.as_ptr().cast_mut().cast::<c_void>();
        let mut pages = vec![0_u8; bytes >> 12];
        // SAFETY: the kernel looks whether there are pages, and writes a byte for each.
        let mut is_mapped = || unsafe { libc::mincore(at, bytes, pages.as_mut_ptr()) == 0 };
        assert!(is_mapped());
        drop(words);
        assert!(!is_mapped());
    }
}
