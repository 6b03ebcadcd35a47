//! Directories that are listed.

use std::{
    collections::BTreeMap,
    ffi::{OsString, c_char},
    mem,
    os::unix::ffi::OsStrExt,
    ptr,
    sync::atomic::AtomicUsize,
};

use libc::{DIR, c_int, dirent64};

use super::{
    super::{fail, thread::original},
    on_file, open,
};
use crate::world::{disk::Inode, enter};

pub(super) fn symbols() -> [usize; 6] {
    [
        opendir as *const () as usize,
        fdopendir as *const () as usize,
        readdir as *const () as usize,
        readdir64 as *const () as usize,
        closedir as *const () as usize,
        dirfd as *const () as usize,
    ]
}

/// A directory that a program lists, as its pointer to `DIR` refers to it.
pub(crate) struct Listing {
    fd: c_int,
    left: std::vec::IntoIter<(OsString, Inode, bool)>,
    /// What the last call returned.
    entry: dirent64,
}

/// The directories that programs list, by their pointers.
pub(crate) type Listings = BTreeMap<usize, Box<Listing>>;

static OPEN: AtomicUsize = AtomicUsize::new(0);
static OPEN_FD: AtomicUsize = AtomicUsize::new(0);
static READ: AtomicUsize = AtomicUsize::new(0);
static CLOSE: AtomicUsize = AtomicUsize::new(0);
static FD: AtomicUsize = AtomicUsize::new(0);
static RESOLVE: AtomicUsize = AtomicUsize::new(0);

/// Looks up the C library's own functions.
pub(in crate::calls) fn find() {
    original(&OPEN, c"opendir");
    original(&OPEN_FD, c"fdopendir");
    original(&READ, c"readdir64");
    original(&CLOSE, c"closedir");
    original(&FD, c"dirfd");
    original(&RESOLVE, c"realpath");
}

/// The C library's own `realpath`.
pub(super) unsafe fn really_resolve(path: *const c_char, to: *mut c_char) -> *mut c_char {
    type Resolve = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    let found = original(&RESOLVE, c"realpath");
    // SAFETY: this is the function's type, and the caller vouches for its arguments.
    unsafe { mem::transmute::<usize, Resolve>(found)(path, to) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the caller passes a text.
    let is_simulated = unsafe { super::on_path(libc::AT_FDCWD, path) }.is_some();
    if !is_simulated {
        type Open = unsafe extern "C" fn(*const c_char) -> *mut DIR;
        let found = original(&OPEN, c"opendir");
        // SAFETY: this is the function's type, and the caller vouches for its arguments.
        return unsafe { mem::transmute::<usize, Open>(found)(path) };
    }
    // SAFETY: the caller vouches for the path.
    let fd = unsafe { open(path, libc::O_RDONLY | libc::O_DIRECTORY, 0) };
    match fd {
        // SAFETY: the descriptor is new.
        0.. => unsafe { fdopendir(fd) },
        _ => ptr::null_mut(),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    let Some(world) = on_file(fd) else {
        type Open = unsafe extern "C" fn(c_int) -> *mut DIR;
        let found = original(&OPEN_FD, c"fdopendir");
        // SAFETY: this is the function's type, and the caller vouches for its arguments.
        return unsafe { mem::transmute::<usize, Open>(found)(fd) };
    };
    world.point();
    let mut state = world.lock();
    let inode = state.inode(fd);
    let names = inode.and_then(|inode| state.on_disk(|disk, _| disk.list(inode)));
    match names {
        Ok(names) => {
            let mut listing = Box::new(Listing {
                fd,
                left: names.into_iter(),
                // SAFETY: all bytes may be zero.
                entry: unsafe { mem::zeroed() },
            });
            let at: *mut Listing = &mut *listing;
            state.listings.insert(at as usize, listing);
            at.cast()
        }
        Err(errno) => {
            fail(errno);
            ptr::null_mut()
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readdir64(dir: *mut DIR) -> *mut dirent64 {
    let entered = enter().filter(|world| world.lock().listings.contains_key(&(dir as usize)));
    let Some(world) = entered else {
        type Read = unsafe extern "C" fn(*mut DIR) -> *mut dirent64;
        let found = original(&READ, c"readdir64");
        // SAFETY: this is the function's type, and the caller vouches for its arguments.
        return unsafe { mem::transmute::<usize, Read>(found)(dir) };
    };
    world.point();
    let mut state = world.lock();
    let Some(listing) = state.listings.get_mut(&(dir as usize)) else {
        return ptr::null_mut();
    };
    let Some((name, inode, is_dir)) = listing.left.next() else {
        return ptr::null_mut();
    };
    let entry = &mut listing.entry;
    entry.d_ino = inode;
    entry.d_off += 1;
    entry.d_reclen = size_of::<dirent64>() as u16;
    entry.d_type = if is_dir { libc::DT_DIR } else { libc::DT_REG };
    // A name has at most 255 bytes, and a zero byte ends it.
    for (to, byte) in entry
        .d_name
        .iter_mut()
        .zip(name.as_bytes().iter().chain([&0]))
    {
        *to = *byte as c_char;
    }
    entry
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readdir(dir: *mut DIR) -> *mut dirent64 {
    // SAFETY: the caller vouches for the pointer. Both functions have the same entries on systems
    // of 64 bits.
    unsafe { readdir64(dir) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn closedir(dir: *mut DIR) -> c_int {
    let listing = enter().and_then(|world| world.lock().listings.remove(&(dir as usize)));
    match listing {
        // SAFETY: the descriptor was the directory's own.
        Some(listing) => unsafe { libc::close(listing.fd) },
        None => {
            type Close = unsafe extern "C" fn(*mut DIR) -> c_int;
            let found = original(&CLOSE, c"closedir");
            // SAFETY: this is the function's type, and the caller vouches for its arguments.
            unsafe { mem::transmute::<usize, Close>(found)(dir) }
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dirfd(dir: *mut DIR) -> c_int {
    let fd = enter().and_then(|world| {
        let state = world.lock();
        Some(state.listings.get(&(dir as usize))?.fd)
    });
    fd.unwrap_or_else(|| {
        type Fd = unsafe extern "C" fn(*mut DIR) -> c_int;
        let found = original(&FD, c"dirfd");
        // SAFETY: this is the function's type, and the caller vouches for its arguments.
        unsafe { mem::transmute::<usize, Fd>(found)(dir) }
    })
}
