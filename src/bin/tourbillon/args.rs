//! What arguments may be, and the runtime that they ask for.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    num::NonZeroUsize,
    time::Duration,
};

use clap::{Args, error::ErrorKind};
use rustix::process::{Resource, getrlimit, setrlimit};
use tourbillon::{Runtime, inspect::Inspector, runtime::Builder};

use crate::complain;

/// Options of the runtime, which all commands have.
#[derive(Clone, Debug, Args)]
pub(crate) struct RuntimeArgs {
    /// How many workers there are [default: one for each usable core].
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Where to serve a page on which the runtime is watched live; port 0 is one that the system chooses. Says on
    /// stderr which it is.
    #[arg(long, value_name = "HOST:PORT", value_parser = Addrs::parse)]
    inspect: Option<Addrs>,
}

impl RuntimeArgs {
    /// A runtime's options.
    pub(crate) fn builder(&self) -> Builder {
        match self.workers {
            Some(workers) => Builder::new().worker_threads(workers.get()),
            None => Builder::new(),
        }
    }

    /// Serves the live page of the runtime, if that was asked for, until the runtime ends.
    pub(crate) fn inspect(&self, runtime: &Runtime) -> Result<(), String> {
        let Some(addrs) = &self.inspect else {
            return Ok(());
        };
        raise_descriptor_limit();
        let inspector = Inspector::builder(runtime.handle())
            .serve(&*addrs.addrs)
            .map_err(|error| addrs.cannot_listen("--inspect", &error))?;
        complain(format_args!("inspect: http://{}/", inspector.local_addr()));
        Ok(())
    }
}

/// The addresses that a name and a port stand for.
#[derive(Clone, Debug)]
pub(crate) struct Addrs {
    name: String,
    pub(crate) addrs: Vec<SocketAddr>,
}

impl Addrs {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let addrs = text.to_socket_addrs().map_err(|error| {
            format!("{error}; an address and a port are wanted, such as 127.0.0.1:8080 or [::1]:0")
        })?;
        Ok(Self {
            name: text.to_owned(),
            addrs: addrs.collect(),
        })
    }

    /// Why nobody listens there, and what to do about it; `option` is the one that names it.
    pub(crate) fn cannot_listen(&self, option: &str, error: &io::Error) -> String {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "; another program listens there: choose another port with {option}, or port 0 for any"
            ),
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 are the administrator's".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "; it is no address of this machine".to_owned(),
            _ => String::new(),
        };
        format!("cannot listen on {}: {error}{hint}", self.name)
    }
}

/// A connection costs a descriptor: takes as many as the system lets us, of which it grants 1024
/// unasked, for the sake of programs that use `select`.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, the limit stays as it is; the acceptor tells if that is too few.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Ends the program as it ends for any other argument that cannot be.
pub(crate) fn usage_error(message: &str) -> ! {
    let message = format!("{message}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::ValueValidation, message).exit()
}

/// A duration, such as `100ms` or `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a number and a unit are wanted, such as 250ms or 1s"))
}

/// A duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than zero, 1ms for example".to_owned()),
        duration => Ok(duration),
    }
}

/// A count of at least 1, in which `k` stands for a thousand and `M` for a million.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1_u64),
    };
    let number: u64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| "a whole number is wanted, such as 20000, 20k or 1M".to_owned())?;
    match number.checked_mul(unit).map(u32::try_from) {
        Some(Ok(0)) => Err("there must be at least 1".to_owned()),
        Some(Ok(count)) => Ok(count),
        _ => Err(format!("there may be at most {}", u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_suffixes_and_bounds() {
        assert_eq!(count("20000"), Ok(20_000));
        assert_eq!(count("20_000"), Ok(20_000));
        assert_eq!(count("20k"), Ok(20_000));
        assert_eq!(count("10M"), Ok(10_000_000));
        for wrong in [
            "",
            "k",
            "0",
            "-1",
            "1.5M",
            "10G",
            "5000M",
            "99999999999999999999M",
        ] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(duration("100").is_err());
        assert!(positive_duration("0s").is_err());
    }
}
