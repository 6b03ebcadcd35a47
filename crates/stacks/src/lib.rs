#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod capture;
mod dump;
mod follow;
mod stack;
mod sys;
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "no_unwind.rs"
)]
mod unwind;
mod walker;

pub use blocking::{BlockingWatch, blocking_stacks, watch_blocking};
pub use capture::{CaptureError, capture};
pub use dump::{TaskStack, WaitingTasks, dump};
pub use follow::on_stall;
pub use stack::{Frame, Stack, frames_at};
pub use sys::Registers;
// For `tourbillon-profile`.
#[doc(hidden)]
pub use sys::{Handler, install_handler};
pub use walker::Walker;
