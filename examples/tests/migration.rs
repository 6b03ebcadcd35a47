//! The example `migration`: both versions hold the same conversation, and the page that shows their
//! difference is up to date.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
};

use crate::{
    clients::{Server, connect, example},
    path_of,
};

// The unit tests of both versions run here.
#[path = "../migration/after/chat.rs"]
mod after;
#[path = "../migration/before/chat.rs"]
mod before;

/// The files of each version.
const FILES: [&str; 2] = ["chat.rs", "main.rs"];

/// A client that expects lines.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> Self {
        Self(BufReader::new(connect(server)))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    #[track_caller]
    fn hears(&mut self, expected: &str) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end_matches('\n'), expected);
    }

    #[track_caller]
    fn hears_the_end(mut self) {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

/// Holds a conversation with a server, and ends it by a signal.
fn converse(program: &str, signal: i32) {
    let server = Server::run(example(program).arg("127.0.0.1:0"));
    let mut ann = Client::connect(&server);
    ann.hears("* welcome, guest-1");
    ann.say("/nick ann");
    ann.hears("* you are ann in lobby");
    let mut bob = Client::connect(&server);
    bob.hears("* welcome, guest-2");
    ann.hears("* guest-2 is here");

    // A name belongs to one client.
    bob.say("/nick ann");
    bob.hears("! ann is taken in lobby");
    bob.say("/nick bob");
    bob.hears("* you are bob in lobby");
    ann.hears("* bob is here");
    ann.hears("* guest-2 is gone");

    // A text reaches only the clients in its room.
    bob.say("hello");
    bob.hears("<bob> hello");
    ann.hears("<bob> hello");
    bob.say("/join quiet");
    bob.hears("* you are bob in quiet");
    ann.hears("* bob is gone");
    ann.say("alone");
    ann.hears("<ann> alone");
    ann.say("/who");
    ann.hears("* in lobby: ann");

    server.signal(signal);
    for mut client in [ann, bob] {
        client.hears("* the server ends");
        client.hears_the_end();
    }
    let (status, journal, errors) = server.end();
    assert!(status.success(), "{status}: {errors}");
    assert_eq!(journal, "lobby <bob> hello\nlobby <ann> alone\n");
    assert_eq!(errors, "");
}

#[test]
fn both_versions_hold_the_same_conversation() {
    for program in ["chat_tokio", "chat_tourbillon"] {
        converse(program, libc::SIGINT);
        converse(program, libc::SIGTERM);
    }
}

/// Returns a code block of the page `docs/guide/migrating.md`, the first in this language.
fn block(language: &str) -> String {
    let page = fs::read_to_string(path_of("docs/guide/migrating.md")).unwrap();
    // A block in a list is indented.
    let begin = format!("```{language}\n");
    let (_, rest) = page.split_once(&begin).expect("the page has such a block");
    let (block, _) = rest.split_once("```").expect("a block ends");
    block.trim_end().to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    // `diff` exits with 1 when the files differ.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_page_shows_the_difference_of_the_two_versions() {
    let mut differences = Vec::new();
    for file in FILES {
        let [before, after] = ["before", "after"].map(|version| format!("{version}/{file}"));
        let mut diff = Command::new("diff");
        diff.args(["-U0", "--label", &before, "--label", &after])
            .args([&before, &after])
            .current_dir(path_of("examples/migration"));
        let difference = run(&mut diff);
        differences.extend(
            difference
                .lines()
                .filter(|line| !line.starts_with("@@"))
                .map(str::to_owned),
        );
    }
    let differences = differences.join("\n");
    assert_eq!(
        block("diff"),
        differences,
        "the page should show:\n{differences}"
    );
}

/// Returns the lines of a source, with its imports in order: `cargo fmt` orders them by name.
fn with_ordered_imports(source: &str) -> Vec<&str> {
    let mut lines: Vec<_> = source.lines().collect();
    for imports in lines.chunk_by_mut(|a, b| a.starts_with("use ") && b.starts_with("use ")) {
        imports.sort_unstable();
    }
    lines
}

#[test]
fn the_sed_line_of_the_page_turns_one_version_into_the_other() {
    let block = block("sh");
    let line = block.lines().next().expect("a block has a line");
    let script = line.split('\'').nth(1).expect("a script in quotes");
    for file in FILES {
        let version = |version| path_of("examples/migration").join(version).join(file);
        let before: &Path = &version("before");
        let edited = run(Command::new("sed").args(["-E", script]).arg(before));
        let after = fs::read_to_string(version("after")).unwrap();
        assert_eq!(
            with_ordered_imports(&edited),
            with_ordered_imports(&after),
            "{file}"
        );
    }
}
