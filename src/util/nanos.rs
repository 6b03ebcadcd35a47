//! Conversion of durations to nanoseconds.

use std::time::Duration;

/// Returns `duration` in ns. A duration of more than 584 years saturates.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    // Not `as_nanos`, which calculates in 128 bits.
    let secs = duration.as_secs().saturating_mul(1_000_000_000);
    secs.saturating_add(duration.subsec_nanos().into())
}
