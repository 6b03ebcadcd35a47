//! The parser of requests in RESP2, redis's protocol: arrays of bulk strings, and plain lines
//! ("inline commands").
//!
//! It parses a request in the connection's buffer; the arguments are ranges of the buffer. It
//! remembers its position, so a request that arrives byte by byte is not parsed from the start each
//! time.

use std::{
    fmt,
    ops::{Index, Range},
};

/// Maximum length of a line: an inline command, or the header of a bulk string.
pub const MAX_LINE: usize = 64 * 1024;
/// Maximum number of arguments of a request.
pub const MAX_ARGS: usize = 1024 * 1024;
/// Maximum size of a request in addition to one bulk string of maximum length: its other arguments
/// and headers.
pub const MAX_BESIDES: usize = 1024 * 1024;

/// The positions of so many arguments are kept.
const USUAL_ARGS: usize = 64;

/// A violation of the protocol. The start of the next request is unknown afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line that does not end within [`MAX_LINE`], with the kind of line.
    Line(&'static str),
    /// An invalid number of arguments, or more than [`MAX_ARGS`].
    Count,
    /// An invalid length, or more than the maximum of a bulk string.
    Length,
    /// Another byte where a bulk string must begin.
    NoBulk(u8),
    /// A bulk string without CRLF at its end.
    BulkEnd,
    /// A request that is too large.
    TooBig,
    /// An inline command with a quote that is not closed, or is followed by a character.
    Quotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(what) => write!(f, "too big {what}"),
            Self::Count => f.write_str("invalid multibulk length"),
            Self::Length => f.write_str("invalid bulk length"),
            Self::NoBulk(got) => write!(f, "expected '$', got '{}'", got.escape_ascii()),
            Self::BulkEnd => f.write_str("expected CRLF after a bulk string"),
            Self::TooBig => f.write_str("too big request"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

/// Finds requests in received bytes.
#[derive(Debug)]
pub struct Parser {
    max_bulk: usize,
    /// Number of bytes of the request parsed so far.
    at: usize,
    /// The end of the current line was searched up to here.
    searched: usize,
    /// Within an array: the number of missing arguments.
    missing: Option<usize>,
    /// Within a bulk string: its length.
    bulk: Option<usize>,
    args: Vec<Range<u32>>,
}

impl Parser {
    /// Returns a parser for bulk strings of at most `max_bulk` bytes, which must be below 4 GiB.
    pub fn new(max_bulk: usize) -> Self {
        Self {
            max_bulk,
            at: 0,
            searched: 0,
            missing: None,
            bulk: None,
            args: Vec::new(),
        }
    }

    /// Returns the input length at which [`parse`](Self::parse) never returns `None`.
    pub fn max_request(&self) -> usize {
        self.max_bulk + MAX_BESIDES + MAX_LINE + 1
    }

    /// Returns the bytes of the positions of arguments, beyond those of a usual request.
    pub fn memory(&self) -> usize {
        self.args.capacity().saturating_sub(USUAL_ARGS) * size_of::<Range<u32>>()
    }

    /// Looks for a request at the start of `input`. Returns its length, and sets
    /// [`args`](Self::args); or returns `None` if it needs more bytes. After `None`, the next call
    /// must pass the same bytes first; otherwise the bytes that follow the request.
    ///
    /// It removes the quotes of an inline command in place.
    pub fn parse(&mut self, input: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        // At the start of a request, decide between an array and an inline command.
        if self.at == 0 {
            self.args.clear();
            self.args.shrink_to(USUAL_ARGS);
            match input.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.inline(input),
            }
        }
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => match self.number(input, "mbulk count string", ProtocolError::Count)? {
                // A null or empty array is no request.
                Some(count) if count <= 0 => 0,
                Some(count) => usize::try_from(count)
                    .ok()
                    .filter(|&count| count <= MAX_ARGS)
                    .ok_or(ProtocolError::Count)?,
                None => return Ok(None),
            },
        };
        // Keep the count, so that the next call continues with the same argument.
        while missing > 0 {
            self.missing = Some(missing);
            if !self.argument(input)? {
                return Ok(None);
            }
            missing -= 1;
        }
        self.missing = None;
        Ok(Some(self.finish()))
    }

    /// Returns the arguments of the request that was found in `input`.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args {
            input,
            ranges: &self.args,
        }
    }

    fn finish(&mut self) -> usize {
        self.searched = 0;
        std::mem::take(&mut self.at)
    }

    /// Parses one argument of an array. Returns `false` if it is incomplete.
    fn argument(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                match input.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => return Err(ProtocolError::NoBulk(other)),
                }
                let length = match self.number(input, "bulk count string", ProtocolError::Length)? {
                    Some(length) => usize::try_from(length)
                        .ok()
                        .filter(|&length| length <= self.max_bulk)
                        .ok_or(ProtocolError::Length)?,
                    None => return Ok(false),
                };
                // Check the length now, not when all bytes have arrived.
                if self.at + length + 2 > self.max_bulk + MAX_BESIDES {
                    return Err(ProtocolError::TooBig);
                }
                *self.bulk.insert(length)
            }
        };
        let end = self.at + length;
        let Some(tail) = input.get(end..end + 2) else {
            return Ok(false);
        };
        if tail != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        self.args.push(self.at as u32..end as u32);
        self.bulk = None;
        self.at = end + 2;
        Ok(true)
    }

    /// Parses a line of a sign byte and a number.
    fn number(
        &mut self,
        input: &[u8],
        what: &'static str,
        error: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let Some(end) = self.line(input, what)? else {
            return Ok(None);
        };
        let digits = input[self.at + 1..end].strip_suffix(b"\r").ok_or(error)?;
        let number = integer(digits).ok_or(error)?;
        self.at = end + 1;
        Ok(Some(number))
    }

    /// Returns the end of the line at the current position.
    fn line(&mut self, input: &[u8], what: &'static str) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched.max(self.at);
        let end = input[from..].iter().position(|&byte| byte == b'\n');
        let known = end.map_or(input.len(), |n| from + n);
        if known - self.at > MAX_LINE {
            return Err(ProtocolError::Line(what));
        }
        self.searched = known;
        Ok(end.map(|_| known))
    }

    fn inline(&mut self, input: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = self.line(input, "inline request")? else {
            return Ok(None);
        };
        split_line(&mut input[..end], &mut self.args)?;
        self.at = end + 1;
        Ok(Some(self.finish()))
    }
}

/// Splits a line into words as redis does. `"…"` supports escapes, `'…'` only the escaped quote. An
/// unquoted word is never longer than its source, and overwrites it.
fn split_line(line: &mut [u8], words: &mut Vec<Range<u32>>) -> Result<(), ProtocolError> {
    let (mut from, mut to) = (0, 0);
    loop {
        while line.get(from).is_some_and(is_space) {
            from += 1;
        }
        if from == line.len() {
            return Ok(());
        }
        to = from.min(to);
        let start = to;
        while let Some(&byte) = line.get(from).filter(|byte| !is_space(byte)) {
            if byte == b'"' || byte == b'\'' {
                from = unquote(line, from + 1, &mut to, byte)?;
            } else {
                line[to] = byte;
                to += 1;
                from += 1;
            }
        }
        words.push(start as u32..to as u32);
    }
}

/// Reads up to the closing quote and writes the unquoted text. Returns the position after the
/// quote.
fn unquote(
    line: &mut [u8],
    mut from: usize,
    to: &mut usize,
    quote: u8,
) -> Result<usize, ProtocolError> {
    loop {
        let (byte, length) = match line[from..] {
            [byte, ref rest @ ..] if byte == quote => {
                return match rest.first() {
                    Some(next) if !is_space(next) => Err(ProtocolError::Quotes),
                    _ => Ok(from + 1),
                };
            }
            [b'\\', b'x', high, low, ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(high) << 4 | hex(low), 4)
            }
            [b'\\', escaped, ..] if quote == b'"' => (escape(escaped), 2),
            [b'\\', b'\'', ..] => (b'\'', 2),
            [byte, ..] => (byte, 1),
            [] => return Err(ProtocolError::Quotes),
        };
        line[*to] = byte;
        *to += 1;
        from += length;
    }
}

fn escape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

/// Returns the value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Parses a whole number without plus sign, leading zeros or spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', ..] => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The arguments of a request, including its name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    input: &'a [u8],
    ranges: &'a [Range<u32>],
}

impl<'a> Args<'a> {
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| self.slice(range))
    }

    /// Returns the arguments from index `first` on.
    pub fn from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let args = *self;
        let ranges = self.ranges.get(first..).unwrap_or_default();
        ranges.iter().map(move |range| args.slice(range))
    }

    fn slice(&self, range: &Range<u32>) -> &'a [u8] {
        &self.input[range.start as usize..range.end as usize]
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.slice(&self.ranges[index])
    }
}
