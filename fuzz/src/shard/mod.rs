//! A shard against a plain model, on one thread, with times anywhere: all that can be done to timers and sleeps, by an
//! owner that is now at home (the store is used) and now not (the inbox is).
//!
//! The bytes are a program: which store, and then one operation after the other, a byte that chooses it and what it
//! needs. Timers are told apart by their tags; those that have none run as soon as they are due, which tells them apart,
//! too.

mod model;
mod naps;
mod owner;
mod program;
mod world;

use arbitrary::Unstructured;
use tourbillon_shards::store::StoreKind;

use world::World;

pub fn run(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let kind: u8 = bytes.arbitrary().unwrap_or_default();
    let kinds = StoreKind::ALL;
    let mut world = World::new(kinds[usize::from(kind) % kinds.len()]);
    // It ends where the bytes do.
    let _ = program::run(&mut world, &mut bytes);
    world.finish();
}
