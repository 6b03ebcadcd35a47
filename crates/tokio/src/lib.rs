//! Tourbillon under tokio's name.
//!
//! A program that patches `tokio` with this package runs libraries for tokio on Tourbillon itself.
//! `sync`, the traits and tools of `io`, and most macros are those of the real tokio. `spawn`,
//! `task`, `time`, `net`, `signal` and `runtime` are Tourbillon's. `fs`, `process` and the standard
//! streams are written here, over Tourbillon. See README.md.
//!
//! On other systems than 64-bit Linux, all names are the real tokio's.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub use elsewhere::*;

// The path makes the modules in it files of this folder.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "linux.rs"]
mod linux;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use linux::*;
