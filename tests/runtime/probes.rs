//! The probes of feature `probes`, as a tracer finds them.

use std::{env, fs};

/// Every probe that the page of probes lists.
const PROBES: [&str; 7] = ["arm", "fire", "late", "park", "rescue", "stall", "steal"];

#[test]
fn the_program_has_a_note_for_each_probe() {
    let program = fs::read(env::current_exe().unwrap()).unwrap();
    for name in PROBES {
        // A note has the provider, the name and the arguments, each ended by a zero. An argument is
        // a size in bytes, and a place.
        let note = format!("tourbillon\0{name}\0");
        let at = program
            .windows(note.len())
            .position(|bytes| bytes == note.as_bytes());
        let at = at.unwrap_or_else(|| panic!("no note for `{name}`"));
        let arguments = &program[at + note.len()..];
        let digit = arguments[..2].iter().any(u8::is_ascii_digit);
        assert!(
            digit && arguments[..3].contains(&b'@'),
            "`{name}` has no arguments"
        );
    }
}
