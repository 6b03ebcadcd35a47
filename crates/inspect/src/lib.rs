#![doc = include_str!("../README.md")]
//!
//! # What it serves
//!
//! - `/`: the page.
//! - `/events`: server-sent events: `snapshot` four times a second, with a line of JSON as data;
//!   `end` when the runtime has ended.
//! - `/snapshot.json`: one snapshot; requests within 50 ms get the same one, as with `/metrics`.
//! - `/late.json`: the slowest timers of a cell of the heat map, with their causes.
//! - `/tasks.json`: tasks, with what they do and where they wait.
//! - `/trace.json`: what the [flight recorder](tourbillon::flight) has, as a file for Perfetto or
//!   for Chrome's trace viewer; one is written at a time, meanwhile other clients get 503.
//! - `/profile`, with feature `profile`: samples the workers for some seconds, and answers with a
//!   flame graph, a file for pprof, or folded stacks; one profile is taken at a time, meanwhile other
//!   clients get 503. See the crate `tourbillon-profile`.
//! - `/metrics`: the metrics for Prometheus, or in OpenMetrics if the client asks for it: see
//!   [`prometheus`](tourbillon_exporters::prometheus).
//!
//! # Access
//!
//! Every client that reaches the address has access: there is no password and no encryption. Listen
//! on `127.0.0.1`, and use a tunnel (`ssh -L`) or a proxy with authentication. Access is read-only:
//! the inspector only answers `GET` and `HEAD` (otherwise 405). No request changes the runtime,
//! except that workers time their polls until some seconds after a request for the list of tasks, and
//! are interrupted 99 times a second for a profile.
//!
//! Requests from other pages in the same browser are refused:
//!
//! - A name in `Host` that is neither an IP address, nor `localhost`, nor
//!   [allowed](Builder::allow_host) gets 421, because any name can be made to resolve to this
//!   address.
//! - A foreign `Origin` or a cross-site `Sec-Fetch-Site` gets 403, except for a link to `/`.
//! - A request for `/profile` without the header `X-Tourbillon: profile` gets 403: browsers send no
//!   such header for other pages.
//!
//! No header lets other pages read an answer, and the page may only load its own files.
//!
//! # Slow clients, and too many
//!
//! - **A client reads events more slowly than they are sent**: it misses some, and gets the newest
//!   one next.
//! - **It reads nothing for 10 s**: its connection is closed: [`Builder::write_timeout`].
//! - **It sends no further request for 2 s**: its connection is closed.
//! - **It takes more than 5 s to send a request**: its connection is closed.
//! - **Its request head has more than 16 KiB**: 431.
//! - **There are more connections than [`Builder::max_connections`]**: they wait in the system's
//!   queue.
//! - **There are too many event streams**: 503.
//! - **Clients have more than 16 MiB of answers left to read**: further requests get 503.

#![warn(missing_debug_implementations)]

mod builder;
mod download;
mod feed;
mod inspector;
mod late;
mod listener;
#[doc(hidden)]
pub mod negotiate;
mod nice;
mod outstanding;
mod page;
#[cfg(feature = "profile")]
mod profile;
mod publish;
mod query;
mod recent;
mod sampler;
mod site;
mod slowest;
mod snapshot;
mod tasks;

use std::{io, net::ToSocketAddrs};

use tourbillon::Handle;
pub use tourbillon_axum::InvalidHost;

pub use crate::{builder::Builder, inspector::Inspector};

/// Serves the live page of the current runtime. Use [`Inspector::builder`] for options, or for
/// another runtime.
///
/// The inspector ends with the runtime, or by [`Inspector::shutdown`]. Dropping the result does not
/// stop it.
///
/// A host name is resolved on the calling thread. With port 0 the system chooses the port: see
/// [`Inspector::local_addr`].
///
/// ```
/// #[derive(Debug)]
/// enum Error { Build(tourbillon::BuildError), Page(std::io::Error) }
///
/// fn main() -> Result<(), Error> {
///     let runtime = tourbillon::Runtime::new().map_err(Error::Build)?;
///     runtime.block_on(async {
///         let inspector = tourbillon_inspect::serve("127.0.0.1:0").map_err(Error::Page)?;
///         eprintln!("inspect: http://{}/", inspector.local_addr());
///         Ok(())
///     })
/// }
/// ```
///
/// # Errors
///
/// Fails if the calling thread is not in the context of a runtime, if the address cannot be bound,
/// or if the system provides no thread or descriptor.
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<Inspector> {
    let handle = Handle::try_current().map_err(io::Error::other)?;
    Inspector::builder(&handle).serve(addr)
}
