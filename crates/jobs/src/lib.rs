//! Delayed jobs that outlive the process, and the machine.
//!
//! A [`Queue`] schedules, moves and cancels jobs in a [store](store::Store). A [`Node`] holds the
//! jobs of the next minutes in the timers of the Tourbillon runtime, and runs a handler for each.
//! The store [`sqlite`] is a file. With the features `postgres` and `redis`, many nodes on many
//! machines share the stores of these names. `DESIGN.md` has the promises.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon_durable::{Attempt, Node, Queue, sqlite::Sqlite};
//!
//! # let dir = std::env::temp_dir().join(format!("durable-lib-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("jobs.db");
//! let runtime = tourbillon::Runtime::new()?;
//! runtime.block_on(async {
//!     let queue = Queue::new(Sqlite::open(&path)?);
//!     let (sender, mut ran) = tokio::sync::mpsc::unbounded_channel();
//!     let node = Node::builder(queue.clone()).start(move |attempt: Attempt| {
//!         let sender = sender.clone();
//!         async move {
//!             let _ = sender.send(attempt.payload);
//!             Ok(())
//!         }
//!     });
//!     queue.schedule("greeting", Duration::from_millis(20), "hello").await?;
//!     assert_eq!(ran.recv().await.unwrap(), b"hello");
//!     assert!(node.stop(Duration::from_secs(10)).await);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../GUIDE.md")]
struct Guide;

pub mod api;
mod batch;
pub mod job;
mod keeper;
pub mod node;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod queue;
mod recount;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod remote;
pub mod sqlite;
pub mod store;

pub use self::{
    job::{Repeat, Time, When},
    node::{Attempt, Backoff, Failure, Node},
    queue::{Queue, QueueError},
};
