//! The data beside each task's future, and the registry of all tasks.

pub(crate) mod end;
pub(crate) mod home;
pub(crate) mod id;
pub(crate) mod list;
pub(crate) mod local_queue;
pub(crate) mod meta;
pub(crate) mod registry;
pub(crate) mod set;
