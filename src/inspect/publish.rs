//! The task that writes the events, while somebody listens.

use std::{sync::Arc, time::Duration};

use ::hyper::body::Bytes;

use super::site::Site;
use crate::time::{MissedTickBehavior, interval};

/// Sends a snapshot every `period` to those who listen, for ever.
pub(super) async fn publish(site: Arc<Site>, period: Duration) {
    loop {
        site.feed.wait_for_listeners().await;
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while site.feed.listeners() > 0 {
            ticks.tick().await;
            site.feed.send(event(&site.snapshot().to_json()));
        }
    }
}

/// A server-sent event of a line of JSON.
fn event(json: &[u8]) -> Bytes {
    let (before, after) = (b"event: snapshot\ndata: ", b"\n\n");
    [before, json, after].concat().into()
}
