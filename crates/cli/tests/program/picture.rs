//! The picture of the live page in the book. `cargo test -p tourbillon-cli --test program --
//! --ignored picture` makes it. Run this on an idle machine, since the picture shows how late
//! timers are.

use std::path::Path;

use crate::clients::{browser::Browser, storm::Storm};

/// The file of the picture in the book.
const PICTURE: &str = "../../docs/guide/live-page.png";

/// The largest size of the picture, in bytes. A browser loads a page of the book as a whole, and
/// the picture should not dominate that time.
const LARGEST: usize = 300 << 10;

#[test]
#[ignore = "writes a file of the book"]
fn picture_of_a_storm() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let storm = Storm::start(&["--workers", "2", "--timers", "400k", "--spread", "45s"]);
    browser.resize(1440, 1034);
    browser.open(&storm.url());
    // The page shows half a minute. Wait until that is full.
    browser.eventually("parseFloat(document.getElementById('uptime').textContent) >= 20");
    browser.eventually("parseFloat(document.getElementById('uptime').textContent) >= 34");
    let picture = browser.picture();
    assert!(picture.len() < LARGEST, "{} bytes", picture.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    std::fs::write(path, picture).unwrap();
}
