//! The format of the tool `pprof`: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::{
    collections::HashMap,
    hash::Hash,
    io::{self, Write},
    time::UNIX_EPOCH,
};

use flate2::{Compression, write::GzEncoder};
use prost::Message;
use tourbillon::metrics::Activity;
use tourbillon_stacks::Frame;

use crate::{
    options::Clock,
    profile::{Place, Profile, Row, Source},
};

/// The messages, with those fields that are written.
mod proto {
    #[derive(prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(super) time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(super) period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub(super) comment: Vec<i64>,
    }

    #[derive(Clone, Copy, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) kind: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) label: Vec<Label>,
    }

    #[derive(Clone, Copy, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) text: i64,
    }

    #[derive(Clone, Copy, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "5")]
        pub(super) filename: i64,
        #[prost(bool, tag = "7")]
        pub(super) has_functions: bool,
        #[prost(bool, tag = "8")]
        pub(super) has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub(super) has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub(super) has_inline_frames: bool,
    }

    #[derive(prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) line: Vec<Line>,
    }

    #[derive(Clone, Copy, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function_id: u64,
        #[prost(int64, tag = "2")]
        pub(super) line: i64,
    }

    #[derive(Clone, Copy, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "3")]
        pub(super) system_name: i64,
        #[prost(int64, tag = "4")]
        pub(super) filename: i64,
    }
}

/// The only mapping: all functions have names already, so no tool looks into the files.
const MAPPING: u64 = 1;

impl Profile {
    /// Returns the profile in the format of the tool `pprof`: a message of `profile.proto`, by gzip.
    ///
    /// Each sample has labels: `task` or `callback`, `spawned`, `label`, `span`, and `activity` if
    /// the worker ran no job. `go tool pprof -tagroot=task FILE` groups by task.
    pub fn pprof(&self) -> Vec<u8> {
        let message = Writer::default().profile(self);
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        // A vector takes all.
        let packed = packed
            .write_all(&message.encode_to_vec())
            .and_then(|()| packed.finish());
        io::Result::unwrap_or_default(packed)
    }
}

/// The tables of a profile, in which each value has a number.
#[derive(Default)]
struct Writer {
    strings: Table<String>,
    functions: Table<(i64, i64)>,
    places: Table<Place>,
}

/// Values in the order in which they were found.
struct Table<T> {
    numbers: HashMap<T, u64>,
    values: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// Returns the number of a value, counted from zero.
    fn number(&mut self, value: T) -> u64 {
        let next = self.values.len() as u64;
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            next
        })
    }
}

impl Writer {
    fn text(&mut self, text: &str) -> i64 {
        self.strings.number(text.to_owned()) as i64
    }

    fn profile(mut self, profile: &Profile) -> proto::Profile {
        // The first string is the empty one.
        self.text("");
        let period = profile.period().as_nanos() as i64;
        let time = match profile.clock() {
            Clock::Cpu => "cpu",
            Clock::Wall => "wall",
        };
        let time = self.value_type(time, "nanoseconds");
        let sample_type = vec![self.value_type("samples", "count"), time];
        let sample = (profile.rows.iter())
            .map(|row| self.sample(row, period))
            .collect();
        let places = self.places.values.clone();
        let location = (places.iter().zip(1..))
            .map(|(&place, id)| proto::Location {
                id,
                mapping_id: MAPPING,
                address: place.address,
                line: (profile.functions(place).iter())
                    .map(|frame| self.line(frame))
                    .collect(),
            })
            .collect();
        let function = (self.functions.values.iter().zip(1..))
            .map(|(&(name, filename), id)| proto::Function {
                id,
                name,
                system_name: name,
                filename,
            })
            .collect();
        let program = std::env::current_exe().unwrap_or_default();
        let mapping = proto::Mapping {
            id: MAPPING,
            filename: self.text(&program.to_string_lossy()),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        };
        let lost = profile.said_lost().map(|lost| self.text(&lost));
        let since = profile.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        proto::Profile {
            sample_type,
            sample,
            mapping: vec![mapping],
            location,
            function,
            string_table: self.strings.values,
            time_nanos: since.as_nanos() as i64,
            duration_nanos: profile.elapsed().as_nanos() as i64,
            period_type: Some(time),
            period,
            comment: lost.into_iter().collect(),
        }
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            kind: self.text(kind),
            unit: self.text(unit),
        }
    }

    fn sample(&mut self, row: &Row, period: i64) -> proto::Sample {
        let count = row.count as i64;
        // Innermost first, as here. The numbers of messages begin at one.
        let places = row.places.iter().filter(|place| place.functions > 0);
        proto::Sample {
            location_id: places.map(|&place| self.places.number(place) + 1).collect(),
            value: vec![count, count * period],
            label: self.labels(&row.source),
        }
    }

    fn labels(&mut self, source: &Source) -> Vec<proto::Label> {
        let mut labels = Vec::new();
        let mut label = |key: &str, text: &str| {
            labels.push(proto::Label {
                key: self.text(key),
                text: self.text(text),
            });
        };
        match source.job() {
            Some(job) => {
                match job.spawned {
                    Some(at) => {
                        label("task", job.name);
                        label("spawned", &at.to_string());
                    }
                    None => label("callback", job.name),
                }
                if let Some(text) = job.label {
                    label("label", text);
                }
            }
            None if source.activity == Activity::Parked => label("activity", "parked"),
            None => label("activity", "runtime"),
        }
        for span in source.spans.into_iter().flatten() {
            label("span", span);
        }
        labels
    }

    fn line(&mut self, frame: &Frame) -> proto::Line {
        let file = frame.file.as_ref().map(|file| file.to_string_lossy());
        let function = (
            self.text(&frame.function),
            self.text(file.as_deref().unwrap_or_default()),
        );
        proto::Line {
            function_id: self.functions.number(function) + 1,
            line: frame.line.unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::Options;

    #[test]
    fn a_comment_says_how_many_samples_are_missing() {
        for (lost, comments) in [(0, vec![]), (3, vec!["3 samples are missing"])] {
            let (options, at) = (Options::new(Duration::from_secs(1)), SystemTime::now());
            let profile = Profile::new(options, at, Duration::ZERO, HashMap::new(), lost);
            let message = Writer::default().profile(&profile);
            let text = |&comment: &i64| &*message.string_table[comment as usize];
            assert_eq!(
                message.comment.iter().map(text).collect::<Vec<_>>(),
                comments
            );
        }
    }
}
