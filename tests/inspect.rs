//! The inspector: what it answers, and when it ends.

mod common;
mod web;

use common::{alarm, runtime};
use tourbillon::inspect::Inspector;
use web::Client;

#[test]
fn it_answers_and_ends() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = Inspector::builder(runtime.handle())
        .serve("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(inspector.local_addr());
    for path in ["/", "/app.js", "/style.css", "/snapshot.json"] {
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let reply = client.reply();
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }
    client.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_through("event: snapshot");
    inspector.shutdown();
    client.end();
}
