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
//! jumped over: those with `OnStep::Skip` do not run.
//!
//! A current-thread runtime makes the timerfd only when a timer waits (see "Nothing before it is
//! needed" in `docs/internals/worker-loop.md`). So a clock is in one of these states, which the
//! serving worker changes under the lock of `Served`:
//!
//! | state | timers | a step forward is found by |
//! |---|---|---|
//! | idle | none wait | no one: there is nothing to skip |
//! | compared | wait, and no timerfd was set before the last serving | the worker: the clock has gone on by more than the boot-time clock since then |
//! | watched | wait, and the timerfd is set | the timerfd |
//!
//! 1. *Idle to compared:* the arming thread reads both clocks as it calls, and the next serving
//!    compares with this reading. So a step that came before the timer skips nothing.
//! 2. *Compared to watched:* the worker sets the timerfd, and then serves once more, which compares
//!    for the last time, since a step may have come before the setting. If the system refuses the
//!    timerfd, the clock stays compared.
//! 3. *To idle:* the worker finds no deadline. The call that ends this state sets the timerfd, if
//!    there is one, after the reading. So the next serving compares, and the timerfd tells later
//!    steps.
//!
//! The worker reads the boot-time clock before and after the other one, and takes the longer time.
//! So a worker that loses its core between two readings takes no timer for skipped.

pub(crate) mod serve;
pub(crate) mod shard;

pub(crate) use self::serve::{serve, step, watch};
