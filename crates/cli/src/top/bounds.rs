//! What `top` takes from a server that it does not trust: text that only shows, and lists that end.

use std::{collections::HashMap, fmt, marker::PhantomData, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

use crate::say::shown;

/// The longest text, in characters. What is beyond is cut off.
const LONGEST: usize = 300;
/// The most counters of a worker, and the longest name of one. What is beyond is left out.
const COUNTERS: usize = 64;

/// Text, as a terminal can show it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Text(String);

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let end = text
            .char_indices()
            .nth(LONGEST)
            .map_or(text.len(), |(at, _)| at);
        Ok(Self(shown(&text[..end]).to_string()))
    }
}

/// A list of at most `MOST` elements. A longer one is refused.
#[derive(Clone, Debug)]
pub(super) struct AtMost<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Default for AtMost<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MOST: usize> Deref for AtMost<T, MOST> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
    type Value = AtMost<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            elements.push(element);
        }
        Ok(AtMost(elements))
    }
}

/// Counters by their names.
#[derive(Clone, Debug)]
pub(super) struct Counts(HashMap<String, u64>);

impl Counts {
    /// Returns the value of a counter.
    pub(super) fn get(&self, counter: &str) -> u64 {
        self.0.get(counter).copied().unwrap_or(0)
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Named)
    }
}

struct Named;

impl<'de> Visitor<'de> for Named {
    type Value = Counts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counters by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Counts, A::Error> {
        let mut counts = HashMap::new();
        while let Some((name, count)) = map.next_entry::<String, u64>()? {
            if counts.len() < COUNTERS && name.len() <= COUNTERS {
                counts.insert(name, count);
            }
        }
        Ok(Counts(counts))
    }
}

/// Returns the sum of counts, or the largest count if it is larger than that.
pub(super) fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}
