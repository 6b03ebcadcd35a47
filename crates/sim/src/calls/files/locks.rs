//! Locks of parts of files (`fcntl`).
//!
//! POSIX gives such a lock to a process. Each host has one process and a disk of its own, so nobody
//! else can have a lock, and all that is asked for is given.

use libc::{c_int, flock};

use super::super::{done, fail};
use crate::world::{World, net::Errno};

/// Locks a part of an open file, or tells whether another process has locked it.
///
/// # Safety
///
/// `lock` points to a `flock`, which this writes.
pub(in crate::calls) unsafe fn of_record(
    world: &World,
    fd: c_int,
    command: c_int,
    lock: *mut flock,
) -> c_int {
    world.point();
    if lock.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: as the caller says.
    let lock = unsafe { &mut *lock };
    let answer = look(world, fd, command, lock);
    if command == libc::F_GETLK && answer.is_ok() {
        lock.l_type = libc::F_UNLCK as _;
    }
    done(answer)
}

/// Returns the errors of Linux.
fn look(world: &World, fd: c_int, command: c_int, lock: &flock) -> Result<(), Errno> {
    let mut state = world.lock();
    let (reads, writes) = match state.flags(fd)? & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        _ => (true, true),
    };
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => state.seek(fd, 0, libc::SEEK_CUR)? as i64,
        libc::SEEK_END => state.attributes(fd)?.len as i64,
        _ => return Err(libc::EINVAL),
    };
    let start = base.checked_add(lock.l_start).ok_or(libc::EOVERFLOW)?;
    // A negative length is of what is before the start.
    let begin = start.checked_add(lock.l_len.min(0)).ok_or(libc::EINVAL)?;
    if begin < 0 {
        return Err(libc::EINVAL);
    }
    let end = start.checked_add(lock.l_len.max(1) - 1);
    end.ok_or(libc::EOVERFLOW)?;
    let sets = command != libc::F_GETLK;
    match c_int::from(lock.l_type) {
        libc::F_RDLCK if sets && !reads => Err(libc::EBADF),
        libc::F_WRLCK if sets && !writes => Err(libc::EBADF),
        libc::F_RDLCK | libc::F_WRLCK => Ok(()),
        libc::F_UNLCK if sets => Ok(()),
        _ => Err(libc::EINVAL),
    }
}
