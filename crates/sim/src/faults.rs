//! What a program of a simulation may do to hosts and links.

use std::{
    net::IpAddr,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use crate::{
    disk::Disk,
    world::{State, World, enter, net, signals::LAST},
};

/// Starts the program of a host, by its place.
type Starter = Box<dyn Fn(usize) + Send + Sync>;

static STARTER: OnceLock<Starter> = OnceLock::new();

pub(crate) fn set_starter(starter: Starter) {
    let _ = STARTER.set(starter);
}

/// Calls `f` with the state. It is a point before that.
fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    let Some(world) = enter() else {
        panic!("this function is for threads of a simulation");
    };
    world.point();
    let mut state = world.lock();
    f(&mut state)
}

fn number(state: &State, name: &str) -> usize {
    state.host_named(name).unwrap_or_else(|| {
        let why = format!("there is no host {name:?}");
        crate::world::die_with(&why, "")
    })
}

/// Returns the address of a host. Its name resolves to it, as in `("server", 80)`.
///
/// # Panics
///
/// Panics on a thread that is not part of a simulation. A wrong name fails the seed. Both hold for
/// the other functions here.
pub fn host_address(name: &str) -> IpAddr {
    with(|state| net::address(number(state, name)).into())
}

/// Cuts the link between two hosts. Segments of connections and requests wait for the
/// [repair](repair), as those that are sent again and again; datagrams are lost.
pub fn partition(one: &str, other: &str) {
    with(|state| {
        let (one, other) = (number(state, one), number(state, other));
        state.set_cut(one, other, true);
        state.set_cut(other, one, true);
    });
}

/// Cuts one direction of the link between two hosts: what `from` sends does not come to `to`.
pub fn partition_one_way(from: &str, to: &str) {
    with(|state| {
        let (from, to) = (number(state, from), number(state, to));
        state.set_cut(from, to, true);
    });
}

/// Joins the link between two hosts again.
pub fn repair(one: &str, other: &str) {
    with(|state| {
        let (one, other) = (number(state, one), number(state, other));
        state.set_cut(one, other, false);
        state.set_cut(other, one, false);
    });
}

/// Joins all links again.
pub fn repair_all() {
    with(State::repair);
}

/// Resets all connections between two hosts.
pub fn reset(one: &str, other: &str) {
    with(|state| {
        let (one, other) = (number(state, one), number(state, other));
        state.reset_between(one, other);
    });
}

/// Takes the power from a host: its threads stand still for ever, and nothing of its memory is
/// dropped. Its peers learn nothing of it. After a [restart], it answers what they send by resets.
/// A host may crash itself; then the call does not return.
///
/// The hosts share the memory of one process. A thread that crashes while it holds a lock of a
/// `static` keeps it.
pub fn crash(name: &str) {
    let Some(world) = enter() else {
        panic!("this function is for threads of a simulation");
    };
    world.point();
    let mut state = world.lock();
    let host = number(&state, name);
    state.crash(host);
    drop(state);
    world.stand_still_if_ended();
}

/// Starts a host again after a [crash], or after the end of its program: the program runs from the
/// beginning.
///
/// A host whose program [runs](is_running) goes on as it is.
pub fn restart(name: &str) {
    let host = with(|state| {
        let host = number(state, name);
        state.restart(host).then_some(host)
    });
    if let (Some(host), Some(start)) = (host, STARTER.get()) {
        start(host - 1);
    }
}

/// Returns whether the program of a host runs: whether it has been started and has neither crashed
/// nor ended. Its end is that of its main thread, after that of its runtime. What it has left open
/// then is closed, also what a `static` keeps, and its other threads are gone.
pub fn is_running(name: &str) -> bool {
    with(|state| {
        let host = number(state, name);
        state.hosts[host].runs
    })
}

/// Sends a signal to the program of a host, by its number or as a
/// [`SignalKind`](tourbillon::signal::SignalKind). What listens for it gets it, as a handler that
/// was set by `sigaction` does. Without a handler, the signal ends the program, stops it
/// (`SIGSTOP` and others), lets it go on (`SIGCONT`), or has no effect, as on Linux.
///
/// A program that a signal ends is gone at once, and no destructor runs; but its host is up, and
/// closes its sockets and files: peers see the end of a stream, or a reset. After a [restart] the
/// program runs anew. The disk stays as it is. A host that does not run has no use for a signal.
///
/// Its threads stop wherever they are, as those do that outlive the main thread of a program that
/// ends by itself. The hosts share the memory of one process: a lock of a `static` that a thread
/// has then, of the standard output for example, stays locked for all hosts.
///
/// A *client* that a signal ends has not come to its end: unless it starts again, the seed fails at
/// its [limit](crate::Simulation::limit). A program that is stopped stays so until `SIGCONT`. If
/// all others wait meanwhile, the seed fails: nobody can run any more.
///
/// A program may send a signal to itself, also by `kill` and `raise`. Numbers above 31 fail the
/// seed. The system itself sends none, such as `SIGPIPE`, `SIGCHLD` or `SIGALRM`.
pub fn send_signal(name: &str, signal: impl Into<i32>) {
    let Some(world) = enter() else {
        panic!("this function is for threads of a simulation");
    };
    world.point();
    let mut state = world.lock();
    let (host, signal) = (number(&state, name), signal.into());
    if !(1..=LAST).contains(&signal) {
        crate::world::die_with(&format!("there is no signal {signal} in a simulation"), "");
    }
    state.send_signal(host, signal);
    drop(state);
    world.stand_still_if_ended();
    // The calling thread may be one of the host, which may have been stopped.
    world.point();
}

/// Returns a time in ns.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets the wall clock of a host. Timers of the wall clock follow; `Instant` does not change.
pub fn set_clock(name: &str, to: SystemTime) {
    let to = to.duration_since(SystemTime::UNIX_EPOCH);
    with(|state| {
        let host = number(state, name);
        state.set_wall(host, nanos(to.unwrap_or(Duration::ZERO)));
    });
}

/// Lets no thread of a host run for some time, as if the system had given all of its cores to
/// others, or as after `SIGSTOP` and `SIGCONT`. Its clocks go on, and what is sent to it comes. A
/// host may pause itself.
pub fn pause(name: &str, time: Duration) {
    with(|state| {
        let (host, until) = (number(state, name), state.now.saturating_add(nanos(time)));
        state.pause(host, until);
    });
    // The calling thread may be one of the host.
    crate::world::with(World::point);
}

/// Takes its core from a thread of a host for some time: from one that runs then or soon, so most
/// likely from a worker. The others go on.
///
/// Without this, threads lose their cores at random for up to 20 ms, in half of the seeds.
pub fn take_core(name: &str, time: Duration) {
    with(|state| {
        let host = number(state, name);
        state.take_core(host, nanos(time));
    });
}

/// Sets how many descriptors a host may have: see [`descriptors`](crate::Simulation::descriptors).
/// Those that it has stay. With 0, each call fails that needs another one.
pub fn set_descriptors(name: &str, most: usize) {
    with(|state| {
        let host = number(state, name);
        state.hosts[host].descriptors = most;
    });
}

/// Changes what the disk of a host does: how long syncs take, for how much it has room, and which
/// part of the syncs fails. What is on it stays. A host without a [disk](crate::Simulation::disk)
/// fails the seed.
pub fn set_disk(name: &str, disk: Disk) {
    with(|state| {
        let host = number(state, name);
        match &mut state.hosts[host].disk {
            Some(volume) => volume.plan = disk,
            None => crate::world::die_with(&format!("{name:?} has no disk"), ""),
        }
    });
}
