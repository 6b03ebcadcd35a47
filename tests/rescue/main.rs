//! Blocked workers: peers and helpers take over their work, and stalls are reported.

use tourbillon_support as common;

mod blocked_worker;
mod busy_worker;
mod crowded;
mod helper_paused_clock;
mod helper_shutdown;
mod helper_threads;
mod helpers;
mod in_time;
mod outcome;
mod settings;
mod stall;
mod without_core;
