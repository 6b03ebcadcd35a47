//! The task that samples the workers and sends the events while there are listeners.

use std::{sync::Arc, time::Duration};

use hyper::body::Bytes;

use tourbillon::time::{Instant, MissedTickBehavior, interval};

use crate::site::Site;

/// The period of samples. It is not a multiple of a millisecond, so that it does not hit the same
/// phase of a program's own periods each time.
const SAMPLE_PERIOD: Duration = Duration::from_micros(2_017);

/// The last event, if the inspected runtime has ended.
pub(crate) const END: &str = "event: end\ndata: the runtime has ended\n\n";

/// Sends a snapshot to all listeners every `period`, without an end.
pub(crate) async fn publish(site: Arc<Site>, period: Duration) {
    loop {
        site.feed.wait_for_listeners().await;
        let mut samples = interval(SAMPLE_PERIOD);
        // Do not make up for late samples.
        samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = Instant::now();
        while site.feed.listeners() > 0 {
            samples.tick().await;
            site.sampler.sample(&site.handle);
            let now = Instant::now();
            if now >= due {
                due = now + period;
                let snapshot = site.snapshot();
                // A runtime that ends has no workers at last. Keep the last useful snapshot on the
                // page.
                if snapshot.has_workers() {
                    site.feed.send(event(&snapshot.to_json()));
                }
                site.slowest.collect(&site.handle);
            }
        }
    }
}

/// Returns a server-sent event with a line of JSON.
fn event(json: &str) -> Bytes {
    ["event: snapshot\ndata: ", json, "\n\n"].concat().into()
}
