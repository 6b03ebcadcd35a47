//! Tests of the race, on a paused clock. No address is connected.

use std::{cell::RefCell, net::Ipv6Addr};

use tourbillon::{Runtime, runtime::Builder, time::Instant};

use super::*;

fn v4(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn v6(port: u16) -> SocketAddr {
    (Ipv6Addr::LOCALHOST, port).into()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The result of an attempt, and how long it takes.
type Outcome = (Duration, bool);

/// Runs a race between IPv4 ports from 1 on. Returns the winner or the last address that failed,
/// when the race ended, and when each attempt began.
fn run(
    outcomes: &[Outcome],
    delay: Option<Duration>,
) -> (Result<u16, u16>, Duration, Vec<Duration>) {
    let runtime: Runtime = Builder::new()
        .worker_threads(1)
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let begun = RefCell::new(Vec::new());
        let attempt = |addr: SocketAddr| {
            begun.borrow_mut().push(start.elapsed());
            let (takes, succeeds) = outcomes[usize::from(addr.port()) - 1];
            async move {
                sleep(takes).await;
                match succeeds {
                    true => Ok(addr.port()),
                    false => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            }
        };
        let ports = 1..=u16::try_from(outcomes.len()).unwrap();
        let result = race(ports.map(v4).collect(), delay, attempt).await;
        let result = result.map_err(|failed| failed.unwrap().0.port());
        (result, start.elapsed(), begun.into_inner())
    })
}

#[test]
fn families_take_turns_and_keep_their_order() {
    let addrs = vec![v6(1), v6(2), v6(3), v4(4), v4(5)];
    assert_eq!(take_turns(addrs), [v6(1), v4(4), v6(2), v4(5), v6(3)]);
    assert_eq!(take_turns(vec![v4(1), v6(2), v6(3)]), [v4(1), v6(2), v6(3)]);
    assert_eq!(take_turns(vec![]), []);
}

#[test]
fn a_slow_address_is_raced_after_the_delay() {
    let (winner, took, begun) = run(&[(ms(1000), true), (ms(50), true)], Some(ms(300)));
    assert_eq!(winner, Ok(2));
    assert_eq!(took, ms(350));
    assert_eq!(begun, [ms(0), ms(300)]);
}

#[test]
fn a_slow_address_may_still_win() {
    let outcomes = [(ms(400), true), (ms(500), true), (ms(0), true)];
    let (winner, took, begun) = run(&outcomes, Some(ms(300)));
    assert_eq!(winner, Ok(1));
    assert_eq!(took, ms(400));
    assert_eq!(begun, [ms(0), ms(300)]);
}

#[test]
fn a_failure_begins_the_next_attempt_at_once() {
    let outcomes = [(ms(20), false), (ms(30), false), (ms(40), true)];
    for delay in [Some(ms(300)), None] {
        let (winner, took, begun) = run(&outcomes, delay);
        assert_eq!(winner, Ok(3));
        assert_eq!(took, ms(90));
        assert_eq!(begun, [ms(0), ms(20), ms(50)]);
    }
}

#[test]
fn without_a_delay_there_is_one_attempt_at_a_time() {
    let (winner, took, begun) = run(&[(ms(9000), false), (ms(50), true)], None);
    assert_eq!(winner, Ok(2));
    assert_eq!(took, ms(9050));
    assert_eq!(begun, [ms(0), ms(9000)]);
}

#[test]
fn if_all_fail_the_last_error_is_returned() {
    let (failed, took, _) = run(&[(ms(500), false), (ms(100), false)], Some(ms(300)));
    assert_eq!(failed, Err(1), "the first attempt failed last");
    assert_eq!(took, ms(500));
    let runtime = Runtime::new().unwrap();
    let race = race(vec![], None, |_| async { io::Result::Ok(()) });
    assert!(matches!(runtime.block_on(race), Err(None)));
}
