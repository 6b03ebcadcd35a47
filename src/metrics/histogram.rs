//! Histograms of timer lateness, with exponential buckets.
//!
//! An octave has four buckets, so a bucket's bounds differ by at most a quarter. They cover 64 ns
//! to 206 s; no timer is noticeably late below 64 ns.

use std::{array, fmt, ops::AddAssign, time::Duration};

use super::counters::Counter;
use crate::util::nanos::nanos;

/// The number of buckets: one below 64 ns, 31.5 octaves of four, and one for the rest.
pub(crate) const BUCKETS: usize = 128;

/// The most that one time adds to the sum, in ns: the start of the last bucket. A timer may be
/// armed with a deadline years ago, and some 85 of these would fill the sum.
const LONGEST: u64 = from(BUCKETS - 1);

/// Shorter times count as this, in ns. It lies in the first bucket.
const SHORT: u64 = 56;

/// Returns the bucket of a time in ns.
#[inline]
pub(crate) fn index(ns: u64) -> usize {
    let ns = ns.max(SHORT);
    let octave = ns.ilog2();
    // The three highest bits: a one, and the quarter of the octave.
    let quarter = ns >> (octave - 2);
    // The offset maps the bucket below 64 ns to index 0.
    (4 * octave as usize + quarter as usize - 27).min(BUCKETS - 1)
}

/// Returns the start of a bucket in ns.
const fn from(index: usize) -> u64 {
    // Four quarters per octave. The first quarter starts at 64 = 4 << 4.
    match index.checked_sub(1) {
        None => 0,
        Some(i) => (i as u64 % 4 + 4) << (i / 4 + 4),
    }
}

/// A histogram of timer lateness: 128 buckets, four per octave, and the sum.
///
/// ```
/// # use std::time::Duration;
/// let runtime = tourbillon::Runtime::new().unwrap();
/// runtime.block_on(runtime.spawn(tourbillon::time::sleep(Duration::from_millis(1)))).unwrap();
/// let metrics = runtime.metrics();
/// let late = metrics.wake_lateness();
/// assert_eq!(late.count(), 1);
/// assert!(late.quantile(0.99).unwrap() > late.mean().unwrap() / 2);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct LatenessHistogram {
    buckets: [u64; BUCKETS],
    sum: u64,
}

/// A bucket of a [`LatenessHistogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    from: Duration,
    to: Duration,
    count: u64,
}

impl Bucket {
    /// Returns the start of the bucket, inclusive.
    pub fn from(&self) -> Duration {
        self.from
    }

    /// Returns the end of the bucket, exclusive; [`Duration::MAX`] for the last one.
    pub fn to(&self) -> Duration {
        self.to
    }

    /// Returns the number of times in the bucket.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Default for LatenessHistogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            sum: 0,
        }
    }
}

impl LatenessHistogram {
    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the recorded times. It is exact, except that each time adds at most 206
    /// s, the start of the last bucket.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the mean lateness, or `None` if the histogram is empty.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(self.count())?;
        Some(Duration::from_nanos(mean))
    }

    /// Returns the lateness that the fraction `q` of the recorded times does not exceed, as the
    /// upper end of its bucket. For the median, `q` is 0.5. Values outside of 0 to 1 are clamped.
    /// Returns `None` if the histogram is empty.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        // The cast makes NaN zero, which asks for the least value.
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64;
        let mut below = 0;
        self.buckets().find_map(|bucket| {
            below += bucket.count;
            // With rank zero, the empty buckets in front do not count.
            (bucket.count > 0 && below >= rank).then_some(bucket.to)
        })
    }

    /// Returns the buckets from the shortest on, including empty ones. Each begins where the
    /// previous one ends.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.buckets.iter().enumerate().map(|(i, &count)| Bucket {
            from: Duration::from_nanos(from(i)),
            to: if i + 1 == BUCKETS {
                Duration::MAX
            } else {
                Duration::from_nanos(from(i + 1))
            },
            count,
        })
    }

    /// Returns the number of times in each of the [`buckets`](LatenessHistogram::buckets).
    pub fn counts(&self) -> &[u64] {
        &self.buckets
    }

    /// Returns the index of the bucket in which a time counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::metrics::LatenessHistogram;
    ///
    /// let late = Duration::from_micros(5);
    /// let mut histogram = LatenessHistogram::default();
    /// histogram.record(late);
    /// assert_eq!(histogram.counts()[LatenessHistogram::bucket_of(late)], 1);
    /// ```
    pub fn bucket_of(late: Duration) -> usize {
        index(nanos(late))
    }

    /// Adds one time, for histograms of your own.
    pub fn record(&mut self, late: Duration) {
        let ns = nanos(late);
        self.buckets[index(ns)] += 1;
        self.sum = self.sum.saturating_add(ns.min(LONGEST));
    }

    /// Returns the difference to `earlier`, a previous state of this histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |i: usize| self.buckets[i].saturating_sub(earlier.buckets[i]);
        Self {
            buckets: array::from_fn(since),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

impl AddAssign<&Self> for LatenessHistogram {
    fn add_assign(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

impl fmt::Debug for LatenessHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatenessHistogram")
            .field("count", &self.count())
            .field("sum", &self.sum())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .finish()
    }
}

/// A histogram that one thread writes and any thread reads.
#[derive(Debug)]
pub(crate) struct Recorded {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Default for Recorded {
    fn default() -> Self {
        Self {
            buckets: array::from_fn(|_| Counter::default()),
            sum: Counter::default(),
        }
    }
}

impl Recorded {
    /// Counts a lateness in ns in its bucket. Returns its share of the sum, which the caller passes
    /// to [`add`](Recorded::add). For a single writer.
    #[inline]
    #[must_use]
    pub(crate) fn count(&self, ns: u64) -> u64 {
        self.buckets[index(ns)].add_alone(1);
        ns.min(LONGEST)
    }

    /// Adds to the sum. For a single writer.
    #[inline]
    pub(crate) fn add(&self, ns: u64) {
        self.sum.add_up_alone(ns);
    }

    pub(crate) fn read(&self) -> LatenessHistogram {
        LatenessHistogram {
            buckets: array::from_fn(|i| self.buckets[i].get()),
            sum: self.sum.get(),
        }
    }
}

#[cfg(all(test, not(tourbillon_no_metrics)))]
mod tests {
    use super::*;

    fn histogram_of(times: &[u64]) -> LatenessHistogram {
        let recorded = Recorded::default();
        for &ns in times {
            recorded.add(recorded.count(ns));
        }
        recorded.read()
    }

    #[test]
    fn each_bucket_begins_where_the_one_before_it_ends() {
        let empty = LatenessHistogram::default();
        let buckets: Vec<_> = empty.buckets().collect();
        assert_eq!(buckets.len(), BUCKETS);
        assert_eq!(buckets[0].from, Duration::ZERO);
        assert_eq!(buckets[0].to, Duration::from_nanos(64));
        assert_eq!(buckets[BUCKETS - 1].from, Duration::from_nanos(3 << 36));
        assert_eq!(buckets[BUCKETS - 1].to, Duration::MAX);
        for pair in buckets.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
            assert!(pair[0].from < pair[0].to);
        }
        for i in 0..BUCKETS {
            assert_eq!(index(from(i)), i);
            if i > 0 {
                assert_eq!(index(from(i) - 1), i - 1);
            }
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_histogram_of_the_users_own_counts_as_a_recorded_one() {
        let times = [0, 63, 64, 5_000, 5_000, 1 << 36, u64::MAX];
        let mut own = LatenessHistogram::default();
        for ns in times {
            own.record(Duration::from_nanos(ns));
        }
        assert_eq!(own, histogram_of(&times));
        let mut longest = LatenessHistogram::default();
        longest.record(Duration::MAX);
        assert_eq!(longest, histogram_of(&[u64::MAX]));
        for (i, bucket) in own.buckets().enumerate() {
            assert_eq!(LatenessHistogram::bucket_of(bucket.from), i);
            assert_eq!(own.counts()[i], bucket.count);
        }
    }

    #[test]
    fn octaves_begin_at_powers_of_two() {
        for octave in 6..=37 {
            assert_eq!(from(index(1 << octave)), 1 << octave);
        }
    }

    #[test]
    fn a_quantile_is_the_upper_end_of_its_bucket() {
        let late = histogram_of(&[10, 70, 1_000, 1_000_000]);
        let ns = |q| late.quantile(q).unwrap().as_nanos();
        assert_eq!(ns(0.0), 64);
        assert_eq!(ns(0.25), 64);
        assert_eq!(ns(0.26), 80);
        assert_eq!(ns(0.75), 1_024);
        assert_eq!(ns(1.0), 1 << 20);
        assert_eq!(ns(7.0), 1 << 20);
        assert_eq!(ns(-1.0), 64);
        assert_eq!(ns(f64::NAN), 64);
        assert_eq!(late.count(), 4);
        assert_eq!(late.sum(), Duration::from_nanos(1_001_080));
        assert_eq!(late.mean(), Some(Duration::from_nanos(250_270)));
        let longest = histogram_of(&[u64::MAX]);
        assert_eq!(longest.quantile(0.5), Some(Duration::MAX));
    }

    #[test]
    fn the_sum_does_not_wrap() {
        let many = histogram_of(&[u64::MAX; 1_000]);
        assert_eq!(many.sum(), Duration::from_nanos(1_000 * (3 << 36)));
        assert_eq!(many.mean(), Some(Duration::from_nanos(3 << 36)));
        let recorded = Recorded::default();
        recorded.add(u64::MAX - 1);
        recorded.add(5);
        assert_eq!(recorded.read().sum(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        let empty = LatenessHistogram::default();
        assert_eq!(empty.quantile(0.5), None);
        assert_eq!(empty.mean(), None);
        assert_eq!((empty.count(), empty.sum()), (0, Duration::ZERO));
    }

    #[test]
    fn since_returns_the_times_added_later() {
        let (before, more) = (histogram_of(&[70, 5_000]), histogram_of(&[70, 9, 1 << 40]));
        let mut after = before.clone();
        after += &more;
        assert_eq!(after.since(&before), more);
        assert_eq!(before.since(&after), LatenessHistogram::default());
        assert_eq!(after.count(), 5);
    }
}
