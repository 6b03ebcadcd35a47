//! The example `retry_proxy`: the exact times of its tries, on the paused clock.

use std::{cell::RefCell, future::pending, time::Duration};

use fastrand::Rng;
use tourbillon::time::{Instant, sleep};

use super::retry::{GaveUp, Policy};

const MS: Duration = Duration::from_millis(1);

const POLICY: Policy = Policy {
    deadline: Duration::from_secs(5),
    round: 1,
    backoff: Duration::from_millis(100),
    max_backoff: Duration::from_secs(1),
    jitter: 0.0,
};

/// Runs tries that all fail, each after `takes`. Returns when each was made, and the result.
async fn fail(
    policy: Policy,
    rng: &mut Rng,
    takes: Duration,
) -> (Vec<Duration>, Duration, GaveUp<u32>) {
    let start = Instant::now();
    let tries = RefCell::new(Vec::new());
    let gave_up = policy
        .run(rng, |before| {
            tries.borrow_mut().push(start.elapsed());
            async move {
                sleep(takes).await;
                Err::<(), _>(before)
            }
        })
        .await
        .unwrap_err();
    (tries.into_inner(), start.elapsed(), gave_up)
}

#[tourbillon::test(start_paused = true)]
async fn waits_double_up_to_the_maximum_until_the_deadline() {
    let (tries, end, gave_up) = fail(POLICY, &mut Rng::with_seed(1), Duration::ZERO).await;
    let expected = [0, 100, 300, 700, 1500, 2500, 3500, 4500].map(|ms| ms * MS);
    assert_eq!(tries, expected);
    assert_eq!(end, POLICY.deadline);
    assert_eq!((gave_up.tries, gave_up.last), (8, Some(7)));
}

#[tourbillon::test(start_paused = true)]
async fn a_wait_begins_when_the_try_has_failed() {
    let (tries, end, gave_up) = fail(POLICY, &mut Rng::with_seed(1), 500 * MS).await;
    assert_eq!(tries, [0, 600, 1300, 2200, 3500].map(|ms| ms * MS));
    assert_eq!(end, POLICY.deadline);
    // The last one failed at 4 s, and the next would have been at the deadline.
    assert_eq!((gave_up.tries, gave_up.last), (5, Some(4)));
}

#[tourbillon::test(start_paused = true)]
async fn no_try_begins_at_the_deadline() {
    let mut rng = Rng::with_seed(1);
    let policy = Policy {
        deadline: 700 * MS,
        ..POLICY
    };
    // The deadline and the next try are due at the same time. The task may see either of them
    // first.
    for _ in 0..200 {
        let (tries, end, _) = fail(policy, &mut rng, Duration::ZERO).await;
        assert_eq!(tries, [0, 100, 300].map(|ms| ms * MS));
        assert_eq!(end, policy.deadline);
    }
}

#[tourbillon::test(start_paused = true)]
async fn tries_wait_only_after_each_round() {
    let policy = Policy {
        round: 3,
        deadline: 350 * MS,
        ..POLICY
    };
    let (tries, ..) = fail(policy, &mut Rng::with_seed(1), Duration::ZERO).await;
    assert_eq!(
        tries,
        [0, 0, 0, 100, 100, 100, 300, 300, 300].map(|ms| ms * MS)
    );
}

#[tourbillon::test(start_paused = true)]
async fn jitter_changes_each_wait_by_at_most_its_share() {
    let policy = Policy {
        jitter: 0.5,
        ..POLICY
    };
    let mut rng = Rng::with_seed(1);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let (tries, end, _) = fail(policy, &mut rng, Duration::ZERO).await;
        assert_eq!(end, POLICY.deadline);
        for (pair, whole) in tries.windows(2).zip([100, 200, 400, 800, 1000, 1000]) {
            let (wait, whole) = (pair[1] - pair[0], whole * MS);
            assert!(whole / 2 <= wait && wait <= whole, "{wait:?} of {whole:?}");
        }
        seen.push(tries[1]);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 90, "of 100 waits {} differ", seen.len());
    // With a jitter of 1, the whole wait is random.
    let policy = Policy {
        jitter: 1.0,
        ..POLICY
    };
    assert!((0..1000).any(|_| policy.wait(1, &mut rng) < 10 * MS));
}

#[tourbillon::test(start_paused = true)]
async fn the_first_success_ends_the_tries() {
    let start = Instant::now();
    let tried = POLICY
        .run(&mut Rng::with_seed(1), |before| async move {
            if before == 3 {
                Ok(before)
            } else {
                Err("not yet")
            }
        })
        .await;
    assert_eq!(tried, Ok(3));
    assert_eq!(start.elapsed(), 700 * MS);
}

#[tourbillon::test(start_paused = true)]
async fn a_hanging_try_is_dropped_at_the_deadline() {
    let start = Instant::now();
    let tried: Result<(), GaveUp<()>> = POLICY.run(&mut Rng::with_seed(1), |_| pending()).await;
    assert_eq!(
        tried,
        Err(GaveUp {
            tries: 1,
            last: None
        })
    );
    assert_eq!(start.elapsed(), POLICY.deadline);
}

#[test]
fn the_wait_never_exceeds_the_maximum() {
    let mut rng = Rng::with_seed(1);
    for failed in [5, 6, 31, 32, 33, 64, 1000, u32::MAX] {
        assert_eq!(POLICY.wait(failed, &mut rng), POLICY.max_backoff);
    }
    let policy = Policy {
        backoff: Duration::MAX,
        max_backoff: Duration::MAX,
        ..POLICY
    };
    assert_eq!(policy.wait(2, &mut rng), Duration::MAX);
}
