//! Reads the answers of the scripts.

use redis::Value;

use crate::{
    job::{Job, Repeat, State, Time, Token},
    recount::Counted,
    remote::lost,
    store::{Held, StoreError},
};

pub(super) fn unknown() -> StoreError {
    lost("the server's answer has another form than the script's")
}

pub(super) fn number(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(unknown()),
    }
}

pub(super) fn array(value: &Value) -> Result<&[Value], StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(unknown()),
    }
}

/// Parses an array of exactly `N` numbers.
pub(super) fn numbers<const N: usize>(value: &Value) -> Result<[i64; N], StoreError> {
    let numbers: Result<Vec<i64>, _> = array(value)?.iter().map(number).collect();
    numbers?.try_into().map_err(|_| unknown())
}

pub(super) fn bytes(value: &Value) -> Result<&[u8], StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(unknown()),
    }
}

pub(super) fn text(value: &Value) -> Result<String, StoreError> {
    String::from_utf8(bytes(value)?.to_vec()).map_err(|_| unknown())
}

fn repeat(pattern: &Value, zone: &Value) -> Result<Option<Repeat>, StoreError> {
    let pattern = text(pattern)?;
    Ok(match pattern.is_empty() {
        true => None,
        false => Some(Repeat::stored(pattern, text(zone)?)),
    })
}

/// A job in the form that the scripts return.
struct Shown<'a> {
    held: Held,
    /// The payload, or its length.
    payload: &'a Value,
    error: Option<String>,
    state: State,
}

impl<'a> Shown<'a> {
    fn parse(value: &'a Value) -> Result<Self, StoreError> {
        let [
            key,
            payload,
            due,
            at,
            attempts,
            pattern,
            zone,
            error,
            is_dead,
            is_running,
            token,
        ] = array(value)?
        else {
            return Err(unknown());
        };
        Ok(Self {
            held: Held {
                key: text(key)?,
                due: Time::from_micros(number(due)?),
                at: Time::from_micros(number(at)?),
                attempts: u32::try_from(number(attempts)?).unwrap_or(0),
                repeat: repeat(pattern, zone)?,
                size: 0,
                token: Token(number(token)?),
            },
            payload,
            error: array(error)?.first().map(text).transpose()?,
            state: match (number(is_dead)?, number(is_running)?) {
                (1, _) => State::Dead,
                (_, 1) => State::Running,
                _ => State::Waiting,
            },
        })
    }
}

pub(super) fn held(value: &Value) -> Result<Held, StoreError> {
    let Shown { held, payload, .. } = Shown::parse(value)?;
    let size = usize::try_from(number(payload)?).unwrap_or(0);
    Ok(Held { size, ..held })
}

fn job(value: &Value) -> Result<Job, StoreError> {
    let Shown {
        held,
        payload,
        error,
        state,
    } = Shown::parse(value)?;
    Ok(Job {
        key: held.key,
        payload: bytes(payload)?.to_vec(),
        due: held.due,
        at: held.at,
        attempts: held.attempts,
        repeat: held.repeat,
        error,
        state,
    })
}

pub(super) fn jobs(value: &Value) -> Result<Vec<Job>, StoreError> {
    array(value)?.iter().map(job).collect()
}

/// Reads a job whose time was counted.
pub(super) fn counted(value: &Value) -> Result<Counted, StoreError> {
    let [key, at, counted, attempts, pattern, zone] = array(value)? else {
        return Err(unknown());
    };
    Ok(Counted {
        key: text(key)?,
        at: Time::from_micros(number(at)?),
        counted: Time::from_micros(number(counted)?),
        attempts: u32::try_from(number(attempts)?).unwrap_or(0),
        repeat: repeat(pattern, zone)?,
    })
}
