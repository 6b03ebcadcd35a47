//! What is wrong with a command, in redis's words: clients look for them.

use std::fmt;

use crate::{resp::Args, store::Full};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
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
    /// A time that cannot be, in this command.
    ExpireTime(&'static str),
    ExpireOption(String),
    /// Options of EXPIRE that do not go together.
    ExpireNx,
    ExpireGtLt,
    Memory,
    NoSuchDb,
    ClientName,
    /// It may have so many bytes.
    ClientNameLength(usize),
    /// What RESP there is: 2.
    NoProto,
    NotAProtocol,
}

impl Error {
    /// There is no such command.
    pub(super) fn unknown(args: Args<'_>) -> Self {
        // As much of it as helps to find the mistake.
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
}

/// What a client sent, to be shown.
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
            Self::NoProto => f.write_str("NOPROTO unsupported protocol version"),
            Self::NotAProtocol => {
                f.write_str("ERR Protocol version is not an integer or out of range")
            }
        }
    }
}
