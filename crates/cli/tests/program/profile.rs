//! `tourbillon profile`, beside a storm that serves its page.

use std::{fs, process::Output};

use crate::{
    clients::{storm::Storm, tourbillon},
    common::{alarm, dir::Dir, eventually, freed::nobody},
};

fn profile(args: &[&str]) -> Output {
    tourbillon().arg("profile").args(args).output().unwrap()
}

#[test]
fn a_storm_is_sampled_from_outside() {
    let _alarm = alarm();
    // It fires and arms all the time.
    let storm = Storm::start(&["--workers", "2", "--timers", "1M", "--spread", "2m"]);
    let url = storm.url();
    let mut folded = String::new();
    eventually("its workers are sampled", || {
        let output = profile(&[&url, "--seconds", "1"]);
        assert!(output.status.success(), "{output:?}");
        folded = String::from_utf8(output.stdout).unwrap();
        folded.contains("(spawned at ")
    });
    for line in folded.lines() {
        let (names, count) = line.rsplit_once(' ').unwrap();
        assert!(
            names.contains(';') && count.parse::<u64>().unwrap() > 0,
            "{line}"
        );
    }
    let dir = Dir::new();
    for (format, begins) in [("svg", &b"<?xml"[..]), ("pprof", &[0x1f, 0x8b])] {
        let file = dir.path(format);
        let path = file.to_str().unwrap();
        let output = profile(&[&url, "--seconds", "1", "--format", format, "-o", path]);
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        assert!(fs::read(&file).unwrap().starts_with(begins));
    }
}

#[test]
fn what_is_wrong_is_said() {
    let _alarm = alarm();
    let nowhere = nobody().to_string();
    for (args, why) in [
        (vec![&*nowhere, "--seconds", "1"], "cannot read http://"),
        (vec![&nowhere, "--seconds", "301"], "301 is not in 1..=300"),
        (vec!["somewhere"], "must be HOST:PORT"),
    ] {
        let output = profile(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}
