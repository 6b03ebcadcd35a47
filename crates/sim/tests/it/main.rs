//! Tests of the simulation with programs of users.

#![cfg(tourbillon_sim)]

mod disk;
mod faults;
mod maps;
mod network;
mod outside;
mod planted;
mod power;
mod races;
mod same;
mod shrink;
mod signals;
