//! Frames of HTTP/2, made and read by hand.

use std::{io::Read, net::TcpStream};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

/// The setting of how much may be sent on a stream before the client allows more.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a client's first bytes: the preface, with these numbered settings.
pub fn beginning(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, value) in settings {
        payload.extend(number.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &payload));
    bytes
}

/// Encodes a complete `GET` request.
pub fn http2_get(stream: u32, path: &str) -> Vec<u8> {
    head(0x82, stream, path, END_STREAM)
}

/// Encodes the head of a `POST`, whose body follows.
pub fn http2_post(stream: u32, path: &str) -> Vec<u8> {
    head(0x83, stream, path, 0)
}

/// Encodes the head of a `CONNECT`, whose stream stays open.
pub fn http2_connect(stream: u32) -> Vec<u8> {
    // The method and an authority, literally.
    frame(HEADERS, END_HEADERS, stream, b"\x02\x07CONNECT\x01\x04test")
}

fn head(method: u8, stream: u32, path: &str, flags: u8) -> Vec<u8> {
    // The method, http; then a path and an authority, literally.
    let mut head = vec![method, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    head.extend_from_slice(path.as_bytes());
    head.extend(b"\x01\x04test");
    frame(HEADERS, flags | END_HEADERS, stream, &head)
}

/// Reads the next frame that is not a settings frame. Returns its kind, its stream and its
/// payload.
pub fn next_frame(stream: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).unwrap();
        let id = u32::from_be_bytes(head[5..].try_into().unwrap());
        if head[3] != SETTINGS {
            return (head[3], id, payload);
        }
    }
}
