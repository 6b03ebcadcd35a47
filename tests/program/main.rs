//! The program `tourbillon`: its commands `serve`, `storm` and `soak`.

#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;

mod serve;
mod soak;
mod storm;
