//! The engine: workers, the queues between them, and what a worker does in one turn.
//!
//! The path of a timer is `Handle → placement → Shard::insert_new → Worker::fire_due → deque →
//! callback`.
//!
//! | module | contents |
//! |---|---|
//! | `core` | the owner of a shard: the part of a worker that other threads use, or a clock |
//! | `handle` | the reference by which any thread uses a runtime |
//! | `shared`, `id` | the state of a runtime, and its number |
//! | `facade` | what the builder of the package in tokio's place sets |
//! | `config`, `lifecycle` | the options of a runtime, and how it comes to its end |
//! | `limits` | what limits how many workers take part |
//! | `queues` | the queues that workers share, and how many jobs a steal takes |
//! | `job`, `local` | the jobs of a worker, and the queues that only its own thread uses |
//! | `groups` | groups of tasks, and the turns of the groups on a worker |
//! | `task_core` | the metadata beside each task's future, and the registry of tasks |
//! | `context` | the runtime and the worker that the calling thread belongs to |
//! | `worker` | a worker's turn: fire, poll, search, park |
//! | `block_on`, `current_thread` | `block_on`: beside the workers, or in place of the only one |
//! | `mates` | workers that share a core, and so the wake-ups for timers |
//! | `watchdog` | rescue of a worker that is blocked, and reports of stalls |
//! | `helpers`, `blocking`, `in_place`, `threads` | threads that are started on demand |
//! | `registration` | descriptors that the reactor of a worker watches, with their time limits |
//! | `clocks` | timers of the wall clock and of the boot-time clock |
//! | `recorder` | the flight recorder: what each thread did last |
//! | `paused` | a paused clock: detects that nothing is left to do, and advances the clock |
//! | `telemetry` | lateness, snapshots of a runtime, spans and events |
//! | `neglect` | what the simulation watches for: work that waits for a worker that sleeps |
//! | `shutdown` | ends the workers, and everything that waits on them |

pub(crate) mod block_on;
pub(crate) mod blocking;
pub(crate) mod clocks;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod current_thread;
#[cfg(feature = "facade")]
pub(crate) mod facade;
pub(crate) mod groups;
pub(crate) mod handle;
pub(crate) mod helpers;
pub(crate) mod id;
pub(crate) mod in_place;
pub(crate) mod job;
pub(crate) mod lifecycle;
pub(crate) mod limits;
pub(crate) mod local;
pub(crate) mod mates;
#[cfg(tourbillon_sim)]
pub(crate) mod neglect;
pub(crate) mod paused;
pub(crate) mod queues;
pub(crate) mod recorder;
pub(crate) mod registration;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod task_core;
pub(crate) mod telemetry;
pub(crate) mod threads;
pub(crate) mod wake;
pub(crate) mod watchdog;
pub(crate) mod worker;
