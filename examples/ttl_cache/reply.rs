//! Replies in RESP2.

use std::fmt::{self, Write};

/// Replies that wait to be written, all in one go.
#[derive(Debug, Default)]
pub struct Replies(Vec<u8>);

impl Replies {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Forgets what has been written, and gives memory back that an unusually large reply needed.
    pub fn clear(&mut self, keep: usize) {
        self.0.clear();
        self.0.shrink_to(keep);
    }

    pub fn simple(&mut self, text: &str) {
        self.0.push(b'+');
        self.0.extend_from_slice(text.as_bytes());
        self.end();
    }

    pub fn ok(&mut self) {
        self.0.extend_from_slice(b"+OK\r\n");
    }

    /// An error, whose first word is what sort it is.
    pub fn error(&mut self, error: &dyn fmt::Display) {
        self.0.push(b'-');
        let mut line = Line(&mut self.0);
        // A vector takes all that is written.
        let _ = write!(line, "{error}");
        self.end();
    }

    pub fn integer(&mut self, number: i64) {
        self.0.push(b':');
        self.number(number.unsigned_abs(), number < 0);
        self.end();
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.0.push(b'$');
        self.number(bytes.len() as u64, false);
        self.end();
        self.0.extend_from_slice(bytes);
        self.end();
    }

    /// A bulk string, or that there is none.
    pub fn maybe_bulk(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        self.0.extend_from_slice(b"$-1\r\n");
    }

    /// The head of an array; the elements are the next replies.
    pub fn array(&mut self, len: usize) {
        self.0.push(b'*');
        self.number(len as u64, false);
        self.end();
    }

    fn end(&mut self) {
        self.0.extend_from_slice(b"\r\n");
    }

    /// Without the machinery of `write!`: every reply to a GET has one.
    fn number(&mut self, mut number: u64, negative: bool) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        if negative {
            self.0.push(b'-');
        }
        self.0.extend_from_slice(&digits[at..]);
    }
}

/// Text that has to stay on one line, whatever a client made it of.
struct Line<'a>(&'a mut Vec<u8>);

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = text.bytes();
        self.0
            .extend(bytes.map(|byte| if byte < b' ' { b' ' } else { byte }));
        Ok(())
    }
}
