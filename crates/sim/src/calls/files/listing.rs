//! Directories that are listed.

use std::{
    collections::BTreeMap,
    ffi::{OsString, c_char},
    mem,
    os::unix::ffi::OsStrExt,
    ptr,
    sync::atomic::AtomicUsize,
};

use libc::{DIR, c_int, c_long, dirent64, off64_t};

use super::{
    super::{fail, outside::leaves_by_path, raw::really, thread::original},
    on_file, open,
};
use crate::world::{Inside, World, decide::Class, disk::Inode, enter, net::Errno};

pub(super) fn symbols() -> [usize; 11] {
    [
        opendir as *const () as usize,
        fdopendir as *const () as usize,
        readdir as *const () as usize,
        readdir64 as *const () as usize,
        closedir as *const () as usize,
        dirfd as *const () as usize,
        rewinddir as *const () as usize,
        telldir as *const () as usize,
        seekdir as *const () as usize,
        readdir_r as *const () as usize,
        readdir64_r as *const () as usize,
    ]
}

/// A directory that a program lists, as its pointer to `DIR` refers to it.
pub(crate) struct Listing {
    fd: c_int,
    names: Vec<(OsString, Inode, bool)>,
    /// How many were returned.
    at: usize,
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
static REWIND: AtomicUsize = AtomicUsize::new(0);
static TELL: AtomicUsize = AtomicUsize::new(0);
static SEEK: AtomicUsize = AtomicUsize::new(0);
static READ_TO: AtomicUsize = AtomicUsize::new(0);
static RESOLVE: AtomicUsize = AtomicUsize::new(0);

/// Looks up the C library's own functions.
pub(in crate::calls) fn find() {
    original(&OPEN, c"opendir");
    original(&OPEN_FD, c"fdopendir");
    original(&READ, c"readdir64");
    original(&CLOSE, c"closedir");
    original(&FD, c"dirfd");
    original(&REWIND, c"rewinddir");
    original(&TELL, c"telldir");
    original(&SEEK, c"seekdir");
    original(&READ_TO, c"readdir64_r");
    original(&RESOLVE, c"realpath");
}

/// The C library's own `realpath`.
pub(super) unsafe fn really_resolve(path: *const c_char, to: *mut c_char) -> *mut c_char {
    really!(RESOLVE, c"realpath", path => *const c_char, to => *mut c_char => *mut c_char)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the caller passes a text.
    let is_simulated = unsafe { super::on_path(libc::AT_FDCWD, path) }.is_some();
    if !is_simulated {
        // SAFETY: as above.
        unsafe {
            if super::is_hidden(path) {
                fail(libc::ENOENT);
                return ptr::null_mut();
            }
            leaves_by_path("opendir", path);
        }
        return really!(OPEN, c"opendir", path => *const c_char => *mut DIR);
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
        return really!(OPEN_FD, c"fdopendir", fd => c_int => *mut DIR);
    };
    world.point();
    match names(&world, fd) {
        Ok(names) => {
            let mut listing = Box::new(Listing {
                fd,
                names,
                at: 0,
                // SAFETY: all bytes may be zero.
                entry: unsafe { mem::zeroed() },
            });
            let at: *mut Listing = &mut *listing;
            world.lock().listings.insert(at as usize, listing);
            at.cast()
        }
        Err(errno) => {
            fail(errno);
            ptr::null_mut()
        }
    }
}

/// Returns the names of a directory. Behind its own, they are in any order.
fn names(world: &World, fd: c_int) -> Result<Vec<(OsString, Inode, bool)>, Errno> {
    let mut state = world.lock();
    let mut names = state.on_open(fd, |disk, inode, _| disk.list(inode))?;
    let key = state.meet(Class::Which);
    if state.takes(key) {
        state.numbers(key).shuffle(&mut names[2..]);
    }
    Ok(names)
}

/// Returns the simulation, if a directory is listed there.
fn on_listing(dir: *mut DIR) -> Option<Inside> {
    enter().filter(|world| world.lock().listings.contains_key(&(dir as usize)))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn rewinddir(dir: *mut DIR) {
    let Some(world) = on_listing(dir) else {
        return really!(REWIND, c"rewinddir", dir => *mut DIR => ());
    };
    let fd = world.lock().listings[&(dir as usize)].fd;
    let found = names(&world, fd);
    if let Some(listing) = world.lock().listings.get_mut(&(dir as usize)) {
        (listing.names, listing.at) = (found.unwrap_or_default(), 0);
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn telldir(dir: *mut DIR) -> c_long {
    match on_listing(dir) {
        Some(world) => world.lock().listings[&(dir as usize)].at as c_long,
        None => really!(TELL, c"telldir", dir => *mut DIR => c_long),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn seekdir(dir: *mut DIR, to: c_long) {
    let Some(world) = on_listing(dir) else {
        return really!(SEEK, c"seekdir", dir => *mut DIR, to => c_long => ());
    };
    if let Some(listing) = world.lock().listings.get_mut(&(dir as usize)) {
        listing.at = usize::try_from(to).unwrap_or(0);
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readdir64_r(
    dir: *mut DIR,
    entry: *mut dirent64,
    result: *mut *mut dirent64,
) -> c_int {
    if on_listing(dir).is_none() {
        return really!(READ_TO, c"readdir64_r", dir => *mut DIR,
            entry => *mut dirent64, result => *mut *mut dirent64 => c_int);
    }
    // SAFETY: the caller passes a directory, and room for an entry and for a pointer.
    unsafe {
        let next = readdir64(dir);
        match next.is_null() {
            true => *result = next,
            false => {
                // The caller may have no room behind the name.
                let len = (*next).d_reclen as usize;
                next.cast::<u8>().copy_to_nonoverlapping(entry.cast(), len);
                *result = entry;
            }
        }
    }
    0
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readdir_r(
    dir: *mut DIR,
    entry: *mut dirent64,
    result: *mut *mut dirent64,
) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { readdir64_r(dir, entry, result) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readdir64(dir: *mut DIR) -> *mut dirent64 {
    let Some(world) = on_listing(dir) else {
        return really!(READ, c"readdir64", dir => *mut DIR => *mut dirent64);
    };
    world.point();
    let mut state = world.lock();
    let Some(listing) = state.listings.get_mut(&(dir as usize)) else {
        return ptr::null_mut();
    };
    let Some((name, inode, is_dir)) = listing.names.get(listing.at) else {
        return ptr::null_mut();
    };
    listing.at += 1;
    let entry = &mut listing.entry;
    entry.d_ino = *inode;
    entry.d_off = listing.at as off64_t;
    // The entry ends behind the zero byte of the name.
    entry.d_reclen = (mem::offset_of!(dirent64, d_name) + name.len() + 1) as u16;
    entry.d_type = if *is_dir { libc::DT_DIR } else { libc::DT_REG };
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
        None => really!(CLOSE, c"closedir", dir => *mut DIR => c_int),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dirfd(dir: *mut DIR) -> c_int {
    match on_listing(dir) {
        Some(world) => world.lock().listings[&(dir as usize)].fd,
        None => really!(FD, c"dirfd", dir => *mut DIR => c_int),
    }
}
