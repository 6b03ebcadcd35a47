//! The engine: workers, the queues between them, and what a worker does in its turn.
//!
//! The data path of a timer is `Handle → placement → Shard::insert → Worker::turn → deque → callback`.
//!
//! | module | what it has |
//! |---|---|
//! | `core` | a worker as other threads know it: the owner of its shard |
//! | `shared` | the state of a runtime |
//! | `job`, `local` | the jobs of a worker, and its queues for its own thread |
//! | `task_core` | what is stored beside each task's future, and the registry of tasks |
//! | `context` | the runtime and the worker that the calling thread belongs to |
//! | `worker` | a worker's turn: fire, poll, search, park |
//! | `watchdog` | help for a worker that is stuck, and reports of stalls |
//! | `helpers`, `blocking`, `in_place`, `threads` | threads that come and go |
//! | `clocks` | timers by the time of day, and by the clock that counts a suspended machine's time |
//! | `paused` | a paused clock: when nothing is left to do, and what is due next |
//! | `telemetry` | lateness, snapshots of a runtime, spans and events |
//! | `shutdown` | how workers end, and everything that waits with them |

pub(crate) mod block_on;
pub(crate) mod blocking;
pub(crate) mod clocks;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod helpers;
pub(crate) mod in_place;
pub(crate) mod job;
pub(crate) mod local;
pub(crate) mod paused;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod task_core;
pub(crate) mod telemetry;
pub(crate) mod threads;
pub(crate) mod watchdog;
pub(crate) mod worker;
