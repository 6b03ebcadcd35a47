//! Timers with callbacks: how they are built, fire, move and end, and what their calls answer.

use tourbillon_support as common;

mod arming;
mod budget;
mod builder;
mod builder_bounds;
mod cancel;
mod cancel_and_wait;
mod cancel_batch;
mod condition;
mod fire;
mod garbage;
mod known_defects;
mod many;
mod max_timers;
mod model;
mod names;
mod order;
mod outcome;
mod overload;
mod recurring;
mod refresh;
mod runtime_tolerance;
mod start;
mod store;
mod timer_advance;
mod tolerance;
