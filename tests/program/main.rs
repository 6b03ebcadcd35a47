//! The program `tourbillon`: its commands `serve`, `storm`, `soak`, `top` and `trace`.

#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;

mod escapes;
mod hostile_pages;
mod output;
mod perfetto;
mod serve;
mod soak;
mod storm;
mod top;
mod trace;
