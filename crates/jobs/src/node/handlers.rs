//! The handlers of a node, by the kinds of their jobs.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};

use super::{Attempt, Failure, NodeBuilder};
use crate::{
    queue::{MAX_KIND, is_kind},
    store::{Kinds, Store},
};

pub(super) type Handler =
    dyn Fn(Attempt) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>> + Send + Sync;

/// The handlers of a node.
#[derive(Default)]
pub(super) struct Handlers {
    by_kind: HashMap<String, Arc<Handler>>,
    /// That of all other kinds.
    other: Option<Arc<Handler>>,
}

impl Handlers {
    /// Returns the kinds of which there are handlers.
    pub(super) fn kinds(&self) -> Kinds {
        match self.other {
            Some(_) => Kinds::All,
            None => Kinds::only(self.by_kind.keys().cloned()),
        }
    }

    /// Returns the kinds that have handlers of their own.
    pub(super) fn own(&self) -> impl Iterator<Item = &str> {
        self.by_kind.keys().map(String::as_str)
    }

    /// Returns whether a kind has a handler of its own.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.by_kind.contains_key(kind)
    }

    /// Returns the handler of a kind.
    pub(super) fn get(&self, kind: &str) -> Option<Arc<Handler>> {
        self.by_kind.get(kind).or(self.other.as_ref()).cloned()
    }
}

fn boxed<F, R>(handler: F) -> Arc<Handler>
where
    F: Fn(Attempt) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    Arc::new(move |attempt| Box::pin(handler(attempt)))
}

impl<S: Store> NodeBuilder<S> {
    /// Adds the handler of the jobs of a kind. The empty kind is that of jobs without one.
    ///
    /// # Panics
    ///
    /// Panics if there is a handler of this kind, or if the name of the kind is out of bounds: see
    /// [`MAX_KIND`].
    pub fn on_kind<F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Attempt) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let kind = kind.into();
        assert!(
            is_kind(&kind),
            "the name of a kind has at most {MAX_KIND} bytes, and no control characters"
        );
        let handlers = &mut self.handlers.by_kind;
        assert!(
            !handlers.contains_key(&kind),
            "the node has a handler of the kind `{kind}` already"
        );
        handlers.insert(kind, boxed(handler));
        self
    }

    /// Adds the handler of the jobs of all kinds that have none, and of jobs without a kind: the
    /// node runs all jobs of the store. [`Attempt::kind`] tells which one it is. A second call
    /// replaces the handler of the first.
    pub fn on_other<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Attempt) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handlers.other = Some(boxed(handler));
        self
    }

    /// Adds the handler of the jobs of a kind, with their arguments. A job whose payload does not
    /// have such arguments dies, with an error that says why. A cron job waits for its next
    /// occurrence.
    ///
    #[cfg_attr(feature = "sqlite", doc = "```")]
    #[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
    /// use std::time::Duration;
    /// use serde::{Deserialize, Serialize};
    /// use tourbillon_jobs::{Attempt, Failure, JobArgs, Node, Queue, sqlite::Sqlite};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Mail {
    ///     to: String,
    /// }
    ///
    /// impl JobArgs for Mail {
    ///     const KIND: &'static str = "mail";
    /// }
    ///
    /// async fn send(mail: Mail, attempt: Attempt) -> Result<(), Failure> {
    ///     println!("{}: attempt {} of a mail to {}", attempt.key, attempt.number, mail.to);
    ///     Ok(())
    /// }
    ///
    /// # let dir = std::env::temp_dir().join(format!("kinds-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// # let path = dir.join("jobs.db");
    /// let runtime = tourbillon::Runtime::new()?;
    /// runtime.block_on(async {
    ///     let queue = Queue::new(Sqlite::open(&path)?);
    ///     let node = Node::builder(queue.clone()).on(send).start_kinds();
    ///     let mail = Mail { to: "ann@example.com".into() };
    ///     queue.schedule_args("mail/7", Duration::ZERO, &mail).await?;
    ///     node.stop(Duration::from_secs(10)).await;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics as [`on_kind`](Self::on_kind) does.
    #[cfg(feature = "json")]
    pub fn on<A, F, R>(self, handler: F) -> Self
    where
        A: crate::JobArgs,
        F: Fn(A, Attempt) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        // With the empty kind, all jobs without a kind would die.
        const { assert!(!A::KIND.is_empty(), "the arguments of a job have a kind") };
        let handler = Arc::new(handler);
        self.on_kind(A::KIND, move |attempt| {
            let handler = handler.clone();
            async move {
                match serde_json::from_slice(&attempt.payload) {
                    Ok(args) => handler(args, attempt).await,
                    Err(error) => Err(Failure::give_up(format!(
                        "the payload has no arguments of the kind `{}`: {error}",
                        A::KIND
                    ))),
                }
            }
        })
    }
}
