//! Points at all atomics of a program, whatever crate they are in.
//!
//! With `-Cpasses=tsan` the compiler turns each atomic access into a call of a function that
//! ThreadSanitizer has. These are here. Memory is shared by other ways in unsafe code alone, so a
//! thread can lose the baton wherever another thread could see a difference.
//!
//! The accesses themselves are in assembly: an atomic of Rust would be a call again.

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn symbols() -> [usize; 0] {
    []
}

#[cfg(target_arch = "x86_64")]
pub(super) use self::x86_64::symbols;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::{arch::asm, ffi::c_int};

    use crate::world::enter;

    fn point() {
        if let Some(world) = enter() {
            world.point();
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn __tsan_func_entry(_: usize) {}

    #[unsafe(no_mangle)]
    extern "C" fn __tsan_func_exit() {}

    #[unsafe(no_mangle)]
    extern "C" fn __tsan_atomic_thread_fence(_: c_int) {
        point();
        // SAFETY: the instruction has no operands.
        unsafe { asm!("mfence", options(nostack)) };
    }

    #[unsafe(no_mangle)]
    extern "C" fn __tsan_atomic_signal_fence(_: c_int) {
        // SAFETY: an empty text. The compiler moves no access over it.
        unsafe { asm!("", options(nostack)) };
    }

    /// The functions for one size. `$acc` is the accumulator, which `cmpxchg` compares with.
    macro_rules! size {
        (
            $value:ty, $reg:tt, $acc:tt, $template:tt;
            $load:ident $store:ident $exchange:ident
            $add:ident $sub:ident $and:ident $or:ident $xor:ident $nand:ident
            $val:ident $strong:ident $weak:ident
        ) => {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $load(at: *const $value, _: c_int) -> $value {
                point();
                // An aligned load of this processor is atomic, and acquires.
                // SAFETY: the caller passes an atomic of this size.
                unsafe { at.read_volatile() }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $store(at: *mut $value, value: $value, order: c_int) {
                // SAFETY: the caller passes an atomic of this size.
                unsafe { $exchange(at, value, order) };
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $exchange(at: *mut $value, value: $value, _: c_int) -> $value {
                point();
                // SAFETY: the caller passes an atomic of this size.
                unsafe { update(at, |_| value) }
            }

            /// Changes the value to what `change` makes of it. Returns the one before.
            unsafe fn update(at: *mut $value, change: impl Fn($value) -> $value) -> $value {
                // SAFETY: as the caller says.
                let mut last = unsafe { at.read_volatile() };
                loop {
                    // SAFETY: as the caller says.
                    let found = unsafe { exchange_if(at, last, change(last)) };
                    if found == last {
                        return found;
                    }
                    last = found;
                }
            }

            /// Writes `new` if there is `expected`. Returns what was there.
            unsafe fn exchange_if(at: *mut $value, expected: $value, new: $value) -> $value {
                let found: $value;
                // SAFETY: the caller passes an aligned atomic of this size.
                unsafe {
                    asm!(
                        $template,
                        at = in(reg) at,
                        new = in($reg) new,
                        inlateout($acc) expected => found,
                        options(nostack),
                    );
                }
                found
            }

            size!(@fetch $value; $add |a, b| a.wrapping_add(b));
            size!(@fetch $value; $sub |a, b| a.wrapping_sub(b));
            size!(@fetch $value; $and |a, b| a & b);
            size!(@fetch $value; $or |a, b| a | b);
            size!(@fetch $value; $xor |a, b| a ^ b);
            size!(@fetch $value; $nand |a, b| !(a & b));

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $val(
                at: *mut $value,
                expected: $value,
                new: $value,
                _: c_int,
                _: c_int,
            ) -> $value {
                point();
                // SAFETY: the caller passes an atomic of this size.
                unsafe { exchange_if(at, expected, new) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $strong(
                at: *mut $value,
                expected: *mut $value,
                new: $value,
                success: c_int,
                failure: c_int,
            ) -> c_int {
                // SAFETY: the caller passes an atomic of this size, and a valid place.
                unsafe {
                    let before = *expected;
                    *expected = $val(at, before, new, success, failure);
                    c_int::from(*expected == before)
                }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $weak(
                at: *mut $value,
                expected: *mut $value,
                new: $value,
                success: c_int,
                failure: c_int,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { $strong(at, expected, new, success, failure) }
            }

            pub(super) fn symbols() -> [usize; 12] {
                size!(
                    @addresses $load $store $exchange $add $sub $and $or $xor $nand $val $strong
                    $weak
                )
            }
        };
        (@addresses $($name:ident)*) => {
            [$($name as *const () as usize),*]
        };
        (@fetch $value:ty; $name:ident |$a:ident, $b:ident| $change:expr) => {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(at: *mut $value, $b: $value, _: c_int) -> $value {
                point();
                // SAFETY: the caller passes an atomic of this size.
                unsafe { update(at, |$a| $change) }
            }
        };
    }

    macro_rules! sizes {
        ($($module:ident: $value:ty, $reg:tt, $acc:tt, $template:tt => [$($name:ident)*])*) => {
            $(
                mod $module {
                    use super::*;

                    size!($value, $reg, $acc, $template; $($name)*);
                }
            )*

            /// Returns the addresses of all functions of this module.
            pub(in super::super) fn symbols() -> Vec<usize> {
                let fences = [
                    __tsan_func_entry as *const () as usize,
                    __tsan_func_exit as *const () as usize,
                    __tsan_atomic_thread_fence as *const () as usize,
                    __tsan_atomic_signal_fence as *const () as usize,
                ];
                let mut all = Vec::from(fences);
                $(all.extend($module::symbols());)*
                all
            }
        };
    }

    sizes! {
        bytes: u8, reg_byte, "al", "lock cmpxchg byte ptr [{at}], {new}" => [
            __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange
            __tsan_atomic8_fetch_add __tsan_atomic8_fetch_sub __tsan_atomic8_fetch_and
            __tsan_atomic8_fetch_or __tsan_atomic8_fetch_xor __tsan_atomic8_fetch_nand
            __tsan_atomic8_compare_exchange_val __tsan_atomic8_compare_exchange_strong
            __tsan_atomic8_compare_exchange_weak
        ]
        words: u16, reg, "ax", "lock cmpxchg word ptr [{at}], {new:x}" => [
            __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange
            __tsan_atomic16_fetch_add __tsan_atomic16_fetch_sub __tsan_atomic16_fetch_and
            __tsan_atomic16_fetch_or __tsan_atomic16_fetch_xor __tsan_atomic16_fetch_nand
            __tsan_atomic16_compare_exchange_val __tsan_atomic16_compare_exchange_strong
            __tsan_atomic16_compare_exchange_weak
        ]
        doubles: u32, reg, "eax", "lock cmpxchg dword ptr [{at}], {new:e}" => [
            __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange
            __tsan_atomic32_fetch_add __tsan_atomic32_fetch_sub __tsan_atomic32_fetch_and
            __tsan_atomic32_fetch_or __tsan_atomic32_fetch_xor __tsan_atomic32_fetch_nand
            __tsan_atomic32_compare_exchange_val __tsan_atomic32_compare_exchange_strong
            __tsan_atomic32_compare_exchange_weak
        ]
        quads: u64, reg, "rax", "lock cmpxchg qword ptr [{at}], {new:r}" => [
            __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange
            __tsan_atomic64_fetch_add __tsan_atomic64_fetch_sub __tsan_atomic64_fetch_and
            __tsan_atomic64_fetch_or __tsan_atomic64_fetch_xor __tsan_atomic64_fetch_nand
            __tsan_atomic64_compare_exchange_val __tsan_atomic64_compare_exchange_strong
            __tsan_atomic64_compare_exchange_weak
        ]
    }
}
