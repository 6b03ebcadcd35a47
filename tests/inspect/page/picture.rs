//! The picture of the book: `cargo test --features cli --test inspect -- --ignored picture`.
//! On a machine that does nothing else: it shows how late timers are.

use std::path::Path;

use crate::clients::{browser::Browser, storm::Storm};

/// Where the book has it.
const PICTURE: &str = "docs/guide/live-page.png";

/// The book's pages are read as a whole: it should not be what takes their time.
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
    // Half a minute is what it shows: then it is full.
    browser.eventually("parseFloat(document.getElementById('uptime').textContent) >= 20");
    browser.eventually("parseFloat(document.getElementById('uptime').textContent) >= 34");
    let picture = browser.picture();
    assert!(picture.len() < LARGEST, "{} bytes", picture.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    std::fs::write(path, picture).unwrap();
}
