//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`.
//!
//! `?` matches any byte and `*` any bytes. `[abc]` matches one of these bytes, `[a-z]` one of this
//! range, `[^…]` one byte not in the set. A byte after `\` matches itself.

/// Whether the case of letters matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Matters,
    Ignored,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Self::Matters => byte,
            Self::Ignored => byte.to_ascii_lowercase(),
        }
    }
}

/// Returns whether `pattern` matches `text`.
///
/// A mismatch goes back to the last `*` only. So the time is at most the product of both lengths.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut p, mut t) = (0, 0);
    // Positions to continue from, in both, if the text after the last `*` does not match.
    let mut retry = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if p < pattern.len() {
            let (is_match, length) = one(&pattern[p..], text[t], case);
            if is_match {
                (p, t) = (p + length, t + 1);
                continue;
            }
        }
        let Some((after, from)) = retry else {
            return false;
        };
        // Let the `*` match one more byte.
        retry = Some((after, from + 1));
        (p, t) = (after, from + 1);
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Matches one byte with the start of a pattern that is not empty. Returns whether it matches, and
/// the length of the pattern's first element.
fn one(pattern: &[u8], byte: u8, case: Case) -> (bool, usize) {
    match *pattern {
        [b'?', ..] => (true, 1),
        [b'[', ref set @ ..] => {
            let (is_match, length) = one_of(set, byte, case);
            (is_match, 1 + length)
        }
        [b'\\', escaped, ..] => (case.fold(escaped) == case.fold(byte), 2),
        [plain, ..] => (case.fold(plain) == case.fold(byte), 1),
        [] => (false, 0),
    }
}

/// Matches one byte with a set, after its opening bracket. A set without a closing bracket ends
/// with the pattern, as in redis.
fn one_of(set: &[u8], byte: u8, case: Case) -> (bool, usize) {
    let is_negated = set.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut found = false;
    loop {
        at += match set[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            // Redis compares an escaped byte with its case, even if case is ignored.
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                2
            }
            [first, b'-', last, ..] => {
                let ends = (first.min(last), first.max(last));
                let range = case.fold(ends.0)..=case.fold(ends.1);
                found |= range.contains(&case.fold(byte));
                3
            }
            [plain, ..] => {
                found |= case.fold(plain) == case.fold(byte);
                1
            }
        };
    }
    (found != is_negated, at)
}
