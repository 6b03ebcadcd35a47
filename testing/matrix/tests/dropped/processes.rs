//! Processes.

use std::{
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};
use tourbillon_support::dropped::in_each_way;

use crate::{leaves_nothing, nothing};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped());
    command
}

#[test]
fn processes() {
    leaves_nothing("processes::processes", async || {
        in_each_way(async |way| {
            let mut child = shell("read line; exit 3").spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let event = async || input.write_all(b"\n").await.unwrap();
            let status = way.run(child.wait(), event).await;
            let is_ready = status.is_some();
            let status = match status {
                Some(status) => status,
                None => child.wait().await,
            };
            assert_eq!(status.unwrap().code(), Some(3));
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let mut child = shell("read line").spawn().unwrap();
            let input = child.stdin.take();
            let killed = way.run(child.kill(), nothing).await;
            let is_ready = killed.map(Result::unwrap).is_some();
            if way.polls() {
                assert_eq!(child.wait().await.unwrap(), ExitStatus::from_raw(9));
            } else {
                assert!(child.try_wait().unwrap().is_none());
                drop(input);
                child.wait().await.unwrap();
            }
            is_ready
        })
        .await;
        for wait in 0..3 {
            in_each_way(async |way| {
                // It ends when its input does: the future has that.
                let mut command = shell("echo out; cat");
                command.kill_on_drop(wait == 2).stdout(Stdio::piped());
                match wait {
                    0 => {
                        let child = command.spawn().unwrap();
                        let output = way.run(child.wait_with_output(), nothing).await;
                        assert!(
                            output
                                .as_ref()
                                .is_none_or(|it| it.as_ref().unwrap().stdout == b"out\n")
                        );
                        output.is_some()
                    }
                    1 => {
                        command.stdin(Stdio::null());
                        way.run(command.output(), nothing)
                            .await
                            .map(Result::unwrap)
                            .is_some()
                    }
                    _ => {
                        command.stdin(Stdio::null());
                        way.run(command.status(), nothing)
                            .await
                            .map(Result::unwrap)
                            .is_some()
                    }
                }
            })
            .await;
        }
        in_each_way(async |way| {
            let mut child = shell("read line; echo $line")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let event = async || input.write_all(b"hello\n").await.unwrap();
            let mut line = Vec::new();
            let is_ready = way
                .run(output.fill_buf(), event)
                .await
                .map(Result::unwrap)
                .is_some();
            output.read_until(b'\n', &mut line).await.unwrap();
            assert_eq!(line, b"hello\n");
            child.wait().await.unwrap();
            is_ready
        })
        .await;
    });
}
