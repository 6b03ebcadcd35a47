//! Calls of the system, without the C library.

use std::{
    arch::asm,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::world;

/// Calls the system. Returns its answer, which is the negative error number if the call failed.
///
/// # Safety
///
/// As the system says for call `number`.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn answer(number: libc::c_long, args: [usize; 6]) -> isize {
    let answer;
    // SAFETY: this is the kernel's convention. The caller vouches for the rest.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// As on x86_64.
///
/// # Safety
///
/// As the system says for call `number`.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn answer(number: libc::c_long, args: [usize; 6]) -> isize {
    let answer;
    // SAFETY: this is the kernel's convention. The caller vouches for the rest.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => answer,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    answer
}

/// Calls the system as the C library does: a failure is −1, with the error number in `errno`.
///
/// # Safety
///
/// As the system says for call `number`.
pub(super) unsafe fn call(number: libc::c_long, args: [usize; 6]) -> isize {
    // SAFETY: the caller vouches for it.
    let answer = unsafe { answer(number, args) };
    if (-4095..0).contains(&answer) {
        return super::fail(-answer as libc::c_int) as isize;
    }
    answer
}

/// The last call of a simulated thread that the real system answered: a reference to its name.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Notes the name of a call, if a thread of the simulation makes it.
pub(super) fn passes(name: &'static &'static str) {
    if world::is_outside() {
        LAST.store(
            std::ptr::from_ref(name).expose_provenance(),
            Ordering::Relaxed,
        );
    }
}

/// Returns the name of the last call of a simulated thread that the real system answered.
pub(crate) fn last_real() -> Option<&'static str> {
    let at = std::ptr::with_exposed_provenance::<&'static str>(LAST.load(Ordering::Relaxed));
    // SAFETY: it is null, or the place of a name that lives for ever.
    let name = unsafe { at.as_ref() }?;
    Some(name.trim_start_matches("SYS_"))
}

/// Calls the system with up to six arguments of any integer or pointer type.
macro_rules! real {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        #[allow(unused_mut, unused_assignments, reason = "a call may have no arguments")]
        {
            let (mut args, mut place) = ([0_usize; 6], 0);
            $(
                args[place] = $arg as usize;
                place += 1;
            )*
            let _ = place;
            const NAME: &str = stringify!($number);
            $crate::calls::raw::passes(&NAME);
            // SAFETY: the caller of the function vouches for its arguments.
            #[allow(unused_unsafe, reason = "the function is unsafe itself")]
            unsafe { $crate::calls::raw::call(libc::$number, args) }
        }
    }};
}

/// Calls the C library's own function, which [`original`](super::thread::original) finds.
macro_rules! really {
    ($known:ident, $name:literal $(, $arg:expr => $type:ty)* => $result:ty) => {{
        type Call = unsafe extern "C" fn($($type),*) -> $result;
        let found = $crate::calls::thread::original(&$known, $name);
        // SAFETY: this is the function's type, and the caller vouches for its arguments.
        unsafe { std::mem::transmute::<usize, Call>(found)($($arg),*) }
    }};
}

pub(super) use {real, really};
