//! Errors of commands, in redis's words, because clients look for them.

use std::fmt;

use crate::{resp::Args, store::Full};

#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    Unknown {
        name: String,
        args: String,
    },
    UnknownSubcommand {
        name: String,
        of: &'static str,
    },
    Arity(&'static str),
    Syntax,
    NotAnInteger,
    /// A time that is invalid in this command.
    ExpireTime(&'static str),
    ExpireOption(String),
    /// Options of EXPIRE that exclude each other.
    ExpireNx,
    ExpireGtLt,
    Memory,
    NoSuchDb,
    ClientName,
    /// The maximum length, in bytes.
    ClientNameLength(usize),
    /// An invalid field, such as a library's name.
    ClientField(&'static str),
    ClientOption(String),
    /// An unsupported version of the protocol.
    NoProto,
    NotAProtocol,
    HelloOption(String),
    NoPassword,
    WrongPassword,
    Overflow,
    DecrementOverflow,
    /// A value that is longer than the maximum.
    ValueLength,
    /// A reply that is longer than the maximum, in bytes.
    ReplyLength(usize),
    /// A pattern that is longer than the maximum, in bytes.
    PatternLength(usize),
    Cursor,
    ClientId,
    ClientType(String),
}

impl Error {
    /// Returns an error for an unknown command.
    pub(super) fn unknown(args: Args<'_>) -> Self {
        // Show as much as helps to find the mistake.
        let mut shown = String::new();
        for arg in args.from(1) {
            if shown.len() >= 128 {
                break;
            }
            shown += &format!("'{}' ", text(arg, 128 - shown.len()));
        }
        Self::Unknown {
            name: text(&args[0], 128),
            args: shown,
        }
    }

    pub(super) fn unknown_subcommand(name: &[u8], of: &'static str) -> Self {
        Self::UnknownSubcommand {
            name: text(name, 128),
            of,
        }
    }

    pub(super) fn expire_option(option: &[u8]) -> Self {
        Self::ExpireOption(text(option, 128))
    }

    pub(super) fn hello_option(option: &[u8]) -> Self {
        Self::HelloOption(text(option, 128))
    }

    pub(super) fn client_option(name: &[u8]) -> Self {
        Self::ClientOption(text(name, 128))
    }

    pub(super) fn client_type(name: &[u8]) -> Self {
        Self::ClientType(text(name, 128))
    }
}

/// Returns the first `max` bytes of a client's text, to show it.
fn text(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned()
}

impl From<Full> for Error {
    fn from(Full: Full) -> Self {
        Self::Memory
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, args } => {
                write!(
                    f,
                    "ERR unknown command '{name}', with args beginning with: {args}"
                )
            }
            Self::UnknownSubcommand { name, of } => {
                write!(f, "ERR unknown subcommand '{name}'. Try {of} HELP.")
            }
            Self::Arity(name) => write!(f, "ERR wrong number of arguments for '{name}' command"),
            Self::Syntax => f.write_str("ERR syntax error"),
            Self::NotAnInteger => f.write_str("ERR value is not an integer or out of range"),
            Self::ExpireTime(name) => write!(f, "ERR invalid expire time in '{name}' command"),
            Self::ExpireOption(option) => write!(f, "ERR Unsupported option {option}"),
            Self::ExpireNx => {
                f.write_str("ERR NX and XX, GT or LT options at the same time are not compatible")
            }
            Self::ExpireGtLt => {
                f.write_str("ERR GT and LT options at the same time are not compatible")
            }
            Self::Memory => f.write_str("OOM command not allowed when used memory > 'maxmemory'."),
            Self::NoSuchDb => f.write_str("ERR DB index is out of range"),
            Self::ClientName => f.write_str(
                "ERR Client names cannot contain spaces, newlines or special characters.",
            ),
            Self::ClientNameLength(most) => {
                write!(f, "ERR Client names cannot be longer than {most} bytes.")
            }
            Self::ClientOption(name) => write!(f, "ERR Unrecognized option '{name}'"),
            Self::ClientField(field) => write!(
                f,
                "ERR {field} cannot contain spaces, newlines or special characters."
            ),
            Self::HelloOption(option) => write!(f, "ERR Syntax error in HELLO option '{option}'"),
            Self::NoPassword => f.write_str(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ),
            Self::WrongPassword => {
                f.write_str("WRONGPASS invalid username-password pair or user is disabled.")
            }
            Self::Overflow => f.write_str("ERR increment or decrement would overflow"),
            Self::DecrementOverflow => f.write_str("ERR decrement would overflow"),
            Self::ValueLength => {
                f.write_str("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
            }
            Self::ReplyLength(most) => write!(
                f,
                "ERR the reply would be longer than {most} bytes (--max-bulk); \
                 SCAN has no such limit"
            ),
            Self::PatternLength(most) => write!(f, "ERR a pattern has at most {most} bytes"),
            Self::Cursor => f.write_str("ERR invalid cursor"),
            Self::ClientId => f.write_str("ERR Invalid client ID"),
            Self::ClientType(name) => write!(f, "ERR Unknown client type '{name}'"),
            Self::NoProto => f.write_str("NOPROTO unsupported protocol version"),
            Self::NotAProtocol => {
                f.write_str("ERR Protocol version is not an integer or out of range")
            }
        }
    }
}
