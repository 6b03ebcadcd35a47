//! Metrics: how many timers wait and where, what each worker has done, and how late timers are.
//!
//! No test of this program may pause a clock. Beside a paused clock, a sleep that is already over
//! when it is first polled is not armed, and [`lateness`] counts on it being armed.

use tourbillon_support as common;

mod counts;
mod lateness;
mod timer_info;
mod totals;
