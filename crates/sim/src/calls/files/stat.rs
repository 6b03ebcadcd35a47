//! What the system says of files on the disks of the hosts.

use std::mem;

use libc::{c_char, c_int, c_uint, mode_t, stat64};

use super::{
    super::{fail, outside::leaves_by_path, raw::real},
    is_hidden, on_file, on_path,
};
use crate::world::{disk::Attributes, net::Errno};

pub(super) fn symbols() -> [usize; 9] {
    [
        stat as *const () as usize,
        lstat as *const () as usize,
        fstat as *const () as usize,
        fstatat as *const () as usize,
        stat_64 as *const () as usize,
        lstat_64 as *const () as usize,
        fstat_64 as *const () as usize,
        fstatat_64 as *const () as usize,
        statx as *const () as usize,
    ]
}

fn mode(of: &Attributes) -> mode_t {
    of.mode
        | if of.is_dir {
            libc::S_IFDIR
        } else {
            libc::S_IFREG
        }
}

/// Says of a file what `stat` says.
fn to_stat(of: &Attributes) -> stat64 {
    // SAFETY: all bytes may be zero.
    let mut stat: stat64 = unsafe { mem::zeroed() };
    stat.st_dev = libc::makedev(of.device[0], of.device[1]);
    stat.st_ino = of.inode;
    stat.st_mode = mode(of);
    stat.st_nlink = of.links as _;
    stat.st_size = of.len as _;
    stat.st_blksize = 4_096;
    stat.st_blocks = (of.takes / 512) as _;
    let (seconds, nanos) = (of.modified / 1_000_000_000, of.modified % 1_000_000_000);
    (stat.st_mtime, stat.st_mtime_nsec) = (seconds as _, nanos as _);
    (stat.st_atime, stat.st_atime_nsec) = (seconds as _, nanos as _);
    (stat.st_ctime, stat.st_ctime_nsec) = (seconds as _, nanos as _);
    stat
}

/// Returns what is known of a path relative to a directory, or of a descriptor if there is no path.
/// `None`: it is not on the disk of the caller's host.
///
/// # Safety
///
/// `path` is a text.
unsafe fn attributes(at: c_int, path: *const c_char) -> Option<Result<Attributes, Errno>> {
    // SAFETY: as the caller says.
    if path.is_null() || unsafe { *path } == 0 {
        let world = on_file(at)?;
        world.point();
        let found = world.lock().attributes(at);
        return Some(found);
    }
    // SAFETY: as the caller says.
    if unsafe { is_hidden(path) } {
        return Some(Err(libc::ENOENT));
    }
    // SAFETY: as the caller says.
    let Some((world, place)) = (unsafe { on_path(at, path) }) else {
        // SAFETY: as the caller says.
        unsafe { leaves_by_path("stat", path) };
        return None;
    };
    world.point();
    let found = world.lock().on_disk(|disk, now| {
        let inode = disk.find(&place)?;
        disk.read_maps(inode, now);
        Ok(disk.attributes(inode))
    });
    Some(found)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fstatat(
    at: c_int,
    path: *const c_char,
    to: *mut stat64,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller passes a text.
    match unsafe { attributes(at, path) } {
        None => real!(SYS_newfstatat, at, path, to, flags) as c_int,
        Some(Err(errno)) => fail(errno),
        Some(Ok(found)) => {
            // SAFETY: the caller passes room for it.
            unsafe { to.write(to_stat(&found)) };
            0
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, to: *mut stat64) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { fstatat(libc::AT_FDCWD, path, to, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn lstat(path: *const c_char, to: *mut stat64) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { fstatat(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fstat(fd: c_int, to: *mut stat64) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { fstatat(fd, c"".as_ptr(), to, libc::AT_EMPTY_PATH) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(export_name = "stat64")]
unsafe extern "C" fn stat_64(path: *const c_char, to: *mut stat64) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { stat(path, to) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(export_name = "lstat64")]
unsafe extern "C" fn lstat_64(path: *const c_char, to: *mut stat64) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { lstat(path, to) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(export_name = "fstat64")]
unsafe extern "C" fn fstat_64(fd: c_int, to: *mut stat64) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { fstat(fd, to) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(export_name = "fstatat64")]
unsafe extern "C" fn fstatat_64(
    at: c_int,
    path: *const c_char,
    to: *mut stat64,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { fstatat(at, path, to, flags) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller passes a text.
    let found = match unsafe { attributes(at, path) } {
        None => return real!(SYS_statx, at, path, flags, mask, to) as c_int,
        Some(Err(errno)) => return fail(errno),
        Some(Ok(found)) => found,
    };
    // SAFETY: all bytes may be zero.
    let mut statx: libc::statx = unsafe { mem::zeroed() };
    statx.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    statx.stx_ino = found.inode;
    statx.stx_mode = mode(&found) as u16;
    statx.stx_nlink = found.links as u32;
    statx.stx_size = found.len;
    statx.stx_blksize = 4_096;
    statx.stx_blocks = found.takes / 512;
    [statx.stx_dev_major, statx.stx_dev_minor] = found.device;
    let set = |place: &mut libc::statx_timestamp, nanos: u64| {
        place.tv_sec = (nanos / 1_000_000_000) as i64;
        place.tv_nsec = (nanos % 1_000_000_000) as u32;
    };
    set(&mut statx.stx_btime, found.created);
    set(&mut statx.stx_mtime, found.modified);
    (statx.stx_atime, statx.stx_ctime) = (statx.stx_mtime, statx.stx_mtime);
    // SAFETY: the caller passes room for it.
    unsafe { to.write(statx) };
    0
}
