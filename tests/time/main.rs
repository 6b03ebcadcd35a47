//! Sleeps, timeouts, intervals and delay queues, and the clocks that they follow.

use tourbillon_support as common;

mod advance;
mod delay_queue;
mod dropped;
mod interval_as_tokio;
mod long_jobs;
mod pause_resume;
mod paused_clock;
mod paused_programs;
mod paused_timers;
mod sleep;
mod system_clock_steps;
mod wall_clock;
mod wall_clock_steps;
