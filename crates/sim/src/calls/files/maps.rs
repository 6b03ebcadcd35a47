//! Files of disks in memory (`mmap`).
//!
//! The pages of a shared map are those of a real file without a name, which the world compares with
//! its own file before each look at it: see `world::disk::maps`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
const PAGE: u64 = 4_096;

/// How many maps of files the simulations of this process have. Most calls concern the memory of an
/// allocator or a stack, and need no look at the world.
static MAPS: AtomicUsize = AtomicUsize::new(0);

/// The pages of a file that is mapped. Several maps of it share them.
pub(crate) struct Pages {
    pub(crate) fd: c_int,
    len: u64,
}

impl Pages {
    pub(crate) fn new() -> Result<Self, Errno> {
        let fd = real!(SYS_memfd_create, c"map".as_ptr(), libc::MFD_CLOEXEC) as c_int;
        match fd {
            0.. => Ok(Self { fd, len: 0 }),
            _ => Err(libc::ENOMEM),
        }
    }

    /// Has at least so many bytes from now on. New ones are zeros.
    pub(crate) fn grow(&mut self, len: u64) {
        if len > self.len {
            real!(SYS_ftruncate, self.fd, len);
            self.len = len;
        }
    }

    /// Makes all bytes from there on zeros.
    pub(crate) fn cut(&mut self, at: u64) {
        if at < self.len {
            real!(SYS_ftruncate, self.fd, at);
            real!(SYS_ftruncate, self.fd, self.len);
        }
    }

    /// Fills `bytes` with what is there.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        real!(SYS_pread64, self.fd, bytes.as_mut_ptr(), bytes.len(), at);
    }

    /// Writes where there are pages.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = bytes.len().min(left);
        real!(SYS_pwrite64, self.fd, bytes.as_ptr(), len, at);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        really_close(self.fd);
    }
}

/// Enters the simulation for a call on memory, if there are maps of files at all.
fn on_memory() -> Option<Inside> {
    match MAPS.load(Relaxed) {
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
        return real!(SYS_mmap, address, len, access, flags, fd, at) as *mut c_void;
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
    let at = u64::try_from(at).map_err(|_| libc::EINVAL)?;
    if len == 0 || at % PAGE != 0 {
        return Err(libc::EINVAL);
    }
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let mut state = world.lock();
    let pages = state.pages(fd, at, len, is_shared && access & libc::PROT_WRITE != 0)?;
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
        return Err(-memory as Errno);
    }
    if is_shared {
        state.map(fd, at, memory as usize, len)?;
        MAPS.fetch_add(1, Relaxed);
    }
    Ok(memory as usize)
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
    if let Some(world) = on_memory() {
        let (gone, new) = world.lock().unmap(address as usize, len);
        MAPS.fetch_add(new, Relaxed);
        MAPS.fetch_sub(gone, Relaxed);
    }
    real!(SYS_munmap, address, len) as c_int
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let of_disk = on_memory().map(|world| {
        let files = world.lock().mapped_files(address as usize, len);
        (world, files)
    });
    match of_disk {
        Some((world, files)) if !files.is_empty() => {
            // As on Linux, MS_ASYNC does nothing.
            let asks = flags & libc::MS_SYNC != 0;
            let mut files = files.into_iter().filter(|_| asks);
            done(files.try_for_each(|file| world.sync_map(file)))
        }
        _ => real!(SYS_msync, address, len, flags) as c_int,
    }
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
