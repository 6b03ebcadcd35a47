#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

#[cfg(feature = "client")]
mod client;
mod futures_io;
mod rt;
pub mod server;
mod tolerant_sleep;
mod tourbillon_io;

#[cfg(feature = "client")]
#[cfg_attr(docsrs, doc(cfg(feature = "client")))]
pub use self::client::{ConnectError, HttpConnector, HttpInfo, UnixConnector};
pub use self::{
    futures_io::FuturesIo,
    rt::{TourbillonExecutor, TourbillonTimer},
    tolerant_sleep::TolerantSleep,
    tourbillon_io::{Stream, TourbillonIo},
};
