//! The example `game_cooldowns`: a million cooldowns end on time, and the program reports one that
//! does not.

use std::process::Output;

use crate::clients::{example, number};

fn play(args: &[&str]) -> Output {
    example("game_cooldowns").args(args).output().unwrap()
}

/// Plays a game, and checks that nothing goes wrong. Returns what the program printed.
fn play_well(args: &[&str]) -> String {
    let output = play(args);
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out} {err}");
    assert_eq!(out.lines().count(), 1, "{out}");
    assert!(out.ends_with("; 0 wrong\n"), "{out}");
    // Each cast spell has ended, was silenced, or waits.
    let parts = [
        (": ", " ended"),
        ("time, ", " were silenced"),
        ("silenced, ", " wait"),
    ];
    let parts = parts.map(|(before, after)| {
        let text = if before == ": " {
            &out[out.find("game").unwrap()..]
        } else {
            &out
        };
        number(text, before, after).unwrap_or_else(|| panic!("{out}"))
    });
    assert_eq!(cast(&out), parts.iter().sum::<u64>(), "{out}");
    out
}

/// Returns how many cooldowns there were.
fn cast(out: &str) -> u64 {
    number(out, "", " cooldowns").unwrap()
}

#[test]
fn a_million_abilities_cool_down_and_each_is_ready_exactly_in_time() {
    let out = play_well(&["--players", "100000", "--length", "75s"]);
    assert!(cast(&out) >= 1_000_000, "{out}");
    for (before, after) in [
        ("way ", " ended"),
        ("refresher, ", " were"),
        ("hastened, ", " pro"),
    ] {
        assert!(number(&out, before, after).unwrap() > 10_000, "{out}");
    }
}

#[test]
fn the_same_seed_gives_the_same_game() {
    let game = |seed| play_well(&["--players", "2000", "--seed", seed]);
    let first = game("7");
    assert_eq!(first, game("7"));
    assert_ne!(first, game("8"));
}

#[test]
fn a_delay_of_one_nanosecond_is_detected() {
    let output = play(&["--players", "10", "--length", "30m", "--spoil", "17"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("ability 17 ") && err.contains("exactly at its time"),
        "{err}"
    );
    assert!(!err.contains("ability 16 "), "{err}");
}

#[test]
fn invalid_games_are_refused() {
    for (args, message) in [
        (["--length", "1ms"], "100 ms"),
        (["--length", "2years"], "longer than a year"),
        (["--length", "soon"], "--length"),
        (["--players", "0"], "--players"),
        (["--abilities", "101"], "--abilities"),
    ] {
        let output = play(&args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && err.contains(message),
            "{args:?}: {err}"
        );
    }
    // The shortest length that is allowed.
    play_well(&["--length", "100ms", "--players", "1", "--abilities", "1"]);
}
