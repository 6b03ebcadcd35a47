//! One shard against a plain model, on one thread: random programs of all operations on timers, by
//! an owner that is sometimes the caller (the store is used) and sometimes not (the inbox is used).
//!
//! To identify a [`Due`], the low bits of a timer's deadlines hold its number: deadlines are
//! multiples of [`UNIT`] plus the number, and all waits are multiples of it. (Equal deadlines are
//! tested in `timer/edge_cases.rs` and `store/stores.rs`.)

mod bench;
mod desk;
mod world;

use crate::{Move, common::units::YEAR};
use bench::Bench;
use proptest::prelude::*;
use tourbillon_shards::{NEVER, store::StoreKind};

const UNIT: u64 = 256;
/// Maximum number of timers. It is at most the number of cancels after which other threads sweep
/// for the owner (64), and below [`UNIT`].
const MOST: usize = 60;

/// Delays and waits are in units. Timer numbers choose among the timers that were made.
#[derive(Clone, Debug)]
enum Op {
    Local(bool),
    Advance(u64),
    Once {
        delay: u64,
        wait: u64,
    },
    Recurring {
        delay: u64,
        period: u64,
    },
    Cancel(usize),
    Move(usize, Move),
    DropHandle(usize),
    /// Sets the action of the callback on its own timer in its next run.
    Script(usize, Script),
    Sleep {
        delay: u64,
    },
    Poll(usize, bool),
    ResetSleep(usize, u64),
    DropSleep(usize),
    Expire {
        limit: usize,
    },
    Run(usize),
    Shutdown(usize),
    Close,
}

#[derive(Clone, Copy, Debug)]
enum Script {
    Cancel,
    Move(Move),
    /// Moves a timer, and then cancels it.
    MoveAndCancel(Move),
    Panic,
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..20_u64,
        2 => 0..1_000_000_u64,
        1 => 0..50 * YEAR / UNIT,
        1 => prop::sample::select(vec![NEVER / UNIT - 1, NEVER / UNIT, NEVER / UNIT + 1, u64::MAX / UNIT]),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        units().prop_map(Move::At),
        units().prop_map(Move::FromNow),
        units().prop_map(Move::FromStart),
        Just(Move::Refresh),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    let script = prop_oneof![
        Just(Script::Cancel),
        moves().prop_map(Script::Move),
        moves().prop_map(Script::MoveAndCancel),
        Just(Script::Panic),
    ];
    prop_oneof![
        8 => any::<bool>().prop_map(Op::Local),
        8 => prop_oneof![4 => 0..10_u64, 1 => units()].prop_map(Op::Advance),
        12 => (units(), units()).prop_map(|(delay, wait)| Op::Once { delay, wait }),
        6 => (units(), 1..30_u64).prop_map(|(delay, period)| Op::Recurring { delay, period }),
        6 => which().prop_map(Op::Cancel),
        16 => (which(), moves()).prop_map(|(which, to)| Op::Move(which, to)),
        2 => which().prop_map(Op::DropHandle),
        6 => (which(), script).prop_map(|(which, script)| Op::Script(which, script)),
        8 => units().prop_map(|delay| Op::Sleep { delay }),
        8 => (which(), any::<bool>()).prop_map(|(which, waker)| Op::Poll(which, waker)),
        8 => (which(), units()).prop_map(|(which, delay)| Op::ResetSleep(which, delay)),
        3 => which().prop_map(Op::DropSleep),
        14 => prop_oneof![2 => Just(usize::MAX), 1 => 0..4_usize].prop_map(|limit| Op::Expire { limit }),
        20 => which().prop_map(Op::Run),
        2 => which().prop_map(Op::Shutdown),
        1 => Just(Op::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) })]

    #[test]
    fn agrees_with_a_plain_model(
        program in prop::collection::vec(op(), 1..150),
        close_first in any::<bool>(),
        store in prop::sample::select(&StoreKind::ALL[..]),
    ) {
        let mut bench = Bench::new(store);
        for op in program {
            bench.apply(op);
            bench.world.lock().unwrap().check();
        }
        bench.finish(close_first);
    }
}
