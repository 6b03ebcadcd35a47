//! Fuzzes a shard against a simple model, on one thread, with times in the whole range. The program
//! uses all operations on timers and sleeps. The thread is sometimes the owner (then operations use
//! the store) and sometimes remote (then they use the inbox).
//!
//! The input is a program: the kind of store, then operations, each with a byte that selects it and
//! its arguments. Tags identify timers. A timer without a tag runs as soon as it is due, which
//! identifies it.

mod model;
mod naps;
mod owner;
mod program;
mod world;

use arbitrary::Unstructured;
use tourbillon_shards::store::StoreKind;

use world::World;

/// Runs the program in `bytes`.
pub fn run(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let kind: u8 = bytes.arbitrary().unwrap_or_default();
    let kinds = StoreKind::ALL;
    let mut world = World::new(kinds[usize::from(kind) % kinds.len()]);
    // The program ends with the bytes.
    let _ = program::run(&mut world, &mut bytes);
    world.finish();
}
