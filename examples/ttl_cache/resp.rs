//! Requests in RESP2, redis's protocol: arrays of bulk strings, and plain lines ("inline commands").
//!
//! A request is parsed where it lies in the connection's buffer, and its arguments are ranges of that. The parser
//! remembers how far it has come, so that a request that arrives byte by byte is not read anew each time.

use std::{
    fmt,
    ops::{Index, Range},
};

/// How long a line may be: an inline command, or the header of a bulk string.
pub const MAX_LINE: usize = 64 * 1024;
/// How many arguments a request may have.
pub const MAX_ARGS: usize = 1024 * 1024;
/// What a request may take beside one bulk string of the largest size: its other arguments, and their headers.
pub const MAX_BESIDES: usize = 1024 * 1024;

/// What is no RESP. There is no way to find the next request after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line that does not end within [`MAX_LINE`]; which sort of line it is.
    Line(&'static str),
    /// A number of arguments that is none, or more than [`MAX_ARGS`].
    Count,
    /// A length that is none, or more than a bulk string may have.
    Length,
    /// Something else where a bulk string has to begin.
    NoBulk(u8),
    /// A bulk string that does not end where it said.
    BulkEnd,
    /// More bytes than a request may have.
    TooBig,
    /// An inline command with a quote that is not closed, or is followed by more.
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

/// Finds requests in bytes.
#[derive(Debug)]
pub struct Parser {
    max_bulk: usize,
    /// How much of the request has been understood.
    at: usize,
    /// How far the line that begins there has been searched for its end.
    searched: usize,
    /// Of an array whose head was read: how many arguments are to come.
    missing: Option<usize>,
    /// Of a bulk string whose head was read: its length.
    bulk: Option<usize>,
    args: Vec<Range<u32>>,
}

impl Parser {
    /// For bulk strings of so many bytes at most, which is less than 4 GiB.
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

    /// How many bytes [`parse`](Self::parse) may need to see at once before it answers something else than `None`.
    pub fn max_request(&self) -> usize {
        self.max_bulk + MAX_BESIDES + MAX_LINE + 1
    }

    /// Looks for a request at the beginning of `input`: answers its length, and [`args`](Self::args) are those of it; or
    /// `None` if more bytes are needed. Then the next call has to begin with the same bytes; otherwise, with what follows.
    ///
    /// An inline command is freed of its quotes in place.
    pub fn parse(&mut self, input: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        if self.at == 0 {
            self.args.clear();
            self.args.shrink_to(64);
            match input.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.inline(input),
            }
        }
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => match self.number(input, "mbulk count string", ProtocolError::Count)? {
                // An array that is null or empty asks for nothing.
                Some(count) if count <= 0 => 0,
                Some(count) => usize::try_from(count)
                    .ok()
                    .filter(|&count| count <= MAX_ARGS)
                    .ok_or(ProtocolError::Count)?,
                None => return Ok(None),
            },
        };
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

    /// The arguments of the request that was found in `input`.
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

    /// Reads one argument of an array; false if it is not all there.
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
                // Said before the bytes come, so that they are never waited for.
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

    /// Reads a line of a sign and a number.
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

    /// Where the line ends that begins where we are.
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

/// Splits a line into words as redis does: `"…"` knows escapes, `'…'` only that of itself. What a word stands for is
/// never longer than the word, and written over it.
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

/// Reads up to the quote that closes, and writes what that stands for; answers where to go on.
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

/// The value of a digit, which it is known to be.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A whole number, in the one way to write it: no plus, no leading zeros, no spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', ..] => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The arguments of a request, its name the first of them.
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

    /// Those from `first` on.
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
