//! How many connections the process may have.

use std::thread;

use crate::descriptors::raise_limit;

/// Descriptors of each worker: its epoll instance, an eventfd, a timerfd, and that of its alarm.
const PER_WORKER: u64 = 4;
/// For all else: the standard streams, the listener, signals, other clocks.
const RESERVE: u64 = 64;

/// Raises the limit of descriptors to what the system lets us have, and answers how many connections fit: `wanted`, or as many as
/// there is room for. Each takes `each` descriptors.
///
/// # Errors
///
/// If there is no room for `wanted`, or for any: what to do about it.
pub fn room_for(wanted: Option<usize>, each: u64) -> Result<usize, String> {
    let limit = raise_limit();
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let reserve = RESERVE + workers * PER_WORKER;
    let room = limit.saturating_sub(reserve) / each;
    let wanted = match wanted {
        Some(wanted) => wanted as u64,
        None => room.max(1),
    };
    if wanted > room {
        let needed = wanted.saturating_mul(each).saturating_add(reserve);
        return Err(format!(
            "{wanted} connections need {needed} descriptors, and the limit is {limit}: raise it with \
             `ulimit -n {needed}` (for a service, `LimitNOFILE={needed}`), or ask for {room} \
             connections at most with --max-connections"
        ));
    }
    Ok(usize::try_from(wanted).unwrap_or(usize::MAX))
}
