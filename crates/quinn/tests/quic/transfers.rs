//! Data arrives whole, over many streams, connections and sockets.

use std::{net::UdpSocket, sync::Arc};

use futures_lite::future::block_on;
use quinn::{Endpoint, EndpointConfig};
use tourbillon::time::timeout;
use tourbillon_quinn::TourbillonRuntime;
use tourbillon_support::{
    HOUR, PATIENCE, alarm,
    freed::{any_port_of_its_own, until_ok},
    net::{ANY_PORT, pattern},
    runtime,
};

use crate::{Configs, connect, echoed, endpoint, serve_echo};

#[test]
fn a_large_transfer_arrives_whole() {
    /// More than the windows and the socket buffers hold.
    const LEN: usize = 32 << 20;
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(PATIENCE);
    let (sent, segments) = runtime.block_on(async {
        let (server, addr) = serve_echo(configs.server);
        let (client, connection) = connect(configs.client, addr).await;
        let data = pattern(LEN, 3);
        let back = timeout(PATIENCE, echoed(&connection, data.clone())).await;
        assert!(back.unwrap() == data);
        let sent = connection.stats().udp_tx;
        connection.close(0_u32.into(), b"done");
        for endpoint in [client, server] {
            timeout(PATIENCE, endpoint.wait_idle()).await.unwrap();
        }
        let socket = UdpSocket::bind(ANY_PORT).unwrap();
        let state = quinn::udp::UdpSocketState::new((&socket).into()).unwrap();
        (sent, state.max_gso_segments())
    });
    // If the system supports it, one call sends several packets.
    if segments > 1 {
        assert!(sent.ios < sent.datagrams, "{sent:?}");
    }
}

#[test]
fn many_streams_share_a_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(PATIENCE);
    runtime.block_on(async {
        let (_server, addr) = serve_echo(configs.server);
        let (_client, connection) = connect(configs.client, addr).await;
        let streams = (0..500).map(|number| {
            let connection = connection.clone();
            tourbillon::spawn(async move {
                let data = pattern(number * 20, number as u8);
                assert!(echoed(&connection, data.clone()).await == data);
            })
        });
        for stream in streams.collect::<Vec<_>>() {
            timeout(PATIENCE, stream).await.unwrap().unwrap();
        }
    });
}

#[test]
fn many_connections_share_an_endpoint() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(PATIENCE);
    runtime.block_on(async {
        let (server, addr) = serve_echo(configs.server);
        // All connections of this endpoint wait for the room of one socket.
        let client = endpoint(None);
        let connections = (0..50).map(|number| {
            let connecting = client.connect_with(configs.client.clone(), addr, "localhost");
            let connecting = connecting.unwrap();
            tourbillon::spawn(async move {
                let connection = connecting.await.unwrap();
                let data = pattern(300_000, number);
                assert!(echoed(&connection, data.clone()).await == data);
            })
        });
        for connection in connections.collect::<Vec<_>>() {
            timeout(PATIENCE, connection).await.unwrap().unwrap();
        }
        assert!(server.stats().accepted_handshakes >= 50);
    });
}

#[test]
fn a_connection_moves_to_another_socket() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(PATIENCE);
    runtime.block_on(async {
        let (_server, addr) = serve_echo(configs.server);
        let (client, connection) = connect(configs.client, addr).await;
        let before = client.local_addr().unwrap();
        client.rebind(UdpSocket::bind(ANY_PORT).unwrap()).unwrap();
        assert_ne!(client.local_addr().unwrap(), before);
        let back = timeout(PATIENCE, echoed(&connection, b"moved".to_vec()));
        assert_eq!(back.await.unwrap(), b"moved");
    });
}

#[test]
fn an_icmp_error_does_not_end_an_endpoint() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let configs = Configs::new(HOUR);
    runtime.block_on(async {
        // No socket is bound to the address of the peer, which a connected socket is told of.
        let peer = UdpSocket::bind(any_port_of_its_own()).unwrap();
        let addr = peer.local_addr().unwrap();
        drop(peer);
        let socket = UdpSocket::bind(ANY_PORT).unwrap();
        socket.connect(addr).unwrap();
        let socket_runtime = Arc::new(TourbillonRuntime::new());
        let client = Endpoint::new(EndpointConfig::default(), None, socket, socket_runtime);
        let client = client.unwrap();
        let connecting = client.connect_with(configs.client, addr, "localhost");
        let connecting = connecting.unwrap();
        // The server starts late, at this address.
        tourbillon::time::sleep(std::time::Duration::from_millis(20)).await;
        let socket = until_ok(async || UdpSocket::bind(addr)).await;
        let socket_runtime = Arc::new(TourbillonRuntime::new());
        let config = EndpointConfig::default();
        let server = Endpoint::new(config, Some(configs.server), socket, socket_runtime).unwrap();
        let accepted = tourbillon::spawn(async move { server.accept().await.unwrap().await });
        timeout(PATIENCE, connecting).await.unwrap().unwrap();
        timeout(PATIENCE, accepted).await.unwrap().unwrap().unwrap();
    });
}

#[test]
fn outside_of_a_runtime_an_endpoint_is_an_error() {
    let socket = UdpSocket::bind(ANY_PORT).unwrap();
    let runtime = Arc::new(TourbillonRuntime::new());
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime);
    let error = endpoint.unwrap_err();
    assert!(
        error.to_string().contains("in no Tourbillon runtime"),
        "{error}"
    );
    // quinn itself finds no runtime of tokio's.
    let error = block_on(async { Endpoint::client(([127, 0, 0, 1], 0).into()) });
    assert_eq!(error.unwrap_err().to_string(), "no async runtime found");
}
