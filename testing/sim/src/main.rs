//! Runs the runtime in a simulated world, one seed after the other: see
//! `docs/internals/verification.md`.

#![cfg_attr(tourbillon_sim, allow(missing_docs))]

#[cfg(tourbillon_sim)]
mod acts;
#[cfg(tourbillon_sim)]
mod cast;
// The rules of how a timer may end, which the program and the soak share. That package is not built
// for the world.
#[cfg(tourbillon_sim)]
#[path = "../../../crates/cli/src/ledger/ends.rs"]
mod ends;
#[cfg(tourbillon_sim)]
mod ledger;
#[cfg(tourbillon_sim)]
mod life;
#[cfg(tourbillon_sim)]
mod oracle;
#[cfg(tourbillon_sim)]
mod paused;
#[cfg(tourbillon_sim)]
mod plan;
#[cfg(tourbillon_sim)]
mod runner;
#[cfg(tourbillon_sim)]
mod scenario;
#[cfg(tourbillon_sim)]
mod tasks;
#[cfg(tourbillon_sim)]
mod work;

/// The payload of an intended panic of a callback or task.
#[cfg(tourbillon_sim)]
struct Meant;

#[cfg(tourbillon_sim)]
fn main() -> std::process::ExitCode {
    runner::main()
}

#[cfg(not(tourbillon_sim))]
fn main() {
    eprintln!("there is a world with `--cfg tourbillon_sim` alone: run testing/sim/run.sh");
    std::process::exit(2);
}
