//! Reads the answers of the scripts.

use redis::Value;

use crate::{
    remote::lost,
    row::{Get, Row},
    store::StoreError,
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

/// Parses an array of answers that are 1 or 0.
pub(super) fn flags(value: &Value) -> Result<Vec<bool>, StoreError> {
    let read = |value| Ok(number(value)? == 1);
    array(value)?.iter().map(read).collect()
}

/// A job, as the scripts return it. Lua's `true` arrives as 1, and `false` as nothing.
impl Row for [Value] {
    type Error = StoreError;
}

/// Reads values of a type from columns.
macro_rules! read {
    ($($type:ty: $read:expr,)*) => {
        $(impl Get<$type> for [Value] {
            fn at(&self, column: usize) -> Result<$type, StoreError> {
                $read(self.get(column).ok_or_else(unknown)?)
            }
        })*
    };
}

read! {
    String: text,
    Option<String>: |value| optional(value, text),
    Vec<u8>: |value| Ok(bytes(value)?.to_vec()),
    i64: number,
    bool: |value| Ok(optional(value, number)?.is_some()),
}

fn optional<A>(
    value: &Value,
    read: fn(&Value) -> Result<A, StoreError>,
) -> Result<Option<A>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        value => read(value).map(Some),
    }
}

/// Reads jobs of a kind.
pub(super) fn jobs<J>(
    value: &Value,
    job: fn(&[Value]) -> Result<J, StoreError>,
) -> Result<Vec<J>, StoreError> {
    let read = |value| job(array(value)?);
    array(value)?.iter().map(read).collect()
}
