//! JSON, as far as traces need it.

use std::fmt::{self, Display, Write as _};

/// Displays a text as a JSON string, in quotes.
pub(crate) struct Quoted<T>(pub(crate) T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        write!(Escaped(f), "{}", self.0)?;
        f.write_char('"')
    }
}

/// Escapes what is written.
struct Escaped<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '"' | '\\' => write!(self.0, "\\{character}")?,
                character if character < ' ' => write!(self.0, "\\u{:04x}", character as u32)?,
                character => self.0.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Displays ns as µs with three digits, the unit of trace events.
pub(crate) struct Micros(pub(crate) u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(Quoted("a \"b\"\\\n").to_string(), r#""a \"b\"\\\u000a""#);
        assert_eq!(Quoted("µs").to_string(), "\"µs\"");
    }

    #[test]
    fn nanoseconds_become_microseconds() {
        let shown = [0, 7, 1_000, 1_234_567].map(|ns| Micros(ns).to_string());
        assert_eq!(shown, ["0.000", "0.007", "1.000", "1234.567"]);
    }
}
