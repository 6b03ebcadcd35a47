//! The errors of stores.

use std::{fmt, sync::Arc};

use crate::tls::TlsError;

/// The store did not do what it was asked for.
///
/// The request may have had its effect all the same if the connection was lost: repeat it. All
/// requests can be repeated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk or a limit of the store is full. Nothing was changed.
    Full,
    /// This or another process has the embedded store open.
    InUse,
    /// The file of the embedded store has this many names (hard links). SQLite's log is beside one
    /// of them, so a process that used another one would miss what is only in the log.
    Linked(u64),
    /// The store has this version of the tables (0: none), and the program needs another one.
    /// `migrate` of the store makes the tables, or brings those of an earlier version to the
    /// program's.
    Version(i64),
    /// With this setting, the server could lose what it has acknowledged.
    Setting {
        /// The name of the setting.
        name: &'static str,
        /// The server's value.
        value: String,
        /// The value that is needed.
        needed: &'static str,
    },
    /// The store refused this request, and would refuse it again: for example, its database has no
    /// bytes for a character of a text. Nothing was changed.
    Refused(Arc<dyn std::error::Error + Send + Sync>),
    /// Another session of the server has locked a job for long. Nothing was changed.
    Locked,
    /// Nodes of an earlier version have leases. Those of versions 1 and 2 of the tables know no
    /// kinds, queues and priorities of jobs, and those of version 3 no keys that stay taken. So the
    /// store takes no job yet that they would run otherwise than it asks for. Nothing was changed.
    EarlierNodes,
    /// The store has ended.
    Closed,
    /// The store was opened before a fork, by the parent of this process, which alone can use it.
    Forked,
    /// A connection with TLS to the server was not made.
    Tls(TlsError),
    /// The store reported an error, or could not be reached.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the store is full; free some space and try again"),
            Self::InUse => f.write_str("a process has this store open already; end it first"),
            Self::Linked(names) => write!(
                f,
                "the store's file has {names} names (hard links), and SQLite's log is beside one \
                 of them; keep that name, and remove the others"
            ),
            Self::Version(0) => f.write_str(
                "the database has no tables of this library yet; run `delayed_jobs --migrate` \
                 once, or call `migrate` of the store",
            ),
            Self::Version(version) => {
                let needed = Self::TABLES;
                let advice = match *version < needed {
                    true => "run `delayed_jobs --migrate` once, or call `migrate` of the store",
                    false => "use a program that knows it",
                };
                write!(
                    f,
                    "the store has version {version} of the tables, and this program needs \
                     version {needed}; {advice}"
                )
            }
            Self::Setting {
                name,
                value,
                needed,
            } => write!(
                f,
                "the server could lose what it acknowledges, as its setting `{name}` is \
                 `{value}`; set it to `{needed}`"
            ),
            Self::Refused(error) => write!(f, "the store refused this request: {error}"),
            Self::Locked => f.write_str(
                "another session of the server has locked the job; end its transaction, or try \
                 again",
            ),
            Self::EarlierNodes => f.write_str(
                "nodes of an earlier version run jobs of this store, and do not know all that \
                 this job asks for: its kind, queue or priority, or how long its key stays taken; \
                 upgrade or stop them first",
            ),
            Self::Closed => f.write_str("the store has ended; open it again"),
            Self::Forked => f.write_str(
                "the store was opened before a fork, in the parent process; open it in this one",
            ),
            Self::Tls(error) => error.fmt(f),
            Self::Failed(error) => {
                error.fmt(f)?;
                // The driver of PostgreSQL says only "db error", and has the rest as the source.
                let mut cause = error.source();
                while let Some(error) = cause {
                    write!(f, ": {error}")?;
                    cause = error.source();
                }
                Ok(())
            }
        }
    }
}

impl StoreError {
    /// The version of the stores' tables.
    pub(crate) const TABLES: i64 = 5;

    /// Returns whether the request certainly had no effect, because of what it asked for. If it was
    /// one of several requests, they may succeed without it.
    pub(crate) fn changed_nothing(&self) -> bool {
        matches!(
            self,
            Self::Full | Self::Locked | Self::EarlierNodes | Self::Refused(_)
        )
    }

    /// Makes the error of a request of which a part may have had an effect.
    #[cfg(feature = "postgres")]
    pub(crate) fn in_part(self) -> Self {
        match self {
            Self::Refused(error) => Self::Failed(error),
            Self::Full => Self::failed(std::io::Error::from(std::io::ErrorKind::StorageFull)),
            Self::Locked => Self::failed(std::io::Error::from(std::io::ErrorKind::ResourceBusy)),
            other => other,
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(error))
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) | Self::Failed(error) => Some(error.as_ref()),
            Self::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<TlsError> for StoreError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}
