//! How many requests a second are admitted: by how long tasks wait for a worker.

use std::time::Duration;

/// What was counted in a window of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    /// How long each task that was tried has waited for a worker, at least.
    pub(crate) delay: Duration,
    /// How many requests came.
    pub(crate) arrived: u64,
    /// How many of those that were admitted ended.
    pub(crate) ended: u64,
}

/// A wait that is longer than the target makes the budget less by the part that it is of this time.
/// So a queue is worked off in about this time. It is some windows, or the queue would swing.
const DRAIN: Duration = Duration::from_millis(100);
/// The most by which the budget is less, or more, than what the server can do.
const LESS: f64 = 0.5;
const MORE: f64 = 0.02;
/// A queue has to stand for so long before anything is refused, since a burst is no overload.
const BURST: Duration = Duration::from_millis(100);
/// A wait of so many targets is overload if the next window has it, too.
const URGENT: u32 = 10;
/// If the wait is as long as ever after so much time, while requests are refused, it is not theirs.
const FUTILE: Duration = Duration::from_secs(2);
/// The wait has become shorter if it is at most this part of the longest.
const SHORTER: f64 = 0.8;
/// For so long nothing is refused then. The time doubles each time, up to the second.
const LEAVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// What the server can do is the mean of about this time, while there is a queue.
const MEAN: Duration = Duration::from_millis(250);
/// By which part a server without a queue may be able to do more after a second, at first. The part
/// grows by `FASTER` for each second without a queue.
const GROWTH: f64 = 0.2;
const FASTER: f64 = 2.0;
/// A budget that is so many times what comes refuses nothing, and is forgotten.
const SPARE: f64 = 2.0;

/// The number of requests to admit in a second.
///
/// As in CoDel ([RFC 8289](https://www.rfc-editor.org/rfc/rfc8289)), the sign of overload is a
/// queue that *stands*: for a while, no task finds a wait as short as the target. The answer is not
/// CoDel's, which slows senders down by the loss of packets. Here, what the server does while it has
/// a queue is what it can do, and the budget is that, less a part that grows with the queue.
///
/// A wait that does not become shorter though requests are refused comes from other work. Then
/// nothing is refused for some time, since that would help nobody.
#[derive(Debug)]
pub(crate) struct Budget {
    target: Duration,
    state: State,
    /// What the server did in a second, in the last window without overload.
    quiet: f64,
    /// For how long nothing is refused, the next time that refusing does not help.
    leave: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Everything is admitted. For how long there was a queue, and whether the last window was
    /// urgent.
    Open { queue: Duration, urgent: bool },
    /// What the server can do in a second, for how long there was no queue, and the wait that does
    /// not become shorter: the longest, and for how long.
    Limited {
        capacity: f64,
        empty: Duration,
        longest: Duration,
        stands: Duration,
    },
    /// Refusing did not help. How long everything is admitted.
    Left(Duration),
}

impl State {
    const OPEN: State = State::Open {
        queue: Duration::ZERO,
        urgent: false,
    };
}

impl Budget {
    pub(crate) fn new(target: Duration) -> Self {
        Self {
            target,
            state: State::OPEN,
            quiet: 0.0,
            leave: LEAVE.0,
        }
    }

    /// Learns from a window, and returns the rate for the next one.
    pub(crate) fn learn(&mut self, window: &Window) -> Option<f64> {
        let seconds = window.length.as_secs_f64();
        let arrived = window.arrived as f64 / seconds;
        let ended = window.ended as f64 / seconds;
        self.state = match self.state {
            State::Open { .. } if window.delay <= self.target => {
                self.quiet = ended;
                State::OPEN
            }
            State::Open { queue, urgent } => {
                let queue = queue + window.length;
                let now = window.delay > self.target * URGENT;
                if queue < BURST && !(urgent && now) {
                    State::Open { queue, urgent: now }
                } else {
                    State::Limited {
                        // In a pause of the process little ended, though it can do more.
                        capacity: ended.max(self.quiet),
                        empty: Duration::ZERO,
                        longest: window.delay,
                        stands: Duration::ZERO,
                    }
                }
            }
            State::Limited {
                mut capacity,
                mut empty,
                mut longest,
                mut stands,
            } => {
                if window.delay > self.target / 2 {
                    empty = Duration::ZERO;
                    let weight = (seconds / MEAN.as_secs_f64()).min(1.0);
                    capacity += weight * (ended - capacity);
                } else {
                    empty += window.length;
                    let growth = GROWTH + FASTER * empty.as_secs_f64();
                    // At least one a second, or nothing would ever be tried again.
                    capacity = (capacity * (1.0 + growth * seconds)).max(ended).max(1.0);
                }
                longest = longest.max(window.delay);
                let shorter = longest.mul_f64(SHORTER).max(self.target);
                stands = if window.delay > shorter {
                    stands + window.length
                } else {
                    Duration::ZERO
                };
                if window.delay <= self.target {
                    longest = Duration::ZERO;
                    self.leave = LEAVE.0;
                }
                if stands > FUTILE {
                    let leave = self.leave;
                    self.leave = (leave * 2).min(LEAVE.1);
                    State::Left(leave)
                } else if capacity > arrived * SPARE {
                    State::OPEN
                } else {
                    State::Limited {
                        capacity,
                        empty,
                        longest,
                        stands,
                    }
                }
            }
            State::Left(time) => match time.checked_sub(window.length) {
                Some(time) => State::Left(time),
                None => State::OPEN,
            },
        };
        let State::Limited { capacity, .. } = self.state else {
            return None;
        };
        let room = self.target.as_secs_f64() - window.delay.as_secs_f64();
        let change = (room / DRAIN.as_secs_f64()).clamp(-LESS, MORE);
        Some(capacity * (1.0 + change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(2);
    const STEP: Duration = Duration::from_millis(10);

    /// A server that does `capacity` requests a second, in the order in which they come.
    struct Server {
        budget: Budget,
        capacity: f64,
        /// The number of requests that wait.
        queue: f64,
        admitted: f64,
    }

    /// What a server has done in some time.
    struct Done {
        /// The part of its capacity that it has used.
        goodput: f64,
        /// The longest wait, in seconds.
        longest: f64,
        refused: f64,
    }

    impl Server {
        fn new(capacity: f64) -> Self {
            let budget = Budget::new(TARGET);
            let admitted = 1.0;
            Self {
                budget,
                capacity,
                queue: 0.0,
                admitted,
            }
        }

        fn run(&mut self, offered: f64, time: Duration) -> Done {
            let (mut ended, mut longest, mut refused) = (0.0, 0.0_f64, 0.0);
            let windows = (time.as_secs_f64() / STEP.as_secs_f64()) as usize;
            for _ in 0..windows {
                let step = STEP.as_secs_f64();
                let before = self.queue;
                let arrived = offered * step;
                self.queue += arrived * self.admitted;
                refused += arrived * (1.0 - self.admitted);
                let done = self.queue.min(self.capacity * step);
                self.queue -= done;
                ended += done;
                longest = longest.max(self.queue / self.capacity);
                let delay = before.min(self.queue) / self.capacity;
                let rate = self.budget.learn(&Window {
                    length: STEP,
                    delay: Duration::from_secs_f64(delay),
                    arrived: arrived.round() as u64,
                    ended: done.round() as u64,
                });
                self.admitted = rate.map_or(1.0, |rate| (rate / offered).min(1.0));
            }
            Done {
                goodput: ended / (self.capacity * time.as_secs_f64()),
                longest,
                refused,
            }
        }
    }

    #[test]
    fn below_its_capacity_a_server_refuses_nothing() {
        let mut server = Server::new(1_000.0);
        let done = server.run(900.0, Duration::from_secs(10));
        assert_eq!(done.refused, 0.0);
    }

    #[test]
    fn at_four_times_its_capacity_a_server_does_nearly_all_that_it_can_without_a_long_queue() {
        for capacity in [400.0, 1_000.0, 40_000.0] {
            let mut server = Server::new(capacity);
            // The first moments, before anybody could know.
            server.run(4.0 * capacity, Duration::from_secs(1));
            let done = server.run(4.0 * capacity, Duration::from_secs(20));
            assert!(done.goodput > 0.95, "{capacity}: {}", done.goodput);
            assert!(done.longest < 0.006, "{capacity}: {}", done.longest);
        }
    }

    #[test]
    fn nothing_is_refused_as_soon_as_less_comes() {
        let mut server = Server::new(1_000.0);
        server.run(10_000.0, Duration::from_secs(5));
        server.run(800.0, Duration::from_millis(500));
        let done = server.run(800.0, Duration::from_secs(5));
        assert!(done.refused < 1.0, "{}", done.refused);
        assert!(done.longest < 0.003, "{}", done.longest);
    }

    #[test]
    fn a_server_that_becomes_slower_or_faster_is_followed() {
        let mut server = Server::new(1_000.0);
        server.run(4_000.0, Duration::from_secs(5));
        server.capacity = 300.0;
        server.run(4_000.0, Duration::from_secs(1));
        let done = server.run(4_000.0, Duration::from_secs(5));
        assert!(
            done.goodput > 0.9 && done.longest < 0.02,
            "{}",
            done.longest
        );
        server.capacity = 3_000.0;
        server.run(4_000.0, Duration::from_secs(3));
        let done = server.run(4_000.0, Duration::from_secs(5));
        assert!(done.goodput > 0.95, "{}", done.goodput);
    }

    #[test]
    fn a_server_that_did_nothing_tries_again() {
        let mut budget = Budget::new(TARGET);
        let stuck = Window {
            length: STEP,
            delay: Duration::from_secs(1),
            arrived: 100,
            ended: 0,
        };
        assert_eq!(budget.learn(&stuck), None);
        assert_eq!(budget.learn(&stuck), Some(0.0));
        let idle = Window {
            delay: Duration::ZERO,
            ..stuck
        };
        assert!(budget.learn(&idle) >= Some(1.0));
    }

    /// Other work makes each task wait for 3 ms, whatever is refused.
    #[test]
    fn a_wait_that_requests_do_not_cause_refuses_few_of_them() {
        let mut budget = Budget::new(TARGET);
        let (mut came, mut refused) = (0.0, 0.0);
        let mut admitted = 1.0;
        for _ in 0..60_000 {
            let arrived = 300.0 * STEP.as_secs_f64();
            came += arrived;
            refused += arrived * (1.0 - admitted);
            let rate = budget.learn(&Window {
                length: STEP,
                delay: Duration::from_millis(3),
                arrived: arrived as u64,
                ended: (arrived * admitted) as u64,
            });
            admitted = rate.map_or(1.0, |rate| (rate / 300.0).min(1.0));
        }
        assert!(refused / came < 0.05, "{}", refused / came);
    }

    #[test]
    fn a_burst_refuses_nothing() {
        let mut server = Server::new(1_000.0);
        for _ in 0..20 {
            // 30 requests that wait for each other, and then a second without any more of them.
            server.queue += 30.0;
            let done = server.run(200.0, Duration::from_secs(1));
            assert_eq!(done.refused, 0.0);
        }
    }
}
