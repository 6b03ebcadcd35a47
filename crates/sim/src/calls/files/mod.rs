//! Files on the disks of the hosts, by their descriptors.

mod descriptors;
mod listing;
mod locks;
mod maps;
mod names;
mod stat;

use std::{
    ffi::{CStr, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use libc::{c_char, c_int, c_void, mode_t, off_t, off64_t, size_t, ssize_t};

use super::{
    answer, bytes, done, fail, open as open_object,
    outside::{leaves_by_path, refuse_wait},
    poll::has_room,
    raw::real,
};
use crate::world::{
    Ended, Inside, NEVER, Wait, World,
    disk::{LockKind, Place, Range},
    enter,
    kernel::Object,
    net::Errno,
};

pub(super) fn symbols() -> Vec<usize> {
    let mut symbols = vec![
        open as *const () as usize,
        open64 as *const () as usize,
        openat as *const () as usize,
        openat64 as *const () as usize,
        pread as *const () as usize,
        pread64 as *const () as usize,
        pwrite as *const () as usize,
        pwrite64 as *const () as usize,
        lseek as *const () as usize,
        lseek64 as *const () as usize,
        ftruncate as *const () as usize,
        ftruncate64 as *const () as usize,
        fsync as *const () as usize,
        fdatasync as *const () as usize,
        sync as *const () as usize,
        syncfs as *const () as usize,
        flock as *const () as usize,
    ];
    symbols.extend(descriptors::symbols());
    symbols.extend(names::symbols());
    symbols.extend(listing::symbols());
    symbols.extend(maps::symbols());
    symbols.extend(stat::symbols());
    symbols
}

pub(super) use self::{descriptors::share, listing::find, locks::of_record};
pub(crate) use self::{listing::Listings, maps::Pages};

/// Enters the simulation for a call on a file of a disk.
pub(super) fn on_file(fd: c_int) -> Option<Inside> {
    enter().filter(|world| world.lock().kernel.file(fd).is_some())
}

/// Enters the simulation for a call on a path, if that is on the disk of the calling thread's host.
///
/// # Safety
///
/// `path` is a text that ends with a zero byte.
unsafe fn on_path(from: c_int, path: *const c_char) -> Option<(Inside, Place)> {
    let world = enter()?;
    if path.is_null() {
        return None;
    }
    // SAFETY: as the caller says.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut state = world.lock();
    let relative = state.directory(from);
    let disk = state.volume()?;
    let place = match (path.first(), relative) {
        (None, _) => None,
        (Some(b'/'), _) => on_mount(&disk.mount, path),
        (_, Some(dir)) => Some(Place::new(dir, path)),
        // A real directory is on no disk.
        _ if from != libc::AT_FDCWD => None,
        _ => {
            let here = std::env::current_dir().ok()?.into_os_string();
            on_mount(&disk.mount, &[here.as_bytes(), b"/", path].concat())
        }
    }?;
    drop(state);
    Some((world, place))
}

/// Returns whether a path is on the disk of the calling thread's host.
///
/// # Safety
///
/// `path` is a text that ends with a zero byte, or null.
pub(super) unsafe fn is_on_disk(path: *const c_char) -> bool {
    // SAFETY: as the caller says.
    unsafe { on_path(libc::AT_FDCWD, path) }.is_some()
}

/// Returns whether a path is that of a file of random bytes.
///
/// # Safety
///
/// `path` is a text that ends with a zero byte, or null.
unsafe fn is_random(path: *const c_char) -> bool {
    // SAFETY: as the caller says.
    !path.is_null() && [c"/dev/urandom", c"/dev/random"].contains(&unsafe { CStr::from_ptr(path) })
}

/// Returns whether a path is that of what the real machine allows this process: its cores and its
/// memory. A host has no such files, as a system without control groups.
///
/// # Safety
///
/// `path` is a text that ends with a zero byte, or null.
pub(super) unsafe fn is_hidden(path: *const c_char) -> bool {
    if path.is_null() || crate::world::me().is_none() {
        return false;
    }
    // SAFETY: as the caller says.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let of_process = |rest: &[u8]| {
        let end = rest.iter().rposition(|byte| *byte == b'/');
        end.is_some_and(|end| &rest[end..] == b"/cgroup")
    };
    path.starts_with(b"/sys/fs/cgroup") || path.strip_prefix(b"/proc/").is_some_and(of_process)
}

/// Returns where an absolute path leads on a disk, if it begins with the path of the disk.
fn on_mount(mount: &Path, path: &[u8]) -> Option<Place> {
    let mut at = PathBuf::from("/");
    let mut rest = path;
    loop {
        while let [b'/', behind @ ..] = rest {
            rest = behind;
        }
        if at == mount {
            return Some(Place::on_mount(rest));
        }
        if rest.is_empty() {
            return None;
        }
        let end = rest
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(rest.len());
        let name = Path::new(OsStr::from_bytes(&rest[..end]));
        match name.components().next() {
            Some(Component::ParentDir) => _ = at.pop(),
            Some(Component::Normal(name)) => at.push(name),
            _ => {}
        }
        rest = &rest[end..];
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    from: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { openat(from, path, flags, mode) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn openat(from: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(from, path) }) else {
        // SAFETY: as above.
        return match unsafe { is_random(path) }.then(enter).flatten() {
            Some(world) => open_object(&world, Object::Random),
            // SAFETY: as above.
            None if unsafe { is_hidden(path) } => fail(libc::ENOENT),
            None => {
                // SAFETY: as above.
                unsafe { leaves_by_path("open", path) };
                real!(SYS_openat, from, path, flags, mode) as c_int
            }
        };
    };
    world.point();
    // The flag contains the bit of O_DIRECTORY, so both are compared.
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return fail(libc::EOPNOTSUPP);
    }
    // As in the kernel, before the call makes a file.
    if !has_room(&world) {
        return -1;
    }
    let opened = world.lock().open(&place, flags, mode);
    match opened {
        Ok(object) => open_object(&world, object),
        Err(errno) => fail(errno),
    }
}

/// Reads from a file.
pub(super) fn read_at(
    world: &World,
    fd: c_int,
    range: Range,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    world.point();
    world.lock().read_file(fd, range, buffer)
}

/// Writes to a file, and to the disk if it was opened so.
pub(super) fn write_at(
    world: &World,
    fd: c_int,
    range: Range,
    bytes: &[u8],
) -> Result<usize, Errno> {
    world.point();
    let count = world.lock().write_file(fd, range, bytes)?;
    if count > 0 {
        world.sync_if_asked(fd)?;
    }
    Ok(count)
}

/// Reads from a file, for `read` and `pread`.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
pub(super) unsafe fn read(
    world: &World,
    fd: c_int,
    range: Range,
    buffer: *mut c_void,
    len: size_t,
) -> ssize_t {
    // The caller's buffer may not be initialized, so the bytes go through another one.
    let mut own = vec![0; world.lock().readable(fd, range, len)];
    let result = read_at(world, fd, range, &mut own);
    if let Ok(count) = result {
        // SAFETY: the caller passes room for `len` bytes, and `count` is not greater.
        unsafe { own.as_ptr().copy_to_nonoverlapping(buffer.cast(), count) };
    }
    answer(result)
}

/// Writes to a file, for `write` and `pwrite`.
///
/// # Safety
///
/// `buffer` has `len` bytes.
pub(super) unsafe fn write(
    world: &World,
    fd: c_int,
    range: Range,
    buffer: *const c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: as the caller says.
    let bytes = unsafe { bytes(buffer, len) };
    answer(write_at(world, fd, range, bytes))
}

fn range(at: off64_t) -> Result<Range, c_int> {
    u64::try_from(at).map(Range::From).map_err(|_| libc::EINVAL)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(fd: c_int, buffer: *mut c_void, len: size_t, at: off64_t) -> ssize_t {
    let Some(world) = on_file(fd) else {
        return real!(SYS_pread64, fd, buffer, len, at);
    };
    match range(at) {
        // SAFETY: the caller passes room for `len` bytes.
        Ok(range) => unsafe { read(&world, fd, range, buffer, len) },
        Err(errno) => fail(errno) as ssize_t,
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pread(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller vouches for the arguments.
    unsafe { pread64(fd, buffer, len, at) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    at: off64_t,
) -> ssize_t {
    let Some(world) = on_file(fd) else {
        return real!(SYS_pwrite64, fd, buffer, len, at);
    };
    match range(at) {
        // SAFETY: the caller passes `len` bytes.
        Ok(range) => unsafe { write(&world, fd, range, buffer, len) },
        Err(errno) => fail(errno) as ssize_t,
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller vouches for the arguments.
    unsafe { pwrite64(fd, buffer, len, at) }
}

#[unsafe(no_mangle)]
extern "C" fn lseek64(fd: c_int, by: off64_t, from: c_int) -> off64_t {
    let Some(world) = on_file(fd) else {
        return real!(SYS_lseek, fd, by, from) as off64_t;
    };
    world.point();
    let result = world.lock().seek(fd, by, from);
    answer(result) as off64_t
}

#[unsafe(no_mangle)]
extern "C" fn lseek(fd: c_int, by: off_t, from: c_int) -> off_t {
    lseek64(fd, by, from)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, len: off64_t) -> c_int {
    let Some(world) = on_file(fd) else {
        return real!(SYS_ftruncate, fd, len) as c_int;
    };
    world.point();
    let result = world.lock().resize(fd, len);
    done(result)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    ftruncate64(fd, len)
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    match on_file(fd) {
        Some(world) => done(world.sync_file(fd)),
        None => real!(SYS_fsync, fd) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    match on_file(fd) {
        Some(world) => done(world.sync_file(fd)),
        None => real!(SYS_fdatasync, fd) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn syncfs(fd: c_int) -> c_int {
    match on_file(fd) {
        Some(world) => done(world.sync_all(Some(fd))),
        None => real!(SYS_syncfs, fd) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn sync() {
    match enter() {
        // It reports no errors.
        Some(world) => _ = world.sync_all(None),
        None => _ = real!(SYS_sync),
    }
}

#[unsafe(no_mangle)]
extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    let Some(world) = on_file(fd) else {
        let tried = real!(SYS_flock, fd, operation | libc::LOCK_NB) as c_int;
        // SAFETY: the pointer is valid for the calling thread.
        let waits = tried < 0 && unsafe { *libc::__errno_location() } == libc::EWOULDBLOCK;
        if !waits || operation & libc::LOCK_NB != 0 {
            return tried;
        }
        refuse_wait(|| format!("flock({fd})"));
        return real!(SYS_flock, fd, operation) as c_int;
    };
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => Some(LockKind::Shared),
        libc::LOCK_EX => Some(LockKind::Exclusive),
        libc::LOCK_UN => None,
        _ => return fail(libc::EINVAL),
    };
    loop {
        world.point();
        let mut state = world.lock();
        match state.lock_file(fd, kind) {
            Err(libc::EAGAIN) if operation & libc::LOCK_NB == 0 => {
                let ended = world.wait(state, Wait::FileLock, NEVER);
                if ended == (Ended::Handler { restarts: false }) {
                    return fail(libc::EINTR);
                }
            }
            result => return done(result),
        }
    }
}
