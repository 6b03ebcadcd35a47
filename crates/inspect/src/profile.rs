//! The answer to `/profile`: what the workers were sampled at, as a file.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Method, Response, StatusCode, Uri},
};
use tourbillon::task::spawn_blocking;
use tourbillon_profile::{Clock, Options, Profile, ProfileError};

use crate::{
    query,
    site::{NO_ROOM, Site, answer, attachment, busy, plain},
};

/// How long a profile is, if the query does not say, and at most, in seconds.
const SECONDS: u64 = 10;
const MOST: u64 = 300;
/// A header, and its value, that clients must send. A page of another site cannot make a browser
/// send it without permission. Over plain HTTP nothing else tells its request for an image from
/// one of the user.
const HEADER: (&str, &str) = ("x-tourbillon", "profile");

/// What a client asks for.
#[derive(Debug)]
struct Question {
    options: Options,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Folded,
    Pprof,
    Svg,
}

impl Question {
    fn parse(asked: &str) -> Result<Self, String> {
        let seconds = match query::find(asked, "seconds") {
            None => SECONDS,
            Some(_) => query::number(asked, "seconds")?,
        };
        if !(1..=MOST).contains(&seconds) {
            return Err(format!("seconds is not from 1 to {MOST}\n"));
        }
        let format = match query::find(asked, "format").unwrap_or("svg") {
            "folded" => Format::Folded,
            "pprof" => Format::Pprof,
            "svg" => Format::Svg,
            _ => return Err("format is none of folded, pprof and svg\n".to_owned()),
        };
        let clock = match query::find(asked, "clock").unwrap_or("cpu") {
            "cpu" => Clock::Cpu,
            "wall" => Clock::Wall,
            _ => return Err("clock is neither cpu nor wall\n".to_owned()),
        };
        let options = Options::new(Duration::from_secs(seconds)).clock(clock);
        Ok(Self { options, format })
    }
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::Folded => "text/plain; charset=utf-8",
            Self::Pprof => "application/gzip",
            Self::Svg => "image/svg+xml",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Pprof => "pb.gz",
            Self::Svg => "svg",
        }
    }

    fn write(self, profile: &Profile) -> Vec<u8> {
        match self {
            Self::Folded => profile.folded().into_bytes(),
            Self::Pprof => profile.pprof(),
            Self::Svg => profile.svg().into_bytes(),
        }
    }
}

/// Samples the workers while the client waits. If it leaves, the profile ends.
pub(crate) async fn profile(
    State(site): State<Arc<Site>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    if headers.get(HEADER.0).is_none_or(|value| value != HEADER.1) {
        let why = "a profile needs the header `X-Tourbillon: profile`, so that no page of another \
                   site takes one\n";
        return plain(StatusCode::FORBIDDEN, why);
    }
    let Question { options, format } = match Question::parse(uri.query().unwrap_or("")) {
        Ok(question) => question,
        Err(why) => return plain(StatusCode::BAD_REQUEST, why),
    };
    if method == Method::HEAD {
        return answer(StatusCode::OK, format.content_type(), Body::empty());
    }
    if site.outstanding.is_full() {
        return busy(NO_ROOM);
    }
    let profile = match tourbillon_profile::profile(&site.handle, options).await {
        Ok(profile) => profile,
        Err(ProfileError::Running) => return busy("another profile is being taken: try again\n"),
        Err(error) => return plain(StatusCode::NOT_IMPLEMENTED, format!("{error}\n")),
    };
    let Ok(file) = spawn_blocking(move || format.write(&profile)).await else {
        return busy("the inspector ends\n");
    };
    let file = site.outstanding.hold(file);
    let (process, extension) = (std::process::id(), format.extension());
    let name = format!("tourbillon-{process}-profile.{extension}");
    attachment(format.content_type(), file, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_says_what_is_wrong_with_it() {
        for (asked, why) in [
            ("seconds=0", "seconds is not from 1 to 300\n"),
            ("seconds=301", "seconds is not from 1 to 300\n"),
            ("seconds=long", "seconds is not a number\n"),
            ("format=png", "format is none of folded, pprof and svg\n"),
            ("clock=sun", "clock is neither cpu nor wall\n"),
        ] {
            assert_eq!(Question::parse(asked).unwrap_err(), why);
        }
        assert_eq!(Question::parse("").unwrap().format, Format::Svg);
        let asked = "seconds=2&format=pprof&clock=wall";
        assert_eq!(Question::parse(asked).unwrap().format, Format::Pprof);
    }
}
