//! Runs a simulation in this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tourbillon::runtime::Builder;

use crate::{
    simulation::{Simulation, Spec},
    world::{
        self, NEVER, Wait, enter,
        faults::{Plan, Style},
        with,
    },
};

/// Stands before the names of what should happen in some seed.
pub(crate) const SOMETIMES: &str = "sometimes ";

/// Stands before the calls that the real system has answered.
pub(crate) const OUTSIDE: &str = "outside ";

/// Through how many points a run goes that decides nothing at random. 0: nobody knows.
pub(crate) static USUAL_POINTS: AtomicU64 = AtomicU64::new(0);

/// Returns the plan of a seed: how threads take turns, and what goes wrong on the machines.
fn plan(simulation: &Simulation) -> Plan {
    let mut rng = fastrand::Rng::with_seed(simulation.seed ^ 0x5851_f42d_4c95_7f2d);
    let style = match rng.u8(..4) {
        0 => Style::Uniform(rng.u16(100..6_000)),
        1 => Style::Bursts {
            often: rng.u16(2_000..30_000),
            length: rng.u32(20..2_000),
        },
        // A bug of depth d needs d − 1 changes at the right points.
        2 => {
            let count = rng.u32(..=3);
            let guess = 1 << rng.u32(9..17);
            let points = match USUAL_POINTS.load(Ordering::Relaxed) {
                0 => guess,
                // A change of the program that hardly matters is to change few plans.
                usual => usual.next_power_of_two(),
            };
            Style::Changes { count, points }
        }
        _ => Style::Priorities(rng.u16(100..2_000)),
    };
    let style = simulation.style.unwrap_or(style);
    let freezes = rng.bool();
    Plan {
        style,
        point_ns: rng.u64(8..60),
        late_ns: if rng.bool() { rng.u64(..60_000) } else { 0 },
        spurious: if rng.bool() { 500 } else { 0 },
        interrupt: if rng.bool() { 500 } else { 0 },
        freeze: if freezes { rng.u32(1..30) } else { 0 },
        freeze_ns: rng.u64(50_000..20_000_000),
        weak: if rng.bool() { 3_000 } else { 0 },
        points_most: simulation.points,
        ..Plan::default()
    }
}

/// Runs a simulation on a new thread of this process. Returns the numbers of the seed, one a line.
/// A seed that fails ends the process.
pub(crate) fn run(simulation: Simulation) -> String {
    let seed = simulation.seed;
    let plan = plan(&simulation);
    // The thread-local values of the calling thread are older than the seed.
    let ran = thread::Builder::new()
        .spawn(move || world::run_open(seed, plan, || hosts(&Arc::new(simulation))));
    let report = ran.expect("the system has a thread").join();
    let report = report.unwrap_or_else(|_| world::die("the simulation's own thread has panicked"));
    let sometimes = report.sometimes.iter();
    let sometimes: String = sometimes
        .map(|(what, times)| format!("{SOMETIMES}{} {times}\n", what.replace('\n', " ")))
        .collect();
    let left = world::outside::left();
    let left: String = left
        .iter()
        .map(|(call, times)| format!("{OUTSIDE}{call} {times}\n"))
        .collect();
    format!(
        "{left}{sometimes}hash {}\npoints {}\nthreads {}\nsimulated_ns {}\n",
        report.hash, report.points, report.threads, report.took
    )
}

/// Starts the hosts, and waits until all clients have ended.
fn hosts(simulation: &Arc<Simulation>) {
    with(|world| {
        let mut state = world.lock();
        state.net.set(&simulation.network);
        for spec in &simulation.hosts {
            state.add_host(spec.name.clone(), simulation);
        }
    });
    let of_starter = simulation.clone();
    crate::faults::set_starter(Box::new(move |index| {
        start(index, &of_starter.hosts[index])
    }));
    for (index, spec) in simulation.hosts.iter().enumerate() {
        start(index, spec);
    }
    let has_clients = simulation.hosts.iter().any(|spec| spec.is_client);
    let limit = u64::try_from(simulation.limit.as_nanos()).unwrap_or(NEVER);
    let until = with(|world| world.lock().now.saturating_add(limit)).unwrap_or(NEVER);
    loop {
        let Some(world) = enter() else { return };
        let state = world.lock();
        let mut waited = simulation.hosts.iter().enumerate();
        let running = waited.find(|(index, spec)| {
            (spec.is_client || !has_clients) && !state.hosts[index + 1].has_ended
        });
        let Some((_, spec)) = running else { return };
        if state.now >= until {
            drop(state);
            world::die(&format!(
                "{} has not ended after {:?} of simulated time",
                spec.name, simulation.limit
            ));
        }
        world.wait(state, Wait::Host, until);
    }
}

/// Starts the main thread of a host. The first host has number 1: the machine of the simulation's
/// own thread is number 0.
fn start(index: usize, spec: &Spec) {
    let spec = spec.clone();
    with(|world| world.lock().start_on(index + 1));
    let name = "main".to_owned();
    let thread = tourbillon_sync::sim::thread::Builder::new().name(name);
    let started = thread.spawn(move || {
        let runtime = Builder::new()
            .worker_threads(spec.workers)
            .pin(false)
            .name(&spec.name)
            .build();
        let runtime = runtime.unwrap_or_else(|error| panic!("the runtime of a host: {error}"));
        let ended = runtime.block_on((spec.start)());
        if let Err(why) = ended {
            world::die(&format!("the program of {} failed: {why}", spec.name));
        }
        drop(runtime);
        with(|world| world.lock().host_has_ended());
    });
    if let Err(error) = started {
        world::die(&format!("the thread of a host: {error}"));
    }
}

/// Returns the time since the beginning of the simulation, by no host's clock.
pub fn elapsed() -> Duration {
    let passed = with(|world| world.lock().now - world::BEGIN);
    Duration::from_nanos(passed.unwrap_or(0))
}
