//! The spans that a thread is in, where a signal handler can read them.

/// The most spans that are known of a thread: the outermost ones.
const MOST: usize = 8;

/// The names of spans, outermost first.
pub(crate) type Spans = [Option<&'static str>; MOST];

pub(crate) const NONE: Spans = [None; MOST];

#[cfg(not(feature = "tracing"))]
pub(crate) fn entered() -> Spans {
    NONE
}

#[cfg(feature = "tracing")]
pub use layer::SpanLayer;
#[cfg(feature = "tracing")]
pub(crate) use layer::entered;

#[cfg(feature = "tracing")]
mod layer {
    use std::{
        cell::Cell,
        ptr,
        sync::atomic::{Ordering::SeqCst, compiler_fence},
    };

    use tracing::{Metadata, Subscriber, span::Id};
    use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

    use super::{MOST, NONE, Spans};

    /// A layer for `tracing-subscriber` by which profiles know in which spans samples were taken.
    ///
    /// It notes the name of each span that a thread enters, which takes some ns.
    ///
    /// ```
    /// use tracing_subscriber::prelude::*;
    ///
    /// tracing_subscriber::registry().with(tourbillon_profile::SpanLayer).init();
    /// ```
    #[derive(Clone, Copy, Debug, Default)]
    pub struct SpanLayer;

    thread_local! {
        /// What each span of this thread is. Each is one word, so a handler on this thread sees a
        /// whole one.
        static ENTERED: Entered = const {
            Entered {
                spans: [const { Cell::new(None) }; MOST],
                depth: Cell::new(0),
                was_deep: Cell::new(false),
            }
        };
    }

    struct Entered {
        spans: [Cell<Option<&'static Metadata<'static>>>; MOST],
        /// How many spans the thread is in. It may be more than there is room for.
        depth: Cell<usize>,
        /// Whether there were more than there is room for since it was in none. Then a span that
        /// it leaves may be one of those that were not noted.
        was_deep: Cell<bool>,
    }

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
        fn on_enter(&self, id: &Id, context: Context<'_, S>) {
            if let Some(span) = context.metadata(id) {
                let _ = ENTERED.try_with(|entered| entered.push(span));
            }
        }

        fn on_exit(&self, id: &Id, context: Context<'_, S>) {
            if let Some(span) = context.metadata(id) {
                let _ = ENTERED.try_with(|entered| entered.remove(span));
            }
        }
    }

    impl Entered {
        fn push(&self, span: &'static Metadata<'static>) {
            let depth = self.depth.get();
            match self.spans.get(depth) {
                Some(place) => place.set(Some(span)),
                None => self.was_deep.set(true),
            }
            // A handler that sees the depth sees the span.
            compiler_fence(SeqCst);
            self.depth.set(depth + 1);
        }

        /// Removes the innermost span of this kind. Mostly it is the last one.
        fn remove(&self, span: &'static Metadata<'static>) {
            let depth = self.depth.get();
            let known = &self.spans[..depth.min(MOST)];
            if depth <= MOST {
                let is_it = |it: &Cell<Option<&'static Metadata<'static>>>| {
                    it.get().is_some_and(|it| ptr::eq(it, span))
                };
                match known.iter().rposition(is_it) {
                    Some(at) => {
                        for pair in known[at..].windows(2) {
                            pair[0].set(pair[1].get());
                        }
                    }
                    None if !self.was_deep.get() => return,
                    None => {}
                }
            }
            compiler_fence(SeqCst);
            self.depth.set(depth.saturating_sub(1));
            if depth <= 1 {
                self.was_deep.set(false);
            }
        }
    }

    /// Returns the names of the spans that the calling thread is in. A signal handler may call it.
    pub(crate) fn entered() -> Spans {
        let mut spans = NONE;
        let _ = ENTERED.try_with(|entered| {
            let depth = entered.depth.get().min(MOST);
            for (name, span) in spans.iter_mut().zip(&entered.spans[..depth]) {
                *name = span.get().map(Metadata::name);
            }
        });
        spans
    }

    #[cfg(test)]
    mod tests {
        use tracing::info_span;
        use tracing_subscriber::prelude::*;

        use super::*;

        #[test]
        fn spans_are_known_while_a_thread_is_in_them() {
            let names = || entered().into_iter().flatten().collect::<Vec<_>>();
            let subscriber = tracing_subscriber::registry().with(SpanLayer);
            tracing::subscriber::with_default(subscriber, || {
                let outer = info_span!("outer").entered();
                let inner = info_span!("inner").entered();
                assert_eq!(names(), ["outer", "inner"]);
                // Not in order.
                drop(outer);
                assert_eq!(names(), ["inner"]);
                drop(inner);
                let many: Vec<_> = (0..MOST + 2)
                    .map(|_| info_span!("many").entered())
                    .collect();
                assert_eq!(names(), ["many"; MOST]);
                drop(many);
                assert!(names().is_empty());
                // Too many, and the outermost one ends first.
                let outer = info_span!("outer").entered();
                let many: Vec<_> = (0..MOST).map(|_| info_span!("many").entered()).collect();
                drop(outer);
                drop(many);
                assert!(names().is_empty());
            });
        }
    }
}
