//! Timers with options against a plain model, on one thread. Random programs build, start, move,
//! cancel (also by name), expire, deliver outcomes and close. All answers, outcomes and counts of
//! names must agree after each step. Many timers are due at one instant.
//!
//! ([`plain`](super::plain) tests plain timers and sleeps like this, with several holders of due
//! timers.)

mod check;
mod model;
mod world;

use crate::{Move, common::units::YEAR};
use proptest::prelude::*;
use tourbillon_shards::{NEVER, Outcome};
use world::World;

const NAMES: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Build(Plan),
    Start(usize),
    Cancel(usize),
    Move(usize, Move),
    /// Drops the handle of a timer.
    Drop(usize),
    /// Makes the condition of a timer false.
    Kill(usize),
    CancelName(usize, usize),
    RefreshName(usize),
    Advance(u64),
    Local(bool),
    Random(u64),
    /// Runs this many outcome deliveries.
    Tell(usize),
    /// Expires, applies these operations, and then runs what was due.
    Expire(usize, Vec<Op>),
    Close,
}

#[derive(Clone, Debug)]
struct Plan {
    wait: u64,
    /// Counted from the present.
    deadline: Option<u64>,
    recurring: bool,
    outcome: bool,
    tolerance: u64,
    jitter: u64,
    name: Option<usize>,
    script: Script,
    start: bool,
}

/// The callback's action in each run.
#[derive(Clone, Copy, Debug)]
enum Script {
    GoOn,
    End(Outcome),
    Panic,
    Cancel,
    MoveTo(u64),
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..6_u64,
        3 => 0..300_u64,
        2 => 0..1_000_000_000_u64,
        1 => 0..60 * YEAR,
        1 => prop::sample::select(vec![NEVER - 1, NEVER, NEVER + 1, u64::MAX]),
    ]
}

fn how() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![Outcome::Fired, Outcome::Cancelled, Outcome::Shutdown])
}

fn plan() -> impl Strategy<Value = Op> {
    let rare = || prop_oneof![3 => Just(0), 1 => span()];
    let script = prop_oneof![
        4 => Just(Script::GoOn),
        1 => how().prop_map(Script::End),
        1 => Just(Script::Panic),
        1 => Just(Script::Cancel),
        1 => span().prop_map(Script::MoveTo),
    ];
    let times = (span(), prop::option::of(span()), rare(), rare());
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.8));
    let name = prop::option::of(0..NAMES);
    (times, flags, name, script).prop_map(
        |((wait, deadline, tolerance, jitter), (recurring, outcome, start), name, script)| {
            Op::Build(Plan {
                wait,
                deadline,
                recurring,
                outcome,
                tolerance,
                jitter,
                name,
                script,
                start,
            })
        },
    )
}

/// Operations that are allowed while a thread holds due timers.
fn touch() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    let moves = prop_oneof![
        span().prop_map(Move::At),
        span().prop_map(Move::FromNow),
        span().prop_map(Move::FromStart),
        Just(Move::Refresh),
    ];
    prop_oneof![
        3 => plan(),
        2 => which().prop_map(Op::Start),
        3 => which().prop_map(Op::Cancel),
        6 => (which(), moves).prop_map(|(which, to)| Op::Move(which, to)),
        1 => which().prop_map(Op::Drop),
        1 => which().prop_map(Op::Kill),
        1 => (0..NAMES, 0..4_usize).prop_map(|(name, max)| Op::CancelName(name, max)),
        1 => (0..NAMES).prop_map(Op::RefreshName),
        1 => (0..3_usize).prop_map(Op::Tell),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let limit = prop_oneof![2 => Just(usize::MAX), 1 => 0..4_usize];
    prop_oneof![
        20 => touch(),
        4 => plan(),
        4 => span().prop_map(Op::Advance),
        2 => any::<bool>().prop_map(Op::Local),
        1 => any::<u64>().prop_map(Op::Random),
        8 => (limit, prop::collection::vec(touch(), 0..4))
            .prop_map(|(limit, meanwhile)| Op::Expire(limit, meanwhile)),
        // Rare, because little can be done afterwards.
        1 => prop::bool::weighted(0.2).prop_map(|close| if close { Op::Close } else { Op::Tell(9) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn agrees_with_a_plain_model(program in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in program {
            world.apply(op);
            world.check();
        }
        world.finish();
    }
}
