//! The maximum number of connections.

use std::thread;

use crate::server::raise_descriptor_limit;

/// Descriptors per worker: an epoll instance, an eventfd, a timerfd, and one of the watchdog.
const PER_WORKER: u64 = 4;
/// Descriptors for everything else: standard streams, listener, signals, other clocks.
const RESERVE: u64 = 64;

/// Raises the descriptor limit and returns the maximum number of connections: `wanted`, or as many
/// as fit. Each connection needs `each` descriptors.
///
/// # Errors
///
/// Fails if the limit is too low for `wanted`, or for any connection. The message says what to do.
pub fn room_for(wanted: Option<usize>, each: u64) -> Result<usize, String> {
    let limit = raise_descriptor_limit();
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
            "{wanted} connections need {needed} descriptors, and the limit is {limit}: raise it \
             with `ulimit -n {needed}` (for a service, `LimitNOFILE={needed}`), or ask for {room} \
             connections at most with --max-connections"
        ));
    }
    Ok(usize::try_from(wanted).unwrap_or(usize::MAX))
}
