//! Timers of the kernel that send a signal to one thread.

use std::{ffi::c_int, io, mem, ptr, time::Duration};

use crate::{options::Clock, signal::SIGNAL};

/// A timer, until it is dropped. A signal that it has sent may still come after that.
pub(crate) struct Timer(libc::timer_t);

// SAFETY: it is a number of the kernel, of this process.
unsafe impl Send for Timer {}

impl Timer {
    /// Starts a timer that sends [`SIGNAL`] with this value to a thread, in each period.
    ///
    /// Returns `None` if there is no such thread.
    pub(crate) fn start(
        thread: u32,
        clock: Clock,
        period: Duration,
        value: usize,
    ) -> io::Result<Option<Self>> {
        let clock = match clock {
            Clock::Wall => libc::CLOCK_MONOTONIC,
            // The kernel's number for the processor time of a thread.
            Clock::Cpu => (!(thread as libc::clockid_t) << 3) | PER_THREAD | SCHED,
        };
        let mut timer = ptr::null_mut();
        // SAFETY: zeros are a valid `sigevent`. The pointers are to values that outlive the call.
        let made = unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_value.sival_ptr = value as *mut _;
            event.sigev_notify_thread_id = thread as c_int;
            libc::timer_create(clock, &mut event, &mut timer)
        };
        if made != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EINVAL | libc::ESRCH) => Ok(None),
                _ => Err(error),
            };
        }
        let timer = Self(timer);
        let period = libc::timespec {
            tv_sec: period.as_secs() as libc::time_t,
            tv_nsec: period.subsec_nanos().into(),
        };
        let times = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: the timer is there, and the pointer is to a value that outlives the call.
        match unsafe { libc::timer_settime(timer.0, 0, &times, ptr::null_mut()) } {
            0 => Ok(Some(timer)),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// Parts of the number of a clock: of one thread, and by what the scheduler counts.
const PER_THREAD: libc::clockid_t = 4;
const SCHED: libc::clockid_t = 2;

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is there until now.
        unsafe { libc::timer_delete(self.0) };
    }
}
