//! In place of `unwind.rs`, for processors whose stacks are not walked.

use crate::sys::Copied;

pub(crate) fn walk(_: &Copied) -> Vec<u64> {
    Vec::new()
}
