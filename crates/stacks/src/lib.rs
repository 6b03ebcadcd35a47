#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod capture;
mod follow;
mod stack;
mod sys;
mod unwind;

pub use capture::{CaptureError, capture};
pub use follow::on_stall;
pub use stack::{Frame, Stack};
