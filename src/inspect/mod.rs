//! A page on which a runtime is watched live, and its counters for Prometheus.
//!
//! ```
//! use tourbillon::{Runtime, inspect};
//!
//! let runtime = Runtime::new().unwrap();
//! let inspector = runtime.block_on(async { inspect::serve("127.0.0.1:0") })?;
//! println!("open http://{}/", inspector.local_addr());
//! # inspector.shutdown();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | path | what is there |
//! |---|---|
//! | `/` | the page |
//! | `/events` | server-sent events: the event `snapshot` four times a second, whose data is a line of JSON; and `end` if the runtime has ended |
//! | `/snapshot.json` | the same, once; who asks again within 50 ms is told the same again, as with `/metrics` |
//! | `/metrics` | the counters for Prometheus, or in OpenMetrics if that is asked for: see [`RuntimeMetrics::prometheus`](crate::metrics::RuntimeMetrics::prometheus) |
//!
//! It runs on two threads of its own, which are nicer by 10 than the one that started it, and not
//! on the runtime's: it answers whatever the workers are at, and costs them what their counters
//! being read costs. While nobody asks, it sleeps.
//!
//! # Who may ask
//!
//! Whoever reaches the address: there is no password and no encryption. Listen on `127.0.0.1`, and
//! let a tunnel (`ssh -L`) or a proxy that knows its users do the rest. It is read only: nothing
//! but `GET` and `HEAD` is answered (405), and nothing changes the runtime.
//!
//! What pages of others, open in the same browser, may try is refused: a name in `Host` that is
//! neither an IP address nor `localhost` nor [allowed](Builder::allow_host) (421: names can be made
//! to lead anywhere), an `Origin` that is another, and a `Sec-Fetch-Site` that says so (403), but
//! for a link to `/`. No header lets others read an answer, and the page may load nothing but its
//! own files.
//!
//! # Clients that are slow, or too many
//!
//! | what | what happens |
//! |---|---|
//! | a client takes events more slowly than they come | it misses some, and is sent the newest next |
//! | it takes nothing for 10 s | its connection is closed: [`Builder::write_timeout`] |
//! | it has no further request for 2 s | its connection is closed |
//! | it takes more than 5 s to say what it wants | its connection is closed |
//! | a request's head of more than 16 KiB | 431 |
//! | more connections than [`Builder::max_connections`] | they wait in the system's queue |
//! | more streams of events than there is room for | 503 |
//! | answers of more than 16 MiB that clients have not taken | further ones are 503 |

mod builder;
mod feed;
mod guard;
mod hosts;
mod inspector;
mod listener;
mod negotiate;
mod outstanding;
mod page;
mod publish;
mod recent;
mod sampler;
mod site;
mod snapshot;

use std::{io, net::ToSocketAddrs};

pub use self::{builder::Builder, hosts::InvalidHost, inspector::Inspector};
use crate::Handle;

/// Serves the live page of the runtime that the calling thread is in, until that ends, or the
/// answer is told to [shut down](Inspector::shutdown). Dropping the answer changes nothing. With
/// options, or for a runtime that the thread is not in: [`Inspector::builder`].
///
/// A name is looked up on the calling thread. Port 0 is one that the system chooses: see
/// [`Inspector::local_addr`].
///
/// ```
/// #[derive(Debug)]
/// enum Error { Build(tourbillon::BuildError), Page(std::io::Error) }
///
/// fn main() -> Result<(), Error> {
///     let runtime = tourbillon::Runtime::new().map_err(Error::Build)?;
///     runtime.block_on(async {
///         let inspector = tourbillon::inspect::serve("127.0.0.1:0").map_err(Error::Page)?;
///         eprintln!("inspect: http://{}/", inspector.local_addr());
///         Ok(())
///     })
/// }
/// ```
///
/// # Errors
///
/// If the thread is in no runtime, the address cannot be had, or the system gives no thread or
/// descriptor.
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<Inspector> {
    let handle = Handle::try_current().map_err(io::Error::other)?;
    Inspector::builder(&handle).serve(addr)
}
