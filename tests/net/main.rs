//! Sockets and descriptors: TCP, UDP, Unix sockets, and whatever else epoll can watch.

use tourbillon_support as common;

/// Runs a check, which is a macro, with a module of this crate and with a module of tokio that has
/// the same names. The default modules are both named `net`.
macro_rules! on_both {
    ($check:ident) => {
        use ::{tokio::net as theirs, tourbillon::net as ours};
        on_both!($check, ours, theirs);
    };
    ($check:ident, $ours:ident, $theirs:ident) => {
        let _alarm = crate::common::alarm();
        let ours: std::io::Result<()> =
            crate::common::runtime(1).block_on(async { $check!($ours) });
        let theirs: std::io::Result<()> = crate::on_tokio(async { $check!($theirs) });
        ours.and(theirs).unwrap();
    };
}

mod addrs;
mod async_fd;
mod async_fd_like_tokio;
mod dropped;
mod like_tokio;
mod per_core;
mod select;
mod tcp_errors;
mod tcp_ownership;
mod tcp_sockets;
mod tcp_streams;
mod tcp_wakeups;
mod timeout_cost;
mod timeout_wakers;
mod timeouts;
#[cfg(feature = "tokio-io")]
mod tokio_bufs;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod udp;
mod unix;
mod unix_datagrams;

/// Runs a future on a runtime of one worker whose clock is paused.
fn paused<R>(future: impl Future<Output = R>) -> R {
    let _alarm = common::alarm();
    common::paused::paused(1).block_on(future)
}

/// Runs a future on a runtime of tokio's, whose sockets are the model of ours.
fn on_tokio<R>(future: impl Future<Output = R>) -> R {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}
