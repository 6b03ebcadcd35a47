//! What the connections of a server share: its options, its protocols, and the list of them.

use std::sync::atomic::{AtomicBool, Ordering};

use hyper::server::conn::http1;
use hyper_util::server::conn::auto;
use tourbillon_hyper::{
    TourbillonTimer,
    server::{Connections, default_max_connections},
};

use crate::{accept_error::AcceptError, options::Options, streams::Streams};

/// The protocol implementation.
pub(crate) enum Http {
    /// Any version: the client chooses.
    Any(auto::Builder<Streams>),
    /// HTTP/1 only. (`auto::Builder::http1_only` has no effect if connections may be upgraded.)
    One(http1::Builder),
}

impl Http {
    fn new(options: &Options) -> Self {
        let timer = match options.timeout_tolerance {
            Some(tolerance) => TourbillonTimer::new().tolerance(tolerance),
            None => TourbillonTimer::new(),
        };
        // The connection's own timer limits the heads and everything before them.
        if options.http1_only {
            let mut http = http1::Builder::new();
            http.timer(timer)
                .header_read_timeout(None)
                .max_buf_size(options.max_buf_size)
                .half_close(options.half_close);
            return Self::One(http);
        }
        let mut http = auto::Builder::new(Streams);
        http.http1()
            .timer(timer)
            .header_read_timeout(None)
            .max_buf_size(options.max_buf_size)
            .half_close(options.half_close);
        http.http2()
            .timer(timer)
            // Needed for websockets over HTTP/2.
            .enable_connect_protocol();
        Self::Any(http)
    }
}

/// The state that the connections of a server share.
pub(crate) struct Server {
    pub(crate) connections: Connections,
    pub(crate) http: Http,
    pub(crate) options: Options,
    pub(crate) max_connections: usize,
    cut: AtomicBool,
}

impl Server {
    pub(crate) fn new(options: Options) -> Self {
        let http = Http::new(&options);
        let max_connections = options.max_connections;
        Self {
            connections: Connections::default(),
            http,
            options,
            // The limit of descriptors is that of the moment at which the server starts.
            max_connections: max_connections.unwrap_or_else(default_max_connections),
            cut: AtomicBool::new(false),
        }
    }

    /// Ends all connections, whatever they do.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        // Wake the connections again: they check the flag set above.
        self.connections.close();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(crate) fn report_accept_error(&self, error: &AcceptError) {
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "tourbillon_axum",
            error = %error.io_error(),
            open = error.open_connections(),
            "cannot accept connections"
        );
        if let Some(hook) = &self.options.on_accept_error {
            hook(error);
        }
    }
}
