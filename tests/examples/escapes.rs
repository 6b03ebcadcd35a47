//! Text that clients have chosen cannot make the terminal of an example do something.

use std::io::{BufRead, BufReader, Write};

use crate::clients::{
    Server, connect, example,
    output::{HOSTILE, is_tame},
};

#[test]
fn a_chat_prints_its_journal_tame() {
    // A line of a client ends where the text has a line feed.
    let text = HOSTILE.replace('\n', "");
    for program in ["chat_tokio", "chat_tourbillon"] {
        let server = Server::run(example(program).arg("127.0.0.1:0"));
        let mut stream = connect(&server);
        writeln!(stream, "{text}").unwrap();
        let lines = BufReader::new(stream).lines();
        // The text came to its room, and so to the journal.
        let mut said = lines.map(|line| line.unwrap());
        assert!(said.any(|line| line.contains("owned")));
        server.signal(libc::SIGTERM);
        let (status, out, err) = server.end();
        assert!(status.success(), "{err}");
        is_tame(out.as_bytes());
        assert!(out.contains("\\u{1b}]0;owned\\u{7}\\u{9b}31m"), "{out}");
    }
}
