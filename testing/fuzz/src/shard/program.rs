//! Interprets bytes as operations.

use arbitrary::{Result, Unstructured};

use super::{owner::Script, world::World};
use crate::times::moment;

/// Maximum number of timers, and of sleeps. With more, other threads sweep up cancelled timers for
/// the owner.
const MOST: usize = 30;

pub fn run(world: &mut World, bytes: &mut Unstructured) -> Result<()> {
    while !bytes.is_empty() {
        step(world, bytes)?;
        world.check();
    }
    Ok(())
}

/// Derives a time, possibly at or close to another deadline.
fn at(world: &World, bytes: &mut Unstructured) -> Result<u64> {
    moment(bytes, world.now, world.earliest())
}

/// Derives a delay: a time minus the present.
fn wait(world: &World, bytes: &mut Unstructured) -> Result<u64> {
    Ok(at(world, bytes)?.saturating_sub(world.now))
}

fn step(world: &mut World, bytes: &mut Unstructured) -> Result<()> {
    let op: u8 = bytes.arbitrary()?;
    match op % 32 {
        0 => world.set_local(true),
        1 => world.set_local(false),
        2..5 => {
            let to = at(world, bytes)?;
            world.now = world.now.max(to);
        }
        5..8 if world.timers.len() < MOST => {
            let (at, wait) = (at(world, bytes)?, wait(world, bytes)?);
            world.once(at, wait);
        }
        8 if world.timers.len() < MOST => {
            let (at, period) = (at(world, bytes)?, wait(world, bytes)?);
            world.recurring(at, period);
        }
        9..12 if world.timers.len() < MOST => {
            let options: u8 = bytes.arbitrary()?;
            let wait = wait(world, bytes)?;
            let deadline = match options & 4 {
                0 => None,
                _ => Some(at(world, bytes)?),
            };
            let tolerance = match options & 8 {
                0 => 0,
                _ => self::wait(world, bytes)?,
            };
            let id = world.build(
                wait,
                deadline,
                tolerance,
                options & 1 != 0,
                options & 2 != 0,
            );
            if options & 16 == 0 {
                world.start(id);
            }
        }
        12 => {
            if let Some(id) = choose(world, bytes)? {
                world.start(id);
            }
        }
        13 => {
            if let Some(id) = choose(world, bytes)? {
                world.cancel(id);
            }
        }
        14 | 15 => {
            if let Some(id) = choose(world, bytes)? {
                let to = at(world, bytes)?;
                world.reset_at(id, to);
            }
        }
        16 => {
            if let Some(id) = choose(world, bytes)? {
                let wait = wait(world, bytes)?;
                world.reset(id, wait);
            }
        }
        17 => {
            if let Some(id) = choose(world, bytes)? {
                let wait = wait(world, bytes)?;
                world.reset_from_start(id, wait);
            }
        }
        18 => {
            if let Some(id) = choose(world, bytes)? {
                world.refresh(id);
            }
        }
        19 => {
            if let Some(id) = choose(world, bytes)? {
                world.drop_handle(id);
            }
        }
        20 => {
            if let Some(id) = choose(world, bytes)? {
                let script = match bytes.arbitrary::<u8>()? % 5 {
                    0 => Script::Cancel,
                    1 => Script::Move(at(world, bytes)?),
                    2 => Script::MoveAndCancel(at(world, bytes)?),
                    3 => Script::Panic,
                    _ => Script::End,
                };
                world.script(id, script);
            }
        }
        21 => {
            let limit = bytes.arbitrary::<u8>()? % 4;
            world.expire(limit.into());
        }
        22..25 => world.expire(usize::MAX),
        // Advance to the next deadline, as an owner does after a sleep.
        25 => {
            let next = world.shard.next_deadline();
            if next != tourbillon_shards::NEVER {
                world.now = world.now.max(next);
            }
            world.expire(usize::MAX);
        }
        26 => {
            let which: u8 = bytes.arbitrary()?;
            world.run_held(which.into());
        }
        27 => {
            let (which, how): (u8, bool) = bytes.arbitrary()?;
            world.end_held(which.into(), how);
        }
        28 => world.settle(),
        29 if world.naps_made < MOST => {
            let at = at(world, bytes)?;
            world.nap(at);
        }
        30 => {
            let (which, what): (u8, u8) = bytes.arbitrary()?;
            if let Some(id) = usize::from(which).checked_rem(world.naps.len()) {
                match what % 4 {
                    0 | 1 => {
                        let to = at(world, bytes)?;
                        world.reset_nap(id, to);
                    }
                    2 => world.poll(id),
                    _ => world.drop_nap(id),
                }
            }
        }
        31 if op == 31 => world.close(),
        _ => {}
    }
    Ok(())
}

fn choose(world: &World, bytes: &mut Unstructured) -> Result<Option<usize>> {
    let which: u8 = bytes.arbitrary()?;
    Ok(usize::from(which).checked_rem(world.timers.len()))
}
