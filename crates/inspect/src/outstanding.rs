//! A limit on the memory of answers that clients have not read yet.
//!
//! With many workers an answer has hundreds of kilobytes. The answer of a client that does not read
//! is kept until its connection is closed. A thousand such clients would keep a thousand answers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use hyper::body::Bytes;

/// The limit in bytes. Beyond it, no further answer is created.
const LIMIT: usize = 16 * 1024 * 1024;

/// Counts the bytes of answers that clients have not read yet.
#[derive(Debug, Default)]
pub(crate) struct Outstanding(Arc<AtomicUsize>);

/// A text or a file that counts while any part of it exists.
struct Held<T: AsRef<[u8]>> {
    body: T,
    count: Arc<AtomicUsize>,
}

impl Outstanding {
    /// Returns whether clients must read some answers before there can be more.
    pub(crate) fn is_full(&self) -> bool {
        self.0.load(Relaxed) >= LIMIT
    }

    /// Returns the text or file as bytes that count until they are dropped.
    pub(crate) fn hold<T: AsRef<[u8]> + Send + 'static>(&self, body: T) -> Bytes {
        self.0.fetch_add(body.as_ref().len(), Relaxed);
        Bytes::from_owner(Held {
            body,
            count: self.0.clone(),
        })
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.body.as_ref()
    }
}

impl<T: AsRef<[u8]>> Drop for Held<T> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.body.as_ref().len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_counts_until_its_last_part_is_dropped() {
        let outstanding = Outstanding::default();
        let small = outstanding.hold("small".to_owned());
        assert!(!outstanding.is_full());
        let mut large = outstanding.hold("x".repeat(LIMIT));
        assert!(outstanding.is_full());
        // A write consumes it part by part.
        let part = large.split_to(10);
        drop(large);
        assert!(outstanding.is_full());
        drop(part);
        assert!(!outstanding.is_full());
        assert_eq!(small, "small");
        drop(small);
        assert_eq!(outstanding.0.load(Relaxed), 0);
    }
}
