//! Patterns, as `KEYS`, `SCAN` and `CONFIG GET` have them.
//!
//! `?` stands for any byte and `*` for any bytes. `[abc]` stands for one of these bytes, `[a-z]`
//! for one of this range, `[^…]` for one of the others. A byte after `\` stands for itself.

/// Whether letters of either case are meant.
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

/// Whether `text` is one of those that `pattern` stands for.
///
/// If a part does not match, this goes back to the last `*` alone. So it takes no longer than the
/// product of both lengths.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on in both if what comes after the last `*` does not match there.
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
        // The `*` takes one byte more.
        retry = Some((after, from + 1));
        (p, t) = (after, from + 1);
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Matches one byte with the beginning of a pattern, which is not empty. Returns whether it
/// matches, and how many bytes of the pattern stand for it.
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

/// Matches one byte with a set, of which the bracket that opens it has been read. A set that is not
/// closed ends with the pattern, as in redis.
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
            // Redis looks at the case of an escaped byte, whatever it was told.
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
