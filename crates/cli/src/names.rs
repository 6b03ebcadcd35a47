//! Names of functions and types, so short that they fit a terminal.

/// Returns the last two parts of the name of a function or type, without its parameters. The future
/// of an `async fn` has the name of that function.
pub(crate) fn short_name(name: &str) -> &str {
    let plain = name.split('<').next().unwrap_or(name);
    let plain = plain.trim_end_matches("::{{closure}}");
    let cut = plain.rmatch_indices("::").nth(1);
    cut.map_or(plain, |(at, _)| &plain[at + 2..])
}

/// Returns the text with each path in it as a [short name](short_name).
pub(crate) fn short_names(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = path(rest);
        if length > 0 {
            short.push_str(short_name(&rest[..length]));
            rest = &rest[length..];
        } else {
            short.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    short
}

/// Returns the length of the path with which a text begins: of a word with `::` in it, and of all
/// that is between its angle brackets. Zero if there is none.
fn path(text: &str) -> usize {
    let (mut depth, mut before) = (0_u32, ' ');
    let end = text.find(|char: char| {
        match char {
            // A path that begins with a bracket, as of a trait's method, has no short form.
            '<' if before == ' ' => return true,
            '<' => depth += 1,
            // The arrow of a function's type is no bracket.
            '>' if before != '-' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return true,
            },
            _ => {}
        }
        before = char;
        depth == 0 && !(char.is_alphanumeric() || "_:{}#>".contains(char))
    });
    let word = &text[..end.unwrap_or(text.len())];
    // A colon may follow the path.
    let word = word.trim_end_matches(':');
    match depth == 0 && word.contains("::") {
        true => word.len(),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_has_two_parts_and_no_parameters() {
        assert_eq!(short_name("plain"), "plain");
        assert_eq!(short_name("shop::price::sum"), "price::sum");
        assert_eq!(
            short_name("shop::price::Sum<a::B, c::D>::get"),
            "price::Sum"
        );
        assert_eq!(
            short_name("shop::main::{{closure}}::{{closure}}"),
            "shop::main"
        );
    }

    #[test]
    fn paths_in_a_text_are_shortened_and_other_words_stay() {
        let texts = [
            ("", ""),
            (
                "task a::b::c::{{closure}} (spawned at src/main.rs:31:9)",
                "task b::c (spawned at src/main.rs:31:9)",
            ),
            (
                "callback a::b::F<c::D<e::G>, fn() -> h::I>, 3 ms",
                "callback b::F, 3 ms",
            ),
            ("in a::b::c: 12 µs", "in b::c: 12 µs"),
            ("GET /a/{id} in task x::y::z", "GET /a/{id} in task y::z"),
            ("<a::b::C as d::e::F>::poll", "<b::C as e::F>::poll"),
            ("a > b < c", "a > b < c"),
            ("a::b::C<never closed", "a::b::C<never closed"),
        ];
        for (long, short) in texts {
            assert_eq!(short_names(long), short);
        }
    }
}
