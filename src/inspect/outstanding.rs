//! Answers that clients have not taken yet: how much memory these may have, together.
//!
//! Of a runtime with many workers an answer is hundreds of kilobytes. Who asks and does not read
//! has one kept until the connection is closed for that; a thousand of them would have as many.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use ::hyper::body::Bytes;

/// From how many bytes on no further answer is made.
const MOST: usize = 16 * 1024 * 1024;

/// Counts the bytes of answers that are being taken.
#[derive(Debug, Default)]
pub(super) struct Outstanding(Arc<AtomicUsize>);

/// A text that is counted for as long as somebody has a part of it.
struct Held {
    text: String,
    count: Arc<AtomicUsize>,
}

impl Outstanding {
    /// Returns whether clients have to take some before there can be more.
    pub(super) fn is_full(&self) -> bool {
        self.0.load(Relaxed) >= MOST
    }

    /// The text, counted until it is dropped.
    pub(super) fn hold(&self, text: String) -> Bytes {
        self.0.fetch_add(text.len(), Relaxed);
        Bytes::from_owner(Held {
            text,
            count: self.0.clone(),
        })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(self.text.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_until_the_last_part_of_it_is_dropped() {
        let outstanding = Outstanding::default();
        let small = outstanding.hold("small".to_owned());
        assert!(!outstanding.is_full());
        let mut large = outstanding.hold("x".repeat(MOST));
        assert!(outstanding.is_full());
        // As it is written, part by part.
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
