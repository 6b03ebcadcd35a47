//! The parameters in the query of a URL, whose values are words and numbers.

use std::str::FromStr;

/// Returns the value of a parameter.
pub(crate) fn find<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns the value of a parameter, or says that it is missing.
pub(crate) fn text<'a>(query: &'a str, name: &str) -> Result<&'a str, String> {
    find(query, name).ok_or_else(|| format!("the query has no {name}\n"))
}

/// Returns the value of a parameter as a number, or says what is wrong.
pub(crate) fn number<T: FromStr>(query: &str, name: &str) -> Result<T, String> {
    let parsed = text(query, name)?.parse();
    parsed.map_err(|_| format!("{name} is not a number\n"))
}
