//! Bridges to tokio: a tokio runtime beside this one, and tokio's traits for our streams.
//!
//! A library that names tokio's runtime, such as `reqwest` or `sqlx`, panics outside of one with
//! *there is no reactor running*. There are two ways to run it in tasks of this runtime:
//!
//! - [`Builder::enable_tokio`](crate::runtime::Builder::enable_tokio) starts a companion: a tokio
//!   runtime of its own threads, whose context all threads of this runtime enter.
//! - [`Compat`] enters the companion around one future. It starts the companion if there is none.
//!
//! Both directions work. In a task of ours, `tokio::spawn`, `tokio::time`, `tokio::net` and
//! `tokio::task::spawn_blocking` reach the companion. In a task of the companion, such as a tonic
//! handler, [`tourbillon::spawn`](crate::spawn), [`sleep`](crate::time::sleep()),
//! [`after`](crate::after) and [`Handle::current`](crate::Handle::current) reach this runtime.
//!
//! # What each runtime does
//!
//! The companion does what goes through tokio's functions: the sockets of `tokio::net` are in its
//! epoll instance, the timers of `tokio::time` have its resolution of 1 ms, and what a library
//! passes to `tokio::spawn` runs on its threads. It has as many threads as this runtime has
//! workers. They are not pinned, and sleep while nothing uses tokio.
//!
//! Each poll of a task, and each poll by [`block_on`](crate::Runtime::block_on), has tokio's budget
//! of operations, so `timeout` can interrupt a loop over a tokio channel that is always ready.
//! [`Compat`] does not change the budget.
//!
//! # Paused clocks
//!
//! A paused clock jumps when nothing is left to do, and this runtime cannot see what the companion
//! has left to do. So a runtime with a companion cannot pause its clock:
//! [`build`](crate::runtime::Builder::build) refuses `start_paused` with `enable_tokio`, and
//! [`pause`](crate::time::pause) and [`Compat`] panic. tokio's own `pause` panics on the companion,
//! too, because it needs a runtime of one thread.
//!
//! # Shutdown
//!
//! The companion ends with the runtime that it belongs to, after it, and within the same timeout:
//!
//! 1. Workers end. All tasks of this runtime are dropped, and its blocking jobs run. They can use
//!    the companion until they have ended.
//! 2. The companion drops its tasks and stops its threads. A blocking job of tokio that has begun
//!    runs to its end; one that has not begun is dropped, as in tokio.
//!
//! A tokio runtime that the program itself has built is not affected.

#[cfg(feature = "tokio-compat")]
mod compat;
#[cfg(feature = "tokio-io")]
mod io;

#[cfg(feature = "tokio-compat")]
pub use self::compat::Compat;
