//! The task that looks at the workers and writes the events, while somebody listens.

use std::{sync::Arc, time::Duration};

use ::hyper::body::Bytes;

use super::site::Site;
use crate::time::{Instant, MissedTickBehavior, interval};

/// How often the workers are looked at. No multiple of what programs do each millisecond, lest it
/// be seen at the same things each time.
const LOOK: Duration = Duration::from_micros(2_017);

/// The event that is sent last, if the runtime that is inspected has ended.
pub(super) const END: &str = "event: end\ndata: the runtime has ended\n\n";

/// Sends a snapshot every `period` to those who listen, for ever.
pub(super) async fn publish(site: Arc<Site>, period: Duration) {
    loop {
        site.feed.wait_for_listeners().await;
        let mut looks = interval(LOOK);
        // Late, they are not made up for.
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = Instant::now();
        while site.feed.listeners() > 0 {
            looks.tick().await;
            site.sampler.look(&site.handle);
            let now = Instant::now();
            if now >= due {
                due = now + period;
                let snapshot = site.snapshot();
                // What was counted before stays on the page, in place of nothing.
                if snapshot.has_workers() {
                    site.feed.send(event(&snapshot.to_json()));
                }
            }
        }
    }
}

/// A server-sent event of a line of JSON.
fn event(json: &str) -> Bytes {
    ["event: snapshot\ndata: ", json, "\n\n"].concat().into()
}
