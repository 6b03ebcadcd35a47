//! The program `tourbillon`: its commands `serve`, `storm`, `soak` and `top`.

#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;

mod serve;
mod soak;
mod storm;
mod top;
