//! Files on the disks of the hosts, by their paths.

use libc::{c_char, c_int, c_uint, mode_t, off64_t, ssize_t, timespec};

use super::{
    super::{clock::nanos, done, fail, outside::leaves_by_path, raw::real},
    is_hidden, on_file, on_path,
};
use crate::world::{
    Inside, World,
    disk::{Inode, Place, Volume},
    net::Errno,
};

pub(super) fn symbols() -> Vec<usize> {
    vec![
        rename as *const () as usize,
        renameat as *const () as usize,
        renameat2 as *const () as usize,
        unlink as *const () as usize,
        unlinkat as *const () as usize,
        rmdir as *const () as usize,
        mkdir as *const () as usize,
        mkdirat as *const () as usize,
        link as *const () as usize,
        linkat as *const () as usize,
        symlink as *const () as usize,
        symlinkat as *const () as usize,
        readlink as *const () as usize,
        realpath as *const () as usize,
        access as *const () as usize,
        faccessat as *const () as usize,
        chmod as *const () as usize,
        fchmod as *const () as usize,
        truncate as *const () as usize,
        truncate64 as *const () as usize,
        futimens as *const () as usize,
        utimensat as *const () as usize,
    ]
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { renameat2(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { renameat2(at, from, to_at, to, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller passes two texts.
    let entered = unsafe { on_two(at, from, to_at, to) };
    let (world, old, new) = match entered {
        Ok(Some(found)) => found,
        Ok(None) => {
            // SAFETY: as above.
            unsafe { leaves_by_path("rename", from) };
            return real!(SYS_renameat2, at, from, to_at, to, flags) as c_int;
        }
        Err(errno) => return fail(errno),
    };
    let replaces = match flags {
        0 => true,
        libc::RENAME_NOREPLACE => false,
        _ => return fail(libc::EINVAL),
    };
    on_disk(&world, |disk, now| disk.rename(&old, &new, replaces, now))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(at, path) }) else {
        // SAFETY: as above.
        unsafe { leaves_by_path("unlink", path) };
        return real!(SYS_unlinkat, at, path, flags) as c_int;
    };
    on_disk(&world, |disk, now| match flags & libc::AT_REMOVEDIR {
        0 => disk.remove_file(&place, now),
        _ => disk.remove_dir(&place, now),
    })
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(at: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(at, path) }) else {
        // SAFETY: as above.
        unsafe { leaves_by_path("mkdir", path) };
        return real!(SYS_mkdirat, at, path, mode) as c_int;
    };
    on_disk(&world, |disk, now| disk.make_dir(&place, mode, now))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller passes two texts.
    match unsafe { on_two(at, from, to_at, to) } {
        Ok(Some((world, old, new))) => on_disk(&world, |disk, now| disk.link(&old, &new, now)),
        Ok(None) => {
            // SAFETY: as above.
            unsafe { leaves_by_path("link", from) };
            real!(SYS_linkat, at, from, to_at, to, flags) as c_int
        }
        Err(errno) => fail(errno),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(to: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { symlinkat(to, libc::AT_FDCWD, path) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn symlinkat(to: *const c_char, at: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller passes a text.
    match unsafe { on_path(at, path) } {
        // So does Linux if a file system has none.
        Some(_) => fail(libc::EPERM),
        None => {
            // SAFETY: as above.
            unsafe { leaves_by_path("symlink", path) };
            real!(SYS_symlinkat, to, at, path) as c_int
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, to: *mut c_char, room: usize) -> ssize_t {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(libc::AT_FDCWD, path) }) else {
        // SAFETY: as above.
        unsafe { leaves_by_path("readlink", path) };
        return real!(SYS_readlinkat, libc::AT_FDCWD, path, to, room);
    };
    // It is a file or a directory, if it is there.
    let found = world.lock().on_disk(|disk, _| disk.find(&place));
    fail(found.err().unwrap_or(libc::EINVAL)) as ssize_t
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(libc::AT_FDCWD, path) }) else {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { super::listing::really_resolve(path, to) };
    };
    let found = world.lock().on_disk(|disk, _| disk.path(&place));
    let found = found.and_then(|path| match to.is_null() || path.len() < 4_096 {
        true => Ok(path),
        false => Err(libc::ENAMETOOLONG),
    });
    let path = match found {
        Ok(path) => path,
        Err(errno) => {
            fail(errno);
            return std::ptr::null_mut();
        }
    };
    // SAFETY: the place is new, or the caller's, who has room for the longest path there is.
    unsafe {
        let to = match to.is_null() {
            true => libc::malloc(path.len() + 1).cast::<c_char>(),
            false => to,
        };
        if !to.is_null() {
            path.as_ptr().copy_to_nonoverlapping(to.cast(), path.len());
            *to.add(path.len()) = 0;
        }
        to
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller passes a text.
    match unsafe { on_path(at, path) } {
        Some((world, place)) => on_disk(&world, |disk, _| disk.find(&place).map(drop)),
        // SAFETY: as above.
        None if unsafe { is_hidden(path) } => fail(libc::ENOENT),
        None => {
            // SAFETY: as above.
            unsafe { leaves_by_path("access", path) };
            real!(SYS_faccessat, at, path, mode, flags) as c_int
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(libc::AT_FDCWD, path) }) else {
        // SAFETY: as above.
        unsafe { leaves_by_path("chmod", path) };
        return real!(SYS_fchmodat, libc::AT_FDCWD, path, mode) as c_int;
    };
    on_disk(&world, |disk, _| {
        let inode = disk.find(&place)?;
        disk.set_mode(inode, mode);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    let Some(world) = on_file(fd) else {
        return real!(SYS_fchmod, fd, mode) as c_int;
    };
    let changed = world.lock().on_open(fd, |disk, inode, _| {
        disk.set_mode(inode, mode);
        Ok(())
    });
    done(changed)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn truncate64(path: *const c_char, len: off64_t) -> c_int {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(libc::AT_FDCWD, path) }) else {
        // SAFETY: as above.
        unsafe { leaves_by_path("truncate", path) };
        return real!(SYS_truncate, path, len) as c_int;
    };
    on_disk(&world, |disk, now| {
        let inode = disk.find(&place)?;
        let len = u64::try_from(len).map_err(|_| libc::EINVAL)?;
        disk.resize(inode, len, now)
    })
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, len: off64_t) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { truncate64(path, len) }
}

/// Sets the time of the last change to the second one of two times.
///
/// # Safety
///
/// `times` is null, or has two times.
unsafe fn set_times(disk: &mut Volume, inode: Inode, now: u64, times: *const timespec) {
    let to = match times.is_null() {
        true => now,
        false => {
            // SAFETY: as the caller says.
            let time = unsafe { *times.add(1) };
            match time.tv_nsec {
                libc::UTIME_NOW => now,
                libc::UTIME_OMIT => return,
                _ => nanos(time),
            }
        }
    };
    disk.set_modified(inode, to);
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn futimens(fd: c_int, times: *const timespec) -> c_int {
    let Some(world) = on_file(fd) else {
        return real!(SYS_utimensat, fd, 0, times, 0) as c_int;
    };
    let changed = world.lock().on_open(fd, |disk, inode, now| {
        // SAFETY: the caller passes two times, or none.
        unsafe { set_times(disk, inode, now, times) };
        Ok(())
    });
    done(changed)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn utimensat(
    at: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller passes a text.
    let Some((world, place)) = (unsafe { on_path(at, path) }) else {
        return real!(SYS_utimensat, at, path, times, flags) as c_int;
    };
    on_disk(&world, |disk, now| {
        let inode = disk.find(&place)?;
        // SAFETY: the caller passes two times, or none.
        unsafe { set_times(disk, inode, now, times) };
        Ok(())
    })
}

/// Enters the simulation for a call on two paths. `None` if none is on the disk of the caller's
/// host. If one is, they are on two file systems.
///
/// # Safety
///
/// Both paths are texts.
unsafe fn on_two(
    at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
) -> Result<Option<(Inside, Place, Place)>, Errno> {
    // SAFETY: as the caller says. The first guard is dropped before the second one is made.
    let old = unsafe { on_path(at, from) }.map(|(_, place)| place);
    // SAFETY: as above.
    let new = unsafe { on_path(to_at, to) };
    match (old, new) {
        (Some(old), Some((world, new))) => Ok(Some((world, old, new))),
        (None, None) => Ok(None),
        _ => Err(libc::EXDEV),
    }
}

/// Passes a point, and changes the disk of the calling thread's host.
fn on_disk(world: &World, f: impl FnOnce(&mut Volume, u64) -> Result<(), Errno>) -> c_int {
    world.point();
    let result = world.lock().on_disk(f);
    done(result)
}
