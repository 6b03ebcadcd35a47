//! How late timers are on a clock that goes by hand. Apart from `lateness.rs`: where a clock of the process was paused,
//! a sleep may be over before it is armed.

use std::time::Duration;

use crate::common::alarm;
use tourbillon::{
    runtime::Builder,
    time::{advance, sleep},
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn on_a_paused_clock_nothing_is_late() {
    let _alarm = alarm();
    let builder = Builder::new().worker_threads(2).start_paused(true);
    let runtime = builder.build().unwrap();
    runtime.block_on(async {
        for i in 0..100 {
            drop(tourbillon::after(MS * i, || ()));
        }
        for _ in 0..200 {
            sleep(MS).await;
        }
        advance(1000 * MS).await;
        sleep(MS).await;
    });
    let metrics = runtime.metrics();
    assert!(metrics.total().fired >= 300);
    for late in [
        metrics.wake_lateness(),
        metrics.queue_lateness(),
        metrics.rescued_lateness(),
    ] {
        assert_eq!(late.count(), 0, "{late:?}");
    }
}
