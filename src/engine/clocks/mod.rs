//! Timers of clocks that a worker's epoll timeout cannot wait for: the wall clock, and the
//! boot-time clock, which also counts while the machine is suspended.
//!
//! Such timers are few, so each clock has one shard for the whole runtime. The shard's owner is not
//! a thread but a timerfd that all workers watch. The worker that the timerfd wakes *serves* the
//! clock: it takes what is due, sets the timerfd to the next deadline, and announces that the shard
//! sleeps until then, by the same parked word as a worker. A thread that arms an earlier timer
//! claims that word, and makes the timerfd readable.
//!
//! The serving worker sets the timerfd before it announces the sleep, never after: otherwise it
//! would undo the setting of a thread that has claimed the word.
//!
//! A worker serves a clock for a bounded number of looks. If other threads leave updates all the
//! time, it makes the timerfd readable and leaves the clock to the next worker. The shard counts as
//! awake meanwhile.
//!
//! When the wall clock is set, the kernel makes the same timerfd readable
//! (`TFD_TIMER_CANCEL_ON_SET`), so nothing has to be polled. An absolute timerfd follows the new
//! time by itself. The notification only serves to find the timers whose deadline the clock has
//! jumped over. Until there is a timerfd, the worker compares the clock with the boot-time clock
//! instead: see "Nothing before it is needed" in `docs/internals/worker-loop.md`.

pub(crate) mod owner;
pub(crate) mod serve;

pub(crate) use self::serve::{serve, step, watch};
