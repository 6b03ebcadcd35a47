//! Random programs that arm, start, cancel, refresh, move and name timers, set the clocks and shut
//! down. A runtime on the paused clock runs them beside a plain model. Both agree on every answer,
//! on each run of each callback and its moment to the nanosecond, and on each outcome, over spans
//! of microseconds to years, with many timers due at one instant.
//!
//! The runtime is quiet between operations, so nothing depends on the speed of its threads.
//! `shards/tests/model/options` does this to a shard alone, in the middle of its protocols.

mod arm;
mod check;
mod clocks;
mod plain;
mod timer;
mod whole;
mod world;

use std::fmt;

use crate::common::{alarm, paused::paused, process::alone};
use proptest::prelude::*;
use tourbillon::timer::OnStep;
use world::World;

const YEAR: u64 = 365 * 24 * 3_600 * 1_000_000_000;
const NAMES: usize = 3;

/// A span of time. Most spans are multiples of half the program's unit, so many moments coincide.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// A number of halves of the unit.
    Halves(u8),
    Nanos(u64),
}

/// When a timer is due.
#[derive(Clone, Copy, Debug)]
enum When {
    After(Span),
    At(Moment),
    Every(Span),
    AtWall(Moment, OnStep),
    AfterBoot(Span),
    AtBoot(Moment),
}

/// A moment, relative to the present of its clock.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Ahead(Span),
    Back(Span),
}

/// What a callback does to its own timer in its first run.
#[derive(Clone, Copy, Debug)]
enum Script {
    Nothing,
    Cancel,
    ResetAt(Span),
}

#[derive(Clone, Debug)]
struct Plan {
    when: When,
    told: bool,
    while_alive: bool,
    name: Option<usize>,
    tolerance: Span,
    jitter: Span,
    times: Option<u64>,
    script: Script,
    start: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Arm(Plan),
    Start(usize),
    Cancel(usize),
    Refresh(usize),
    Reset(usize, Span),
    ResetAt(usize, Moment),
    ResetFromStart(usize, Span),
    /// Drops the handle.
    Drop(usize),
    /// Drops the value for which a timer with `while_alive` runs.
    Kill(usize),
    CancelNamed(usize, usize),
    RefreshNamed(usize),
    /// Lets the clock jump.
    Jump(Span),
    /// Lets the clock go from deadline to deadline.
    Glide(Span),
    SetWall(Step),
    /// Lets the runtime become quiet.
    Settle,
}

/// A step of the wall clock.
#[derive(Clone, Copy, Debug)]
enum Step {
    By(Moment),
    /// To the deadline of a timer, plus a number of ns.
    To(usize, i8),
}

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// On a thread in `block_on`.
    Outside,
    /// In a task.
    Task,
}

#[derive(Clone)]
struct Program {
    unit: u64,
    workers: usize,
    place: Place,
    ops: Vec<Op>,
    /// The operations after the shutdown.
    late: Vec<Op>,
}

/// Prints one operation a line.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, workers, place) = (self.unit, self.workers, self.place);
        writeln!(f, "{workers} workers, {place:?}, a unit of {unit} ns")?;
        for op in &self.ops {
            writeln!(f, "    {op:?}")?;
        }
        writeln!(f, "shut down, and then")?;
        for op in &self.late {
            writeln!(f, "    {op:?}")?;
        }
        Ok(())
    }
}

/// Generates numbers in which all orders of magnitude are equally likely.
fn log_uniform(bits: std::ops::Range<u32>) -> impl Strategy<Value = u64> {
    (bits, any::<u64>()).prop_map(|(bits, low)| (1 << bits) | (low & ((1 << bits) - 1)))
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        10 => (0..7_u8).prop_map(Span::Halves),
        1 => (0..3_u64).prop_map(Span::Nanos),
        2 => log_uniform(10..61).prop_map(|nanos| Span::Nanos(nanos.min(60 * YEAR))),
        1 => prop::sample::select(vec![73 * YEAR, 80 * YEAR, u64::MAX]).prop_map(Span::Nanos),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        4 => span().prop_map(Moment::Ahead),
        1 => span().prop_map(Moment::Back),
    ]
}

fn plan() -> impl Strategy<Value = Op> {
    let on_step = prop_oneof![Just(OnStep::Fire), Just(OnStep::Skip)];
    let when = prop_oneof![
        4 => span().prop_map(When::After),
        2 => moment().prop_map(When::At),
        4 => span().prop_map(When::Every),
        4 => (moment(), on_step).prop_map(|(at, on_step)| When::AtWall(at, on_step)),
        1 => span().prop_map(When::AfterBoot),
        1 => moment().prop_map(When::AtBoot),
    ];
    let rare = || prop_oneof![5 => Just(Span::Nanos(0)), 1 => span()];
    let script = prop_oneof![
        5 => Just(Script::Nothing),
        1 => Just(Script::Cancel),
        1 => span().prop_map(Script::ResetAt),
    ];
    let flags = (
        any::<bool>(),
        prop::bool::weighted(0.25),
        prop::bool::weighted(0.75),
    );
    let name = prop::option::of(0..NAMES);
    let times = prop::option::weighted(0.6, 1..4_u64);
    (when, flags, name, (rare(), rare()), times, script).prop_map(
        |(when, (told, while_alive, start), name, (tolerance, jitter), times, script)| {
            Op::Arm(Plan {
                when,
                told,
                while_alive,
                name,
                tolerance,
                jitter,
                times,
                script,
                start,
            })
        },
    )
}

/// Returns an operation on timers.
fn touch() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    prop_oneof![
        8 => plan(),
        2 => which().prop_map(Op::Start),
        3 => which().prop_map(Op::Cancel),
        3 => which().prop_map(Op::Refresh),
        3 => (which(), span()).prop_map(|(which, to)| Op::Reset(which, to)),
        3 => (which(), moment()).prop_map(|(which, to)| Op::ResetAt(which, to)),
        3 => (which(), span()).prop_map(|(which, to)| Op::ResetFromStart(which, to)),
        1 => which().prop_map(Op::Drop),
        1 => which().prop_map(Op::Kill),
        2 => (0..NAMES, prop_oneof![Just(usize::MAX), 0..4_usize])
            .prop_map(|(name, max)| Op::CancelNamed(name, max)),
        1 => (0..NAMES).prop_map(Op::RefreshNamed),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let step = prop_oneof![
        moment().prop_map(Step::By),
        (any::<usize>(), -1..2_i8).prop_map(|(which, by)| Step::To(which, by)),
    ];
    prop_oneof![
        20 => touch(),
        4 => span().prop_map(Op::Jump),
        4 => span().prop_map(Op::Glide),
        3 => step.prop_map(Op::SetWall),
        2 => Just(Op::Settle),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let unit = log_uniform(10..61).prop_map(|unit| unit.min(60 * YEAR));
    let place = prop_oneof![Just(Place::Outside), Just(Place::Task)];
    let ops = prop::collection::vec(op(), 1..60);
    let late = prop::collection::vec(touch(), 0..8);
    (unit, 1..3_usize, place, ops, late).prop_map(|(unit, workers, place, ops, late)| Program {
        unit,
        workers,
        place,
        ops,
        late,
    })
}

fn run(program: Program) {
    let _alarm = alarm();
    let runtime = paused(program.workers);
    let (handle, unit, ops) = (runtime.handle().clone(), program.unit, program.ops);
    let body = async move {
        let mut world = World::new(handle, unit).await;
        for op in ops {
            world.apply(op).await;
        }
        world.settle().await;
        world
    };
    let mut world = match program.place {
        Place::Outside => runtime.block_on(body),
        Place::Task => match runtime.block_on(runtime.spawn(body)) {
            Ok(world) => world,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
    };
    assert_eq!(runtime.metrics().total().panics(), 0, "callbacks assert");
    drop(runtime);
    world.shut_down();
    for op in program.late {
        world.apply_late(op);
    }
    world.finish();
}

/// Returns a configuration with 1,000 cases, unless `PROPTEST_CASES` sets another number.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    config
}

/// The test has a process of its own. While a clock is paused, all runtimes of a process read the
/// time by a slower path, and this test takes long.
#[test]
fn a_runtime_agrees_with_a_plain_model() {
    alone(|| {
        proptest!(config(), |(program in program())| run(program));
    });
}
