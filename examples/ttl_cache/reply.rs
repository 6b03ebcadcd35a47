//! The encoder of replies in RESP2 and RESP3. Only this file knows how the two differ.

use std::fmt::{self, Write};

/// Replies that wait to be written.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// Whether the client asked for RESP3.
    pub resp3: bool,
}

impl Replies {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the buffer after writing, and frees memory beyond `keep` bytes.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
    }

    pub fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// Writes an error. Its first word is the kind of error.
    pub fn error(&mut self, error: &dyn fmt::Display) {
        self.bytes.push(b'-');
        let mut line = Line(&mut self.bytes);
        // Writing to a vector cannot fail.
        let _ = write!(line, "{error}");
        self.end();
    }

    pub fn integer(&mut self, number: i64) {
        self.bytes.push(b':');
        self.number(number.unsigned_abs(), number < 0);
        self.end();
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bytes.push(b'$');
        self.number(bytes.len() as u64, false);
        self.end();
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// Writes a bulk string or null.
    pub fn maybe_bulk(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        let null: &[u8] = if self.resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    /// Writes text for people. RESP3 marks it as such.
    pub fn text(&mut self, text: &str) {
        if !self.resp3 {
            return self.bulk(text.as_bytes());
        }
        const FORMAT: &str = "txt:";
        self.bytes.push(b'=');
        self.number((FORMAT.len() + text.len()) as u64, false);
        self.end();
        self.bytes.extend_from_slice(FORMAT.as_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// Writes the head of an array. Its elements are the next replies.
    pub fn array(&mut self, len: usize) {
        self.bytes.push(b'*');
        self.number(len as u64, false);
        self.end();
    }

    /// Writes the head of a map. Its keys and values are the next replies, in turns. In RESP2 it is
    /// an array.
    pub fn map(&mut self, len: usize) {
        if !self.resp3 {
            return self.array(2 * len);
        }
        self.bytes.push(b'%');
        self.number(len as u64, false);
        self.end();
    }

    /// Writes an array whose elements were encoded before, because their number was unknown.
    pub fn array_of(&mut self, len: usize, mut elements: Self) {
        self.array(len);
        // Insert the head before the elements: a copy of many elements could take too much memory.
        elements.bytes.reserve_exact(self.bytes.len());
        elements.bytes.splice(0..0, self.bytes.drain(..));
        self.bytes = elements.bytes;
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes digits without the overhead of `write!`: every reply to a GET contains a number.
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
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }
}

/// Text on one line. Control characters of clients become spaces.
struct Line<'a>(&'a mut Vec<u8>);

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = text.bytes();
        self.0
            .extend(bytes.map(|byte| if byte < b' ' { b' ' } else { byte }));
        Ok(())
    }
}
