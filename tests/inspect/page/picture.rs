//! The picture of the book: `cargo test --features cli --test inspect -- --ignored picture`.
//! On a machine that does nothing else: it shows how late timers are.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use crate::clients::{browser::Browser, tourbillon};

/// Where the book has it.
const PICTURE: &str = "docs/guide/live-page.png";

/// The book's pages are read as a whole: it should not be what takes their time.
const LARGEST: usize = 300 << 10;

/// A program that ends with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "writes a file of the book"]
fn picture_of_a_storm() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let storm = tourbillon()
        .args(["storm", "--inspect", "127.0.0.1:0", "--workers", "2"])
        .args(["--timers", "400k", "--spread", "45s"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut storm = Killed(storm);
    let lines = BufReader::new(storm.0.stderr.take().unwrap()).lines();
    let url = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("inspect: ").map(str::to_owned));
    browser.resize(1440, 1034);
    browser.open(&url.unwrap());
    // Half a minute is what it shows: then it is full.
    browser.eventually("parseFloat(document.getElementById('uptime').textContent) >= 20");
    browser.eventually("parseFloat(document.getElementById('uptime').textContent) >= 34");
    let picture = browser.picture();
    assert!(picture.len() < LARGEST, "{} bytes", picture.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    std::fs::write(path, picture).unwrap();
}
