//! Profiles that clients of the page ask for.

use std::{hint::black_box, net::SocketAddr, thread};

use tourbillon::{Runtime, task};

use crate::{
    client::{inspect, request},
    common::{alarm, eventually, runtime},
    web::{Client, Reply},
};

/// A runtime whose worker is busy in a function of this module.
pub(super) fn busy() -> Runtime {
    let runtime = runtime(1);
    drop(runtime.spawn(async {
        loop {
            black_box(turns_round(10_000));
            task::yield_now().await;
        }
    }));
    runtime
}

#[inline(never)]
fn turns_round(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum, n| black_box(sum ^ n).wrapping_mul(31))
}

fn begin(addr: SocketAddr, path: &str) -> Client {
    let mut client = Client::connect(addr);
    let headers = ["X-Tourbillon: profile", "Connection: close"];
    client.send(&request("GET", path, &headers));
    client
}

fn get(addr: SocketAddr, path: &str) -> Reply {
    begin(addr, path).reply()
}

#[test]
fn a_profile_is_a_file_in_the_form_that_was_asked_for() {
    let _alarm = alarm();
    let runtime = busy();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    for (query, content_type, file) in [
        ("&format=folded", "text/plain; charset=utf-8", ".folded\""),
        ("&clock=wall", "image/svg+xml", ".svg\""),
    ] {
        let mut reply = None;
        // A thread may have no processor for a second.
        eventually("there are samples", || {
            let got = get(addr, &format!("/profile?seconds=1{query}"));
            let found = got.status == 200 && got.body.contains("turns_round");
            reply = Some(got);
            found
        });
        let reply = reply.unwrap();
        assert_eq!(reply.header("content-type"), Some(content_type));
        let name = reply.header("content-disposition").unwrap();
        assert!(name.ends_with(file), "{name}");
        assert!(reply.body.contains("profile::busy"), "{}", reply.body);
    }
    for (asked, why) in [
        ("seconds=0", "seconds is not from 1 to 300\n"),
        ("format=png", "format is none of folded, pprof and svg\n"),
    ] {
        let reply = get(addr, &format!("/profile?{asked}"));
        assert_eq!((reply.status, &*reply.body), (400, why));
    }
}

#[test]
fn of_two_profiles_one_is_taken() {
    let _alarm = alarm();
    let runtime = busy();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    // Tests beside this one take profiles, too.
    let first = thread::spawn(move || {
        eventually("there is a turn", || {
            get(addr, "/profile?seconds=3").status == 200
        });
    });
    eventually("another one is refused", || {
        let reply = get(addr, "/profile?seconds=1");
        reply.status == 503 && reply.body.contains("another profile is being taken")
    });
    first.join().unwrap();
    // The profile of a client that leaves ends early.
    let mut leaves = None;
    eventually("a long one has begun", || {
        leaves = Some(begin(addr, "/profile?seconds=300"));
        get(addr, "/profile?seconds=1").status == 503
    });
    drop(leaves);
    eventually("there is a turn again", || {
        get(addr, "/profile?seconds=1").status == 200
    });
}

#[test]
fn other_sites_take_no_profile() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    for (line, why) in [
        ("Origin: http://example.com", "another page"),
        ("Sec-Fetch-Site: cross-site", "another page"),
        // As for an image, by plain HTTP from an address that is not of this machine.
        ("Accept: image/*", "needs the header"),
        ("X-Tourbillon: other", "needs the header"),
    ] {
        let mut client = Client::connect(inspector.local_addr());
        client.send(&request(
            "GET",
            "/profile?seconds=300",
            &[line, "Connection: close"],
        ));
        let reply = client.reply();
        assert_eq!(reply.status, 403, "{line}");
        assert!(reply.body.contains(why), "{}", reply.body);
    }
    let mut client = Client::connect(inspector.local_addr());
    client.send("GET /profile?seconds=300 HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(client.reply().status, 421);
}
