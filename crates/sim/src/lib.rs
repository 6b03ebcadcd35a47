#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(tourbillon_sim)]
mod asserts;
#[cfg(tourbillon_sim)]
mod calls;
#[cfg(tourbillon_sim)]
mod check;
#[cfg(tourbillon_sim)]
mod control;
#[cfg(tourbillon_sim)]
mod disk;
#[cfg(tourbillon_sim)]
mod faults;
#[cfg(tourbillon_sim)]
mod network;
#[cfg(tourbillon_sim)]
mod outcome;
#[cfg(tourbillon_sim)]
mod process;
#[cfg(tourbillon_sim)]
mod run;
#[cfg(tourbillon_sim)]
mod shrink;
#[cfg(tourbillon_sim)]
mod simulation;
#[cfg(tourbillon_sim)]
mod world;

#[cfg(tourbillon_sim)]
pub use tourbillon_macros::sim_test as test;

#[cfg(tourbillon_sim)]
#[doc(hidden)]
pub use self::{
    asserts::sometimes,
    check::{Test, check},
};
#[cfg(tourbillon_sim)]
pub use self::{
    control::{fail, random},
    disk::Disk,
    faults::{
        crash, host_address, is_running, partition, partition_one_way, pause, repair, repair_all,
        reset, restart, send_signal, set_clock, set_descriptors, set_disk, take_core,
    },
    network::Network,
    outcome::{Failure, Outcome, Report},
    run::elapsed,
    simulation::Simulation,
};

/// For the simulation of the runtime itself.
#[cfg(tourbillon_sim)]
#[doc(hidden)]
pub mod raw {
    pub use tourbillon_sync::sim::{Mutex, thread};

    pub use crate::{
        control::*,
        shrink::{few_decisions, run_for, run_to, run_with},
        world::{
            Report,
            faults::{Faults, Plan, Style},
            pair::Socket,
            run,
        },
    };
}
