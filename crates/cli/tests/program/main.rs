//! The program `tourbillon`: its commands `serve`, `storm`, `top`, `profile` and
//! `trace`.

use tourbillon_support as common;
use tourbillon_support::clients;

mod beside;
mod escapes;
mod hostile_pages;
mod inspect;
mod output;
mod perfetto;
mod picture;
#[cfg(feature = "profile")]
mod profile;
mod serve;
mod storm;
mod top;
mod trace;
