//! Calls on descriptors of files that neither read nor write.

use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};

use super::{
    super::{
        done, fail,
        poll::has_room,
        raw::{self, real},
        really_close,
    },
    on_file,
};
use crate::world::{World, enter, net::Errno};

pub(super) fn symbols() -> [usize; 12] {
    [
        dup as *const () as usize,
        dup2 as *const () as usize,
        dup3 as *const () as usize,
        fallocate as *const () as usize,
        fallocate64 as *const () as usize,
        posix_fallocate as *const () as usize,
        posix_fallocate64 as *const () as usize,
        posix_fadvise as *const () as usize,
        posix_fadvise64 as *const () as usize,
        copy_file_range as *const () as usize,
        sendfile as *const () as usize,
        sendfile64 as *const () as usize,
    ]
}

#[unsafe(no_mangle)]
extern "C" fn dup(fd: c_int) -> c_int {
    match enter().filter(|world| world.lock().kernel.has(fd)) {
        Some(world) => share(&world, fd, real!(SYS_dup, fd) as c_int),
        None => real!(SYS_dup, fd) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    match fd == to {
        true if real!(SYS_fcntl, fd, libc::F_GETFD) < 0 => -1,
        true => fd,
        false => dup3(fd, to, 0),
    }
}

#[unsafe(no_mangle)]
extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_dup3, fd, to, flags) as c_int;
    };
    let mut state = world.lock();
    let is_shared = state.kernel.can_share(fd);
    if state.kernel.has(fd) && !is_shared {
        return fail(libc::EINVAL);
    }
    // A number that the machine has is used again. Another one counts, as in the kernel.
    if is_shared && !state.kernel.has(to) && !state.has_room() {
        return fail(libc::EBADF);
    }
    // The real descriptor of that number is replaced, so what was simulated with it is closed.
    let new = real!(SYS_dup3, fd, to, flags) as c_int;
    if new >= 0 {
        state.close(to);
        drop(state);
        if is_shared {
            return share(&world, fd, new);
        }
    }
    new
}

/// Makes a new descriptor one of the same open file, or of the same eventfd, as another one. No
/// other object can have two.
pub(in crate::calls) fn share(world: &World, fd: c_int, new: c_int) -> c_int {
    if new < 0 {
        return new;
    }
    if !has_room(world) {
        really_close(new);
        return -1;
    }
    let mut state = world.lock();
    match state.share(fd) {
        Ok(object) => {
            let host = state.host();
            state.kernel.open(new, host, object);
            new
        }
        Err(_) => {
            really_close(new);
            fail(libc::EINVAL)
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(fd: c_int, mode: c_int, at: off64_t, len: off64_t) -> c_int {
    let Some(world) = on_file(fd) else {
        return real!(SYS_fallocate, fd, mode, at, len) as c_int;
    };
    // Holes, and other modes that file systems may lack.
    if mode != 0 {
        return fail(libc::EOPNOTSUPP);
    }
    done(grow(&world, fd, at, len))
}

#[unsafe(no_mangle)]
extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    fallocate64(fd, mode, at, len)
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate64(fd: c_int, at: off64_t, len: off64_t) -> c_int {
    match on_file(fd) {
        // It returns the error.
        Some(world) => grow(&world, fd, at, len).err().unwrap_or(0),
        // SAFETY: a number and two lengths.
        None => -unsafe {
            raw::answer(
                libc::SYS_fallocate,
                [fd as usize, 0, at as usize, len as usize, 0, 0],
            )
        } as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    posix_fallocate64(fd, at, len)
}

/// Makes a file at least so long. The room on the disk is not kept for it.
fn grow(world: &World, fd: c_int, at: off64_t, len: off64_t) -> Result<(), Errno> {
    if at < 0 || len <= 0 {
        return Err(libc::EINVAL);
    }
    let end = at.checked_add(len).ok_or(libc::EFBIG)?;
    world.point();
    let mut state = world.lock();
    let has = state.attributes(fd)?.len;
    match has < end as u64 {
        true => state.resize(fd, end),
        false => Ok(()),
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fadvise64(fd: c_int, at: off64_t, len: off64_t, advice: c_int) -> c_int {
    match on_file(fd) {
        Some(_) => 0,
        // SAFETY: numbers alone. It returns the error.
        None => -unsafe {
            let args = [
                fd as usize,
                at as usize,
                len as usize,
                advice as usize,
                0,
                0,
            ];
            raw::answer(libc::SYS_fadvise64, args)
        } as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fadvise(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int {
    posix_fadvise64(fd, at, len, advice)
}

/// Returns whether one of two descriptors is of the simulation. Calls that copy between them are not
/// simulated: who makes one has another way.
fn is_simulated(one: c_int, other: c_int) -> bool {
    enter().is_some_and(|world| {
        let state = world.lock();
        state.kernel.has(one) || state.kernel.has(other)
    })
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    match is_simulated(from, to) {
        true => fail(libc::EINVAL) as ssize_t,
        false => real!(SYS_copy_file_range, from, from_at, to, to_at, len, flags),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    count: size_t,
) -> ssize_t {
    match is_simulated(from, to) {
        true => fail(libc::EINVAL) as ssize_t,
        false => real!(SYS_sendfile, to, from, at, count),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches for the arguments.
    unsafe { sendfile64(to, from, at, count) }
}
