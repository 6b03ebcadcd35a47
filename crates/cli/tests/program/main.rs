//! The program `tourbillon`: its commands `serve`, `storm`, `soak`, `top` and `trace`.

use tourbillon_support as common;
use tourbillon_support::clients;

mod escapes;
mod hostile_pages;
mod output;
mod perfetto;
mod serve;
mod soak;
mod storm;
mod top;
mod trace;
