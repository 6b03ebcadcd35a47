//! Timers on clocks that a worker's epoll instance cannot wait for: the time of day, and the time
//! that goes on while the machine is suspended.
//!
//! They are few, so each clock has one shard for the whole runtime, whose owner is no thread but a
//! timerfd that all workers watch: whoever is woken by it *serves* the clock. He takes what is due,
//! sets the timerfd to what is next, and announces that the shard sleeps until then, by the same word
//! as a worker does; who brings an earlier deadline claims the word, and makes the timerfd readable.
//!
//! The timerfd is set before the word is announced, never after: it would undo a claimer's setting.
//!
//! When the time of day is set, the kernel says so by the same descriptor
//! (`TFD_TIMER_CANCEL_ON_SET`), and nothing is polled. An absolute timerfd follows a step by itself;
//! what a step tells us is which timers it has jumped over.

pub(crate) mod owner;
pub(crate) mod serve;

pub(crate) use self::serve::{answer, serve, step};
