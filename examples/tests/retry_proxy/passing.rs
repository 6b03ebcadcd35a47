//! The example `retry_proxy`: what is passed on, and how connections end.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use socket2::SockRef;

use super::{MB, echo, end, is_reset, proxy, upstream};
use crate::clients::{AGES, connect, ping, with_patience};

/// Either the client or the upstream may close its direction first. The other direction stays
/// open.
#[test]
fn one_direction_can_end_while_the_other_continues() {
    // This upstream answers after it has read everything.
    let polite = upstream(|mut stream| {
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        text.reverse();
        stream.write_all(&text)
    });
    let proxy_before_polite = proxy(&[polite], &[]);
    let mut client = connect(&proxy_before_polite);
    client.write_all(b"abc").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "cba");
    let (counts, _) = end(proxy_before_polite, libc::SIGTERM);
    assert_eq!((counts.get("bytes up"), counts.get("bytes down")), (3, 3));
    assert_eq!(counts.get("closed"), 1);

    // This upstream closes its own direction first, and then reads everything.
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    let curt = upstream(|mut stream| {
        stream.write_all(b"bye")?;
        stream.shutdown(Shutdown::Write)?;
        HEARD.store(stream.read_to_end(&mut Vec::new())?, Relaxed);
        Ok(())
    });
    let proxy = proxy(&[curt], &[]);
    let mut client = connect(&proxy);
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye");
    client.write_all(&vec![7; 3 * MB]).unwrap();
    drop(client);
    let begin = Instant::now();
    while HEARD.load(Relaxed) != 3 * MB {
        assert!(begin.elapsed() < AGES, "{}", HEARD.load(Relaxed));
        thread::sleep(Duration::from_millis(1));
    }
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!(counts.get("closed"), 1);
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    // This upstream reads a byte, and resets the connection.
    let rude = upstream(|mut stream| {
        stream.read_exact(&mut [0; 1])?;
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))
    });
    let before_rude = proxy(&[rude], &[]);
    let mut client = connect(&before_rude);
    client.write_all(b"x").unwrap();
    let error = client.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let (counts, _) = end(before_rude, libc::SIGTERM);
    assert_eq!((counts.get("tries"), counts.get("reset")), (1, 1));

    // A reset by the client is passed on to the upstream.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = proxy(&[listener.local_addr().unwrap()], &[]);
    let client = connect(&proxy);
    let mut upstream = with_patience(listener.accept().unwrap().0);
    SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    let error = upstream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!(counts.get("reset"), 1);
}

#[test]
fn a_slow_reader_slows_the_sender_and_costs_no_memory() {
    // This upstream sends as fast as it can.
    let flood = upstream(|mut stream| {
        let block: Vec<_> = (0..64 * 1024).map(|byte| (byte % 251) as u8).collect();
        for _ in 0..24 * 16 {
            stream.write_all(&block)?;
        }
        Ok(())
    });
    let proxy = proxy(&[flood], &[]);
    let before = proxy.memory();
    let mut most = 0;
    let mut clients: Vec<_> = (0..4).map(|_| (connect(&proxy), 0)).collect();
    let mut buf = vec![0; 256 * 1024];
    while !clients.is_empty() {
        thread::sleep(Duration::from_millis(2));
        clients.retain_mut(|(client, got)| {
            let n = client.read(&mut buf).unwrap();
            let is_right =
                |(at, &byte): (usize, &u8)| byte == ((*got + at) % (64 * 1024) % 251) as u8;
            assert!(buf[..n].iter().enumerate().all(is_right), "spoilt at {got}");
            *got += n;
            n > 0 || {
                assert_eq!(*got, 24 * MB);
                false
            }
        });
        most = most.max(proxy.memory());
    }
    assert!(most < before + 16 * MB as u64, "{before} {most}");
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!(counts.get("closed"), 4);
}

#[test]
fn idle_connections_are_closed_and_none_early() {
    let idle = Duration::from_secs(1);
    let proxy = proxy(&[upstream(echo)], &["--idle", "1s"]);
    thread::scope(|scope| {
        for _ in 0..8 {
            // This client sends half a request, and no more.
            scope.spawn(|| {
                let since = Instant::now();
                let mut client = connect(&proxy);
                client.write_all(b"GET / HT").unwrap();
                let mut buf = [0; 64];
                loop {
                    match client.read(&mut buf) {
                        Ok(0) => break,
                        Ok(n) => assert!(b"GET / HT".starts_with(&buf[..n])),
                        Err(error) => {
                            assert!(is_reset(&error), "{error}");
                            break;
                        }
                    }
                }
                assert!(since.elapsed() >= idle);
            });
            // This client sends all that it can, and reads nothing. The echo that it does not
            // read stops it in the end.
            scope.spawn(|| {
                let begin = Instant::now();
                let mut client = connect(&proxy);
                let block = vec![1; MB];
                let error = loop {
                    if let Err(error) = client.write_all(&block) {
                        break error;
                    }
                };
                assert!(is_reset(&error), "{error}");
                assert!(begin.elapsed() >= idle);
            });
        }
    });
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!((counts.get("idle"), counts.get("connected")), (16, 16));
}

#[test]
fn a_signal_lets_open_connections_finish() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let proxy = proxy(&[upstream(echo)], &["--drain", "10m"]);
        let mut client = connect(&proxy);
        ping(&mut client).unwrap();
        proxy.signal(signal);
        // Once the proxy has heard the signal, it accepts no more clients.
        let begin = Instant::now();
        while TcpStream::connect(proxy.addr).is_ok() {
            assert!(begin.elapsed() < AGES, "still listening");
            thread::sleep(Duration::from_millis(5));
        }
        ping(&mut client).unwrap();
        drop(client);
        let (status, out, _) = proxy.end();
        assert_eq!(status.code(), Some(0));
        assert!(out.ends_with("cut off: 0\n"), "{out}");
    }
    // The proxy waits no longer than `--drain`.
    let proxy = proxy(&[upstream(echo)], &["--drain", "100ms"]);
    let mut client = connect(&proxy);
    ping(&mut client).unwrap();
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!(counts.get("cut off"), 1);
    // The client gets a reset, which differs from a regular end.
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert!(is_reset(&error), "{error}");
}

#[test]
fn connections_above_the_limit_wait() {
    let proxy = proxy(&[upstream(echo)], &["--max-connections", "1"]);
    let mut first = connect(&proxy);
    ping(&mut first).unwrap();
    let mut second = connect(&proxy);
    second.write_all(b"second").unwrap();
    second
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut reply = [0; 6];
    let waits = second.read_exact(&mut reply).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    ping(&mut first).unwrap();
    drop(first);
    second.set_read_timeout(Some(AGES)).unwrap();
    second.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"second");
}
