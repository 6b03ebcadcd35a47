//! Compiles and runs the examples of the README and of the book as doctests. They are in a package
//! of their own, since they use crates that depend on the runtime.
#![cfg(doctest)]

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../crates/hyper/GUIDE.md")]
struct Clients;

#[doc = include_str!("../../../crates/axum/GUIDE.md")]
struct AxumGuide;

#[doc = include_str!("../../../crates/quinn/GUIDE.md")]
struct Quic;

#[doc = include_str!("../../../crates/exporters/GUIDE.md")]
struct Exporters;

#[doc = include_str!("../../../docs/guide/coming-from.md")]
struct ComingFrom;

#[doc = include_str!("../../../crates/cron/GUIDE.md")]
struct Cron;

#[doc = include_str!("../../../docs/guide/guide.md")]
struct Guide;

#[doc = include_str!("../../../docs/guide/metrics.md")]
struct Metrics;

#[doc = include_str!("../../../crates/inspect/GUIDE.md")]
struct LivePage;

#[doc = include_str!("../../../docs/guide/migrating.md")]
struct Migrating;

#[doc = include_str!("../../../docs/guide/server.md")]
struct Server;

#[doc = include_str!("../../../docs/guide/sharing.md")]
struct Sharing;

#[doc = include_str!("../../../docs/guide/timers.md")]
struct Timers;

#[doc = include_str!("../../../docs/guide/tuning.md")]
struct Tuning;

#[doc = include_str!("../../../docs/guide/why-late.md")]
struct WhyLate;

#[doc = include_str!("../../../docs/reference/rescue.md")]
struct Rescue;
