//! The protocol RESP2: requests, replies, and the errors of a peer that does not keep to it.

use std::{borrow::Cow, fmt, ops::Range, str};

use bytes::{Bytes, BytesMut};

/// The longest line, in bytes. A line holds a number, a status or an inline request.
const LONGEST_LINE: usize = 64 * 1024;

/// The longest string, in bytes.
const LONGEST_BULK: i64 = 512 * 1024 * 1024;

/// The largest number of elements in an array.
const LARGEST_ARRAY: i64 = 1024 * 1024;

/// How deep arrays may be nested.
const DEEPEST_ARRAY: usize = 8;

/// A reply, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A status, as `OK`.
    Simple(Cow<'static, str>),
    /// An error, with its code in front.
    Error(String),
    /// A signed number.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Bytes),
    /// No value.
    Null,
    /// Other frames.
    Array(Vec<Frame>),
}

/// What is wrong with the bytes of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The length of an array is no number, or too large.
    InvalidArrayLength,
    /// The length of a string is no number, negative or too large.
    InvalidBulkLength,
    /// An element of a request is no string, but begins with this byte.
    ExpectedBulk(u8),
    /// A line exceeds its limit.
    LineTooLong,
    /// An inline request has quotes, which this server does not parse.
    InlineQuotes,
    /// A string does not end with CR and LF.
    MissingEnd,
    /// A reply begins with this byte, which stands for no type.
    UnknownType(u8),
    /// The number of a reply is not an integer.
    InvalidInteger,
    /// The status or the error of a reply is not UTF-8.
    InvalidText,
    /// Arrays are nested deeper than the limit.
    TooDeep,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArrayLength => f.write_str("invalid multibulk length"),
            Self::InvalidBulkLength => f.write_str("invalid bulk length"),
            Self::ExpectedBulk(byte) => {
                write!(f, "expected '$', got '{}'", char::from(*byte))
            }
            Self::LineTooLong => f.write_str("too big inline request"),
            Self::InlineQuotes => f.write_str("quotes in an inline request; send an array"),
            Self::MissingEnd => f.write_str("a bulk string must end with CR LF"),
            Self::UnknownType(byte) => {
                write!(f, "unknown type of reply '{}'", char::from(*byte))
            }
            Self::InvalidInteger => f.write_str("a reply must have a 64-bit integer after ':'"),
            Self::InvalidText => f.write_str("a status must be UTF-8"),
            Self::TooDeep => write!(f, "more than {DEEPEST_ARRAY} nested arrays"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Why there is nothing to take from a buffer.
enum Stop {
    /// More bytes have to arrive.
    Incomplete,
    Invalid(ProtocolError),
}

impl From<ProtocolError> for Stop {
    fn from(error: ProtocolError) -> Self {
        Self::Invalid(error)
    }
}

/// Turns "more bytes have to arrive" into `None`.
fn complete<T>(result: Result<T, Stop>) -> Result<Option<T>, ProtocolError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Invalid(error)) => Err(error),
    }
}

/// A position in bytes that have arrived.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Incomplete)
    }

    /// Takes a line, without its end.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let within = &rest[..rest.len().min(LONGEST_LINE)];
        let Some(length) = within.iter().position(|byte| *byte == b'\n') else {
            return Err(if within.len() == LONGEST_LINE {
                ProtocolError::LineTooLong.into()
            } else {
                Stop::Incomplete
            });
        };
        self.at += length + 1;
        let line = &rest[..length];
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Takes a string whose length is known, and its end.
    fn bulk(&mut self, length: usize) -> Result<Range<usize>, Stop> {
        let range = self.at..self.at + length;
        let end = self
            .bytes
            .get(range.end..range.end + 2)
            .ok_or(Stop::Incomplete)?;
        if end != b"\r\n" {
            return Err(ProtocolError::MissingEnd.into());
        }
        self.at = range.end + 2;
        Ok(range)
    }
}

/// Parses a number as Redis does: without a plus sign, leading zeros or spaces.
pub fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let text = str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits.starts_with(|first: char| ('1'..='9').contains(&first));
    (canonical || text == "0").then(|| text.parse().ok())?
}

/// Parses a length, of an array or a string.
fn length(line: &[u8], most: i64) -> Option<i64> {
    parse_integer(line).filter(|length| *length <= most)
}

/// Parses the length of a string.
fn bulk_length(line: &[u8]) -> Result<usize, ProtocolError> {
    length(line, LONGEST_BULK)
        .and_then(|length| usize::try_from(length).ok())
        .ok_or(ProtocolError::InvalidBulkLength)
}

/// Takes a request from a buffer: an array of strings, or a line with words.
///
/// Returns `None` if more bytes have to arrive. The request can be empty.
///
/// # Errors
///
/// The peer does not keep to the protocol. There is no way to find its next request.
pub fn take_request(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
    let mut cursor = Cursor::new(buffer);
    let Some(ranges) = complete(request(&mut cursor))? else {
        return Ok(None);
    };
    let taken = cursor.at;
    // The strings share the bytes that arrived.
    let bytes = buffer.split_to(taken).freeze();
    Ok(Some(
        ranges.into_iter().map(|range| bytes.slice(range)).collect(),
    ))
}

fn request(cursor: &mut Cursor<'_>) -> Result<Vec<Range<usize>>, Stop> {
    if cursor.peek()? != b'*' {
        return inline_request(cursor);
    }
    let count =
        length(&cursor.line()?[1..], LARGEST_ARRAY).ok_or(ProtocolError::InvalidArrayLength)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        let first = cursor.peek()?;
        if first != b'$' {
            return Err(ProtocolError::ExpectedBulk(first).into());
        }
        let length = bulk_length(&cursor.line()?[1..])?;
        strings.push(cursor.bulk(length)?);
    }
    Ok(strings)
}

fn inline_request(cursor: &mut Cursor<'_>) -> Result<Vec<Range<usize>>, Stop> {
    let start = cursor.at;
    let line = cursor.line()?;
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Err(ProtocolError::InlineQuotes.into());
    }
    let mut words = Vec::new();
    let mut at = start;
    for word in line.split(u8::is_ascii_whitespace) {
        if !word.is_empty() {
            words.push(at..at + word.len());
        }
        at += word.len() + 1;
    }
    Ok(words)
}

impl Frame {
    /// The reply to a command that has no result.
    pub const OK: Self = Self::Simple(Cow::Borrowed("OK"));

    /// Makes a string of bytes.
    pub fn bulk(bytes: impl Into<Bytes>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// Takes a reply from a buffer. Returns `None` if more bytes have to arrive.
    ///
    /// # Errors
    ///
    /// The peer does not keep to the protocol.
    pub fn take(buffer: &mut BytesMut) -> Result<Option<Self>, ProtocolError> {
        let mut cursor = Cursor::new(buffer);
        let frame = complete(Self::parse(&mut cursor, 0))?;
        if frame.is_some() {
            let taken = cursor.at;
            let _ = buffer.split_to(taken);
        }
        Ok(frame)
    }

    fn parse(cursor: &mut Cursor<'_>, depth: usize) -> Result<Self, Stop> {
        if depth > DEEPEST_ARRAY {
            return Err(ProtocolError::TooDeep.into());
        }
        let first = cursor.peek()?;
        let line = cursor.line()?;
        let text = || {
            let text = str::from_utf8(&line[1..]).map_err(|_| ProtocolError::InvalidText)?;
            Ok::<_, Stop>(text.to_owned())
        };
        match first {
            b'+' => Ok(Self::Simple(text()?.into())),
            b'-' => Ok(Self::Error(text()?)),
            b':' => Ok(Self::Integer(
                parse_integer(&line[1..]).ok_or(ProtocolError::InvalidInteger)?,
            )),
            b'$' | b'*' if &line[1..] == b"-1" => Ok(Self::Null),
            b'$' => {
                let range = cursor.bulk(bulk_length(&line[1..])?)?;
                Ok(Self::Bulk(Bytes::copy_from_slice(&cursor.bytes[range])))
            }
            b'*' => {
                let count = length(&line[1..], LARGEST_ARRAY)
                    .filter(|count| *count >= 0)
                    .ok_or(ProtocolError::InvalidArrayLength)?;
                let frames = (0..count).map(|_| Self::parse(cursor, depth + 1));
                Ok(Self::Array(frames.collect::<Result<_, _>>()?))
            }
            other => Err(ProtocolError::UnknownType(other).into()),
        }
    }

    /// Appends the bytes of this frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, '+', text),
            Self::Error(text) => line(out, '-', text),
            Self::Integer(number) => line(out, ':', number),
            Self::Bulk(bytes) => {
                line(out, '$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Null => line(out, '$', -1),
            Self::Array(frames) => {
                line(out, '*', frames.len());
                for frame in frames {
                    frame.encode(out);
                }
            }
        }
    }
}

/// Appends a line.
fn line(out: &mut Vec<u8>, first: char, text: impl fmt::Display) {
    out.extend_from_slice(format!("{first}{text}\r\n").as_bytes());
}

impl fmt::Display for Frame {
    /// Writes a frame as the program's client prints it, one line for each part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => f.write_str(text),
            Self::Error(text) => write!(f, "(error) {text}"),
            Self::Integer(number) => write!(f, "(integer) {number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Null => f.write_str("(nil)"),
            Self::Array(frames) => {
                for (index, frame) in frames.iter().enumerate() {
                    let end = if index + 1 < frames.len() { "\n" } else { "" };
                    write!(f, "{}) {frame}{end}", index + 1)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(bytes: &[u8]) -> Result<Vec<Vec<Bytes>>, ProtocolError> {
        let mut buffer = BytesMut::from(bytes);
        let mut requests = Vec::new();
        while let Some(request) = take_request(&mut buffer)? {
            requests.push(request);
        }
        Ok(requests)
    }

    #[test]
    fn a_request_is_taken_when_its_last_byte_has_arrived() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n";
        for length in 0..bytes.len() {
            assert_eq!(requests(&bytes[..length]), Ok(Vec::new()), "{length}");
        }
        assert_eq!(requests(bytes).unwrap(), [["GET", "a\r\n"]]);
        assert_eq!(requests(b"get  a\r\nping\n").unwrap()[0], ["get", "a"]);
    }

    #[test]
    fn invalid_requests_are_errors() {
        for (bytes, error) in [
            (&b"*x\r\n"[..], ProtocolError::InvalidArrayLength),
            (b"*1\r\n$-1\r\n", ProtocolError::InvalidBulkLength),
            (b"*1\r\n+a\r\n", ProtocolError::ExpectedBulk(b'+')),
            (b"*1\r\n$1\r\nabc", ProtocolError::MissingEnd),
            (b"get 'a'\r\n", ProtocolError::InlineQuotes),
            (&[b'a'; LONGEST_LINE], ProtocolError::LineTooLong),
        ] {
            assert_eq!(requests(bytes), Err(error));
        }
    }

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let frame = Frame::Array(vec![
            Frame::OK,
            Frame::Error("ERR no".to_owned()),
            Frame::Integer(i64::MIN),
            Frame::bulk("a\r\nb"),
            Frame::Null,
            Frame::Array(Vec::new()),
        ]);
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        for length in 0..bytes.len() {
            let mut part = BytesMut::from(&bytes[..length]);
            assert_eq!(Frame::take(&mut part), Ok(None), "{length}");
        }
        let mut whole = BytesMut::from(&bytes[..]);
        assert_eq!(Frame::take(&mut whole), Ok(Some(frame)));
        assert!(whole.is_empty());
    }
}
