//! Fuzzes every timer store against the model of the tests of `tourbillon-shards`.
//!
//! The input is a program: operations, each with a byte that selects it and its arguments. All
//! kinds of stores run the same program.

use arbitrary::{Result, Unstructured};
use tourbillon_model::checked::{Checked, Op};
use tourbillon_shards::store::{AnyStore, Store, StoreKind};

use crate::times::moment;

/// Maximum number of entries. It limits the time of operations that visit all of them.
const MOST: usize = 4_096;

pub fn run(bytes: &[u8]) {
    for kind in StoreKind::ALL {
        let mut checked = Checked::new(AnyStore::new(kind));
        // The program ends with the bytes.
        let _ = program(&mut checked, &mut Unstructured::new(bytes));
        checked.check();
        checked.apply(Op::RemoveUpTo(u64::MAX));
        assert!(checked.model.is_empty());
        checked.check();
    }
}

fn program(checked: &mut Checked<AnyStore>, bytes: &mut Unstructured) -> Result<()> {
    // The owner's clock. Most keys are close to it, as with timers.
    let mut now = 0;
    let mut steps = 0_u32;
    while !bytes.is_empty() {
        let used = checked.sorted.first().map(|&(key, _)| key);
        match bytes.arbitrary::<u8>()? % 16 {
            0..5 if checked.model.len() < MOST => {
                checked.apply(Op::Insert(moment(bytes, now, used)?));
            }
            // Many entries with equal distances, or with equal keys.
            5 => {
                let (count, step): (u8, u16) = bytes.arbitrary()?;
                let from = moment(bytes, now, used)?;
                for nth in 0..u64::from(count) {
                    if checked.model.len() < MOST {
                        checked.apply(Op::Insert(from.wrapping_add(nth * u64::from(step))));
                    }
                }
            }
            6 | 7 => checked.apply(Op::Remove(bytes.arbitrary::<u16>()?.into())),
            8 | 9 => {
                let which = bytes.arbitrary::<u16>()?.into();
                checked.apply(Op::Rekey(which, moment(bytes, now, used)?));
            }
            10 => {
                let which = bytes.arbitrary::<u16>()?.into();
                checked.apply(Op::Lower(which, moment(bytes, now, used)?));
            }
            11 => checked.apply(Op::RemoveFirst),
            // Take some due entries, as an owner with a limit does.
            12 => {
                for _ in 0..bytes.arbitrary::<u8>()? % 8 {
                    let due = checked.first().filter(|&(key, _)| key <= now);
                    assert_eq!(checked.store.pop_due(now, |_| ()), due);
                    let Some((key, slot)) = due else { break };
                    checked.model.remove(&slot);
                    checked.sorted.remove(&(key, slot));
                }
            }
            13 => {
                now = now.max(moment(bytes, now, used)?);
                checked.apply(Op::RemoveUpTo(now));
            }
            // A clock that goes back. No caller should do that, but nothing may break.
            14 => checked.apply(Op::RemoveUpTo(moment(bytes, now, used)?)),
            // Advance to the next entry, as a worker does after a sleep.
            _ => {
                now = now.max(used.unwrap_or(now));
                checked.apply(Op::RemoveUpTo(now));
            }
        }
        checked.first();
        steps += 1;
        if steps.is_multiple_of(64) {
            checked.check();
        }
    }
    Ok(())
}
