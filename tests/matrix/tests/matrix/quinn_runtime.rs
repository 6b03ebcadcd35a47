use std::{io, net::UdpSocket, sync::Arc};

use quinn::{Endpoint, EndpointConfig, ServerConfig};
use tourbillon::quinn::TourbillonRuntime;
use tourbillon_matrix::Case;

use crate::quinn::{ANY_PORT, exchange};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("quinn", "with `TourbillonRuntime`: likewise", |_| {
            exchange(by_ours)
        })
        .because("with the feature `quinn`"),
    ]
}

/// Creates an endpoint of our runtime.
fn by_ours(server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind(ANY_PORT)?;
    let runtime = Arc::new(TourbillonRuntime::new());
    Endpoint::new(EndpointConfig::default(), server, socket, runtime)
}
