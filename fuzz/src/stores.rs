//! Every store against the same model as in the tests of `tourbillon-shards`.
//!
//! The bytes are a program, one operation after the other: a byte that chooses it, and what it needs. All kinds of
//! stores get the same one.

use arbitrary::{Result, Unstructured};
use tourbillon_shards::store::{AnyStore, Store, StoreKind};

use crate::times::moment;

#[path = "../../shards/tests/common/checked.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod checked;

use checked::{Checked, Op};

/// As many as a program may hold: what walks over all of them is not to take the time of the rest.
const MOST: usize = 4_096;

pub fn run(bytes: &[u8]) {
    for kind in StoreKind::ALL {
        let mut checked = Checked::new(AnyStore::new(kind));
        // It ends where the bytes do.
        let _ = program(&mut checked, &mut Unstructured::new(bytes));
        checked.check();
        checked.apply(Op::RemoveUpTo(u64::MAX));
        assert!(checked.model.is_empty());
        checked.check();
    }
}

fn program(checked: &mut Checked<AnyStore>, bytes: &mut Unstructured) -> Result<()> {
    // The clock of an owner. Keys are mostly about it, as those of timers are.
    let mut now = 0;
    let mut steps = 0_u32;
    while !bytes.is_empty() {
        let used = checked.sorted.first().map(|&(key, _)| key);
        match bytes.arbitrary::<u8>()? % 16 {
            0..5 if checked.model.len() < MOST => {
                checked.apply(Op::Insert(moment(bytes, now, used)?));
            }
            // Many that are a step apart, or at one moment.
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
            // Some of those that are due, as an owner with a limit takes them.
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
            // A clock that is behind: nobody should, and nothing may break.
            14 => checked.apply(Op::RemoveUpTo(moment(bytes, now, used)?)),
            // To the next one, as a worker that has slept.
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
