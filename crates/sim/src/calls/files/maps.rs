//! Files of disks in memory (`mmap`).
//!
//! The pages of a shared map are those of a real file without a name, which the world compares with
//! its own file before each look at it: see `world::disk::maps`.

use std::{
    ptr, slice,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use libc::{c_int, c_void, off_t, off64_t, size_t};

use super::{
    super::{
        answer, done, fail,
        raw::{self, real},
        really_close,
    },
    on_file,
};
use crate::world::{Inside, World, enter, net::Errno};

pub(super) fn symbols() -> [usize; 5] {
    [
        mmap as *const () as usize,
        mmap64 as *const () as usize,
        munmap as *const () as usize,
        msync as *const () as usize,
        mremap as *const () as usize,
    ]
}

/// The unit of maps, in bytes.
const PAGE: usize = 4_096;

/// How many maps of files the simulations of this process have. Most calls concern the memory of an
/// allocator or a stack, and need no look at the world.
static MAPS: AtomicUsize = AtomicUsize::new(0);

/// The pages of a file that is mapped. Several maps of it share them.
pub(crate) struct Pages {
    pub(crate) fd: c_int,
    /// All of them, in memory.
    view: *mut u8,
    len: usize,
}

// SAFETY: the view belongs to the value alone.
unsafe impl Send for Pages {}

impl Pages {
    pub(crate) fn new() -> Result<Self, Errno> {
        let fd = real!(SYS_memfd_create, c"map".as_ptr(), libc::MFD_CLOEXEC) as c_int;
        match fd {
            0.. => Ok(Self {
                fd,
                view: ptr::null_mut(),
                len: 0,
            }),
            _ => Err(libc::ENOMEM),
        }
    }

    /// Has at least so many bytes from now on, in whole pages. New ones are zeros.
    pub(crate) fn grow(&mut self, len: usize) -> Result<(), Errno> {
        let len = in_pages(len).ok_or(libc::ENOMEM)?;
        if len <= self.len {
            return Ok(());
        }
        if real!(SYS_ftruncate, self.fd, len) < 0 {
            return Err(libc::ENOMEM);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let view = real!(SYS_mmap, 0, len, access, libc::MAP_SHARED, self.fd, 0);
        if view == -1 {
            return Err(libc::ENOMEM);
        }
        self.forget_view();
        (self.view, self.len) = (view as *mut u8, len);
        Ok(())
    }

    /// Returns all bytes. A program may change them at any time that no thread is here.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: it is mapped. Only one thread of the simulation runs, and it is here.
            len => unsafe { slice::from_raw_parts(self.view, len) },
        }
    }

    /// Writes where there are pages.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).map_or(self.len, |at| at.min(self.len));
        let len = bytes.len().min(self.len - at);
        if len == 0 {
            return;
        }
        // SAFETY: it is mapped, and the bytes are within it.
        unsafe {
            self.view
                .add(at)
                .copy_from_nonoverlapping(bytes.as_ptr(), len)
        };
    }

    /// Makes all bytes from there on zeros.
    pub(crate) fn cut(&mut self, at: u64) {
        let at = usize::try_from(at).map_or(self.len, |at| at.min(self.len));
        if at < self.len {
            // SAFETY: it is mapped, and the bytes are within it.
            unsafe { self.view.add(at).write_bytes(0, self.len - at) };
        }
    }

    fn forget_view(&self) {
        if self.len > 0 {
            real!(SYS_munmap, self.view, self.len);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.forget_view();
        really_close(self.fd);
    }
}

/// Returns a length in whole pages.
fn in_pages(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(PAGE)
}

/// Enters the simulation for a call on memory, if there are maps of files at all.
fn on_memory() -> Option<Inside> {
    // An access of an atomic is a point, at which an allocator that unmaps may have a lock.
    // SAFETY: the value lives for ever, and only one thread of the simulation runs.
    match unsafe { MAPS.as_ptr().read_volatile() } {
        0 => None,
        _ => enter(),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    at: off64_t,
) -> *mut c_void {
    let is_of_file = fd >= 0 && flags & libc::MAP_ANONYMOUS == 0;
    let Some(world) = is_of_file.then(|| on_file(fd)).flatten() else {
        let memory = real!(SYS_mmap, address, len, access, flags, fd, at) as *mut c_void;
        if flags & libc::MAP_FIXED != 0 && memory != libc::MAP_FAILED {
            forget(memory as usize, len);
        }
        return memory;
    };
    world.point();
    let mapped = map(&world, [address as usize, len], [access, flags], fd, at);
    answer(mapped) as *mut c_void
}

/// Maps a part of a file. Whoever writes to a private map has pages of their own from there on.
fn map(
    world: &World,
    [address, len]: [usize; 2],
    [access, flags]: [c_int; 2],
    fd: c_int,
    at: off64_t,
) -> Result<usize, Errno> {
    // As the kernel does, before it looks at the file.
    let len = in_pages(len).filter(|len| isize::try_from(*len).is_ok());
    let len = match len {
        Some(0) => return Err(libc::EINVAL),
        _ if at % PAGE as off64_t != 0 => return Err(libc::EINVAL),
        None => return Err(libc::ENOMEM),
        Some(len) => len,
    };
    let end = at.checked_add(len as off64_t).filter(|_| at >= 0);
    let end = end.ok_or(libc::EOVERFLOW)? as usize;
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let mut state = world.lock();
    let pages = state.pages(fd, end, is_shared && access & libc::PROT_WRITE != 0)?;
    // SAFETY: the caller of `mmap` vouches for the address. The pages are those of this module.
    let memory = unsafe {
        let of_pages = [access, flags, pages].map(|it| it as usize);
        let [access, flags, pages] = of_pages;
        raw::answer(
            libc::SYS_mmap,
            [address, len, access, flags, pages, at as usize],
        )
    };
    if (-4_095..0).contains(&memory) {
        state.forget_pages();
        return Err(-memory as Errno);
    }
    if flags & libc::MAP_FIXED != 0 {
        count(state.unmap(memory as usize, len));
    }
    state.map(fd, at as u64, memory as usize, len, is_shared)?;
    count((0, 1));
    Ok(memory as usize)
}

/// Counts maps that are gone, and new ones.
fn count((gone, new): (usize, usize)) {
    MAPS.fetch_add(new, Relaxed);
    MAPS.fetch_sub(gone, Relaxed);
}

/// A piece of memory has no maps any more.
fn forget(address: usize, len: usize) {
    if let (Some(world), Some(len)) = (on_memory(), in_pages(len)) {
        count(world.lock().unmap(address, len));
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    // SAFETY: the caller vouches for the arguments.
    unsafe { mmap64(address, len, access, flags, fd, at) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    let result = real!(SYS_munmap, address, len) as c_int;
    if result == 0 {
        forget(address as usize, len);
    }
    result
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // It finds what is wrong with the arguments.
    let result = real!(SYS_msync, address, len, flags) as c_int;
    // As on Linux, MS_ASYNC does nothing.
    if result != 0 || len == 0 || flags & libc::MS_SYNC == 0 {
        return result;
    }
    let Some(world) = on_memory() else {
        return result;
    };
    let mut files = world.lock().mapped_files(address as usize, len).into_iter();
    done(files.try_for_each(|file| world.sync_map(file)))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    address: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let is_of_file = on_memory()
        .is_some_and(|world| !world.lock().mapped_files(address as usize, len).is_empty());
    match is_of_file {
        // Who asks has another way: to map the file again.
        true => fail(libc::ENOMEM) as isize as *mut c_void,
        false => real!(SYS_mremap, address, len, new_len, flags, to) as *mut c_void,
    }
}
