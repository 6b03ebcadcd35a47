//! The commands: their arguments, their errors and their replies.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;

use crate::{
    db::{AddError, Condition, Db, Expiry, TimeLeft},
    frame::{Frame, parse_integer},
    rt::time::{Duration, Instant},
};

/// A request that has been understood.
#[derive(Debug)]
pub enum Command {
    Ping(Option<Bytes>),
    Echo(Bytes),
    Get(Bytes),
    Set {
        key: Bytes,
        value: Bytes,
        condition: Condition,
        expiry: Expiry,
    },
    Del(Vec<Bytes>),
    Exists(Vec<Bytes>),
    /// EXPIRE and PEXPIRE. Without a deadline the key expires at once.
    Expire(Bytes, Option<Instant>),
    /// TTL and PTTL: how many milliseconds a unit of the reply has.
    TimeLeft(Bytes, u64),
    Persist(Bytes),
    /// INCR, DECR and INCRBY.
    Add(Bytes, i64),
    Append(Bytes, Bytes),
    Strlen(Bytes),
    Mget(Vec<Bytes>),
    Mset(Vec<(Bytes, Bytes)>),
    Type(Bytes),
    Dbsize,
    Flushall,
    Publish(Bytes, Bytes),
    Subscribe(Vec<Bytes>),
    Unsubscribe(Vec<Bytes>),
    Quit,
}

/// Why a request is no command. Its text is the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    Unknown { name: String, arguments: String },
    WrongNumber { name: String },
    NotSubscribing { name: String },
    Syntax,
    NotInteger,
    Overflow,
    InvalidExpiry { name: String },
    UnsupportedOption(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, arguments } => write!(
                f,
                "ERR unknown command '{name}', with args beginning with: {arguments}"
            ),
            Self::WrongNumber { name } => {
                write!(f, "ERR wrong number of arguments for '{name}' command")
            }
            Self::NotSubscribing { name } => write!(
                f,
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT \
                 / RESET are allowed in this context"
            ),
            Self::Syntax => f.write_str("ERR syntax error"),
            Self::NotInteger => f.write_str("ERR value is not an integer or out of range"),
            Self::Overflow => f.write_str("ERR increment or decrement would overflow"),
            Self::InvalidExpiry { name } => {
                write!(f, "ERR invalid expire time in '{name}' command")
            }
            Self::UnsupportedOption(option) => write!(f, "ERR Unsupported option {option}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<AddError> for CommandError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::NotInteger => Self::NotInteger,
            AddError::Overflow => Self::Overflow,
        }
    }
}

impl From<CommandError> for Frame {
    fn from(error: CommandError) -> Self {
        // A line break in an argument must not end the reply.
        Self::Error(error.to_string().replace(['\r', '\n'], " "))
    }
}

/// Text of bytes, for an error.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}

fn integer(bytes: &[u8]) -> Result<i64, CommandError> {
    parse_integer(bytes).ok_or(CommandError::NotInteger)
}

/// Returns the instant that is `number` times `unit` milliseconds from now. Returns `None` if it is
/// too far.
fn deadline(number: u64, unit: u64) -> Option<Instant> {
    let milliseconds = number.checked_mul(unit)?;
    // Redis counts the milliseconds since 1970 in an `i64`.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let since_epoch = now.as_millis() + u128::from(milliseconds);
    i64::try_from(since_epoch).ok()?;
    Instant::now().checked_add(Duration::from_millis(milliseconds))
}

/// Returns the number of arguments of a command, the least and the most.
fn arity(name: &str) -> Option<(usize, usize)> {
    const MANY: usize = usize::MAX;
    Some(match name {
        "dbsize" => (0, 0),
        "ping" => (0, MANY),
        "echo" | "get" | "ttl" | "pttl" | "persist" | "incr" | "decr" | "strlen" | "type" => (1, 1),
        "append" | "incrby" | "publish" => (2, 2),
        "set" | "expire" | "pexpire" | "mset" => (2, MANY),
        "del" | "exists" | "mget" | "subscribe" => (1, MANY),
        "unsubscribe" | "flushall" | "quit" => (0, MANY),
        _ => return None,
    })
}

impl Command {
    /// Parses a request of at least one string. A client that subscribes may send a few commands
    /// only.
    pub fn parse(request: &[Bytes], subscribing: bool) -> Result<Self, CommandError> {
        let (given, arguments) = request.split_first().ok_or(CommandError::Syntax)?;
        let name = text(given).to_ascii_lowercase();
        let Some((least, most)) = arity(&name) else {
            return Err(unknown(given, arguments));
        };
        if arguments.len() < least || arguments.len() > most {
            return Err(CommandError::WrongNumber { name });
        }
        if subscribing && !matches!(&*name, "subscribe" | "unsubscribe" | "ping" | "quit") {
            return Err(CommandError::NotSubscribing { name });
        }
        let key = || arguments[0].clone();
        Ok(match &*name {
            "ping" => match arguments {
                [] => Self::Ping(None),
                [text] => Self::Ping(Some(text.clone())),
                _ => return Err(CommandError::WrongNumber { name }),
            },
            "echo" => Self::Echo(key()),
            "get" => Self::Get(key()),
            "set" => return Self::parse_set(arguments),
            "del" => Self::Del(arguments.to_vec()),
            "exists" => Self::Exists(arguments.to_vec()),
            "expire" => return Self::parse_expire(name, arguments, 1000),
            "pexpire" => return Self::parse_expire(name, arguments, 1),
            "ttl" => Self::TimeLeft(key(), 1000),
            "pttl" => Self::TimeLeft(key(), 1),
            "persist" => Self::Persist(key()),
            "incr" => Self::Add(key(), 1),
            "decr" => Self::Add(key(), -1),
            "incrby" => Self::Add(key(), integer(&arguments[1])?),
            "append" => Self::Append(key(), arguments[1].clone()),
            "strlen" => Self::Strlen(key()),
            "mget" => Self::Mget(arguments.to_vec()),
            "mset" => {
                let pairs = arguments.chunks_exact(2);
                if !pairs.remainder().is_empty() {
                    return Err(CommandError::WrongNumber { name });
                }
                let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone()));
                Self::Mset(pairs.collect())
            }
            "type" => Self::Type(key()),
            "dbsize" => Self::Dbsize,
            "flushall" => match arguments {
                [] => Self::Flushall,
                [how] if how.eq_ignore_ascii_case(b"sync") => Self::Flushall,
                [how] if how.eq_ignore_ascii_case(b"async") => Self::Flushall,
                _ => return Err(CommandError::Syntax),
            },
            "publish" => Self::Publish(key(), arguments[1].clone()),
            "subscribe" => Self::Subscribe(arguments.to_vec()),
            "unsubscribe" => Self::Unsubscribe(arguments.to_vec()),
            "quit" => Self::Quit,
            _ => return Err(unknown(given, arguments)),
        })
    }

    /// Parses `key value [NX | XX] [EX seconds | PX milliseconds | KEEPTTL]`.
    fn parse_set(arguments: &[Bytes]) -> Result<Self, CommandError> {
        let [key, value, options @ ..] = arguments else {
            return Err(CommandError::Syntax);
        };
        let mut condition = Condition::Always;
        let mut time = None;
        let mut keep = false;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match &*option.to_ascii_uppercase() {
                b"NX" if condition != Condition::IfPresent => condition = Condition::IfMissing,
                b"XX" if condition != Condition::IfMissing => condition = Condition::IfPresent,
                b"KEEPTTL" if time.is_none() => keep = true,
                unit @ (b"EX" | b"PX") if time.is_none() && !keep => {
                    let number = options.next().ok_or(CommandError::Syntax)?;
                    time = Some((number, if unit == b"EX" { 1000 } else { 1 }));
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        // The numbers come last: Redis reports a wrong option first.
        let expiry = match time {
            Some((number, unit)) => u64::try_from(integer(number)?)
                .ok()
                .filter(|number| *number > 0)
                .and_then(|number| deadline(number, unit))
                .map(Expiry::At)
                .ok_or_else(|| CommandError::InvalidExpiry { name: "set".into() })?,
            None if keep => Expiry::Keep,
            None => Expiry::Never,
        };
        Ok(Self::Set {
            key: key.clone(),
            value: value.clone(),
            condition,
            expiry,
        })
    }

    /// Parses `key time`.
    fn parse_expire(name: String, arguments: &[Bytes], unit: u64) -> Result<Self, CommandError> {
        if let Some(option) = arguments.get(2) {
            return Err(CommandError::UnsupportedOption(text(option)));
        }
        let number = integer(&arguments[1])?;
        let deadline = match u64::try_from(number) {
            Ok(number) if number > 0 => {
                Some(deadline(number, unit).ok_or(CommandError::InvalidExpiry { name })?)
            }
            _ => None,
        };
        Ok(Self::Expire(arguments[0].clone(), deadline))
    }

    /// Applies a command to the data. Returns a command about the connection itself as `Err`,
    /// because this function cannot apply it.
    pub fn apply(self, db: &Db) -> Result<Frame, Self> {
        Ok(match self {
            Self::Echo(text) => Frame::Bulk(text),
            Self::Get(key) => optional(db.get(&key)),
            Self::Set {
                key,
                value,
                condition,
                expiry,
            } => {
                if db.set(&key, &value, condition, expiry) {
                    Frame::OK
                } else {
                    Frame::Null
                }
            }
            Self::Del(keys) => number(db.remove(&keys)),
            Self::Exists(keys) => number(db.count(&keys)),
            Self::Expire(key, None) => number(db.remove(&[key])),
            Self::Expire(key, deadline) => number(db.set_deadline(&key, deadline)),
            Self::TimeLeft(key, unit) => Frame::Integer(match db.time_left(&key) {
                TimeLeft::Missing => -2,
                TimeLeft::Unlimited => -1,
                // Round to the nearest unit.
                TimeLeft::Limited(left) => {
                    let left = (left.as_millis() + u128::from(unit / 2)) / u128::from(unit);
                    i64::try_from(left).unwrap_or(i64::MAX)
                }
            }),
            Self::Persist(key) => number(db.set_deadline(&key, None)),
            Self::Add(key, summand) => match db.add(&key, summand) {
                Ok(sum) => Frame::Integer(sum),
                Err(error) => CommandError::from(error).into(),
            },
            Self::Append(key, tail) => number(db.append(&key, &tail)),
            Self::Strlen(key) => number(db.get(&key).map_or(0, |value| value.len())),
            Self::Mget(keys) => {
                Frame::Array(keys.iter().map(|key| optional(db.get(key))).collect())
            }
            Self::Mset(pairs) => {
                db.set_all(&pairs);
                Frame::OK
            }
            Self::Type(key) => Frame::Simple(match db.get(&key) {
                Some(_) => "string".into(),
                None => "none".into(),
            }),
            Self::Dbsize => number(db.len()),
            Self::Flushall => {
                db.clear();
                Frame::OK
            }
            Self::Publish(channel, message) => number(db.publish(&channel, &message)),
            Self::Ping(_) | Self::Subscribe(_) | Self::Unsubscribe(_) | Self::Quit => {
                return Err(self);
            }
        })
    }
}

fn unknown(name: &[u8], arguments: &[Bytes]) -> CommandError {
    let mut listed = String::new();
    for argument in arguments {
        // A long list ends early.
        let Some(space @ 1..) = 128_usize.checked_sub(listed.len()) else {
            break;
        };
        listed += &format!("'{}' ", text(&argument[..argument.len().min(space)]));
    }
    CommandError::Unknown {
        name: text(name),
        arguments: listed,
    }
}

fn optional(value: Option<Bytes>) -> Frame {
    value.map_or(Frame::Null, Frame::Bulk)
}

/// Makes a number of a count or a truth value.
fn number(number: impl TryInto<i64>) -> Frame {
    Frame::Integer(number.try_into().unwrap_or(i64::MAX))
}
