//! Derives times from bytes: close to now, at critical values, and anywhere.

use arbitrary::{Result, Unstructured};
use tourbillon_shards::NEVER;

pub const SECOND: u64 = 1_000_000_000;

/// Times at which timer wheels and queues have overflowed, wrapped or hung.
const EDGES: [u64; 14] = [
    0,
    // 2^32 ns, and 2^32 µs.
    1 << 32,
    (1 << 32) * 1_000,
    // 12 days.
    12 * 24 * 3_600 * SECOND,
    // 2^31 ms and 2^32 ms.
    (1 << 31) * 1_000_000,
    (1 << 32) * 1_000_000,
    // 2^36 ms.
    (1 << 36) * 1_000_000,
    1 << 53,
    1 << 60,
    NEVER,
    NEVER + 1,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// Returns a time, often close to `now` or to the time `used` of another entry.
pub fn moment(bytes: &mut Unstructured, now: u64, used: Option<u64>) -> Result<u64> {
    let kind: u8 = bytes.arbitrary()?;
    let near = |edge: u64, by: i8| edge.wrapping_add_signed(by.into());
    Ok(match kind % 16 {
        0..4 => now.saturating_add(bytes.arbitrary::<u8>()?.into()),
        4 => now.saturating_add(u64::from(bytes.arbitrary::<u16>()?) * 1_000),
        5 => now.saturating_add(u64::from(bytes.arbitrary::<u32>()?) * 1_000),
        6 | 7 => {
            let bit = bytes.arbitrary::<u8>()? % 64;
            near(now.saturating_add(1 << bit), bytes.arbitrary()?)
        }
        8 => {
            let ahead = u64::from(bytes.arbitrary::<u8>()?);
            (now / SECOND).saturating_add(ahead).saturating_mul(SECOND)
        }
        9 => near(
            1 << (bytes.arbitrary::<u8>()? % 64),
            bytes.arbitrary::<i8>()?,
        ),
        10 | 11 => EDGES[usize::from(bytes.arbitrary::<u8>()?) % EDGES.len()],
        12 => {
            let edge = EDGES[usize::from(bytes.arbitrary::<u8>()?) % EDGES.len()];
            near(edge, bytes.arbitrary()?)
        }
        13 => bytes.arbitrary()?,
        14 => near(used.unwrap_or(now), bytes.arbitrary::<i8>()? % 3),
        _ => now.saturating_sub(bytes.arbitrary::<u8>()?.into()),
    })
}
