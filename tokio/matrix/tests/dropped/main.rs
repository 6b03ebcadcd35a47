//! Futures of the facade's own types that are dropped between polls, at each poll. The table is in
//! docs/reference/cancel-safety.md.

#[path = "../../../tests/common/dropped.rs"]
mod way;

use std::{
    cell::Cell,
    env,
    io::{ErrorKind, SeekFrom, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{self, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    fs::{self, File, OpenOptions},
    io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, Interest},
    net::{TcpListener, TcpStream, UdpSocket, unix::pipe},
    process::Command,
    runtime::{Builder, LocalRuntime},
    signal::unix::{SignalKind, signal},
    sync::{Mutex, mpsc},
    task::{coop, spawn_local, yield_now},
    time::{sleep, timeout},
};
use way::in_each_way;

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is removed when this is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("tourbillon-dropped-{name}-{}", process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How many bytes of input a test has.
const INPUT: usize = 10_000;

/// Runs `cases` in a process of its own, and checks that they leave no descriptor and no child.
fn leaves_nothing(test: &str, cases: impl AsyncFnOnce()) {
    const ALONE: &str = "TOURBILLON_TEST_ALONE";
    if env::var_os(ALONE).is_none() {
        let mut alone = process::Command::new(env::current_exe().unwrap());
        alone.args(["--exact", test]).env(ALONE, "1");
        let mut alone = alone.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = alone.stdin.take().unwrap();
        // A test that reads no input leaves it in the pipe, or has closed the pipe.
        let _ = input.write_all(&[b'x'; INPUT]);
        drop(input);
        assert!(alone.wait().unwrap().success(), "`{test}` fails alone");
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    // What a runtime opens once.
    runtime.block_on(async { drop(signal(SignalKind::user_defined2())) });
    let before = descriptors();
    runtime.block_on(cases());
    runtime.block_on(async {
        let is_clean = || {
            let children =
                std::fs::read_to_string(format!("/proc/self/task/{0}/children", process::id()));
            let has_none = children.map_or(true, |children| children.trim().is_empty());
            has_none && descriptors() == before && runtime.metrics().num_alive_tasks() == 0
        };
        let waiting = async {
            while !is_clean() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("nothing stays");
    });
}

async fn nothing() {}

#[test]
fn files() {
    leaves_nothing("files", async || {
        let dir = Dir::new("files");
        let path = dir.path("file");
        let open = async || {
            std::fs::write(&path, "0123456789").unwrap();
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(&path).await.unwrap()
        };
        // What was read and not taken comes with the next read.
        in_each_way(async |way| {
            let mut file = open().await;
            let mut buf = [0; 4];
            let read = way.run(file.read(&mut buf), nothing).await;
            let is_ready = read.is_some();
            let n = read.map_or(0, Result::unwrap);
            let mut text = String::from_utf8(buf[..n].to_vec()).unwrap();
            file.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "0123456789");
            is_ready
        })
        .await;
        // A write takes bytes or does not.
        in_each_way(async |way| {
            let mut file = open().await;
            // The first write runs while the second one waits.
            file.write_all(b"abc").await.unwrap();
            let written = way.run(file.write(b"de"), nothing).await;
            let is_ready = written.is_some();
            let n = written.map_or(0, Result::unwrap);
            file.flush().await.unwrap();
            let expected: &[u8] = if n == 2 { b"abcde56789" } else { b"abc3456789" };
            assert_eq!(std::fs::read(&path).unwrap(), expected);
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let mut file = open().await;
            file.write_all(b"abc").await.unwrap();
            let is_ready = way.run(file.flush(), nothing).await.is_some();
            file.flush().await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"abc3456789");
            is_ready
        })
        .await;
        // A seek that has begun is made.
        in_each_way(async |way| {
            let mut file = open().await;
            let sought = way.run(file.seek(SeekFrom::Start(7)), nothing).await;
            let is_ready = sought.is_some();
            assert_eq!(sought.map_or(7, Result::unwrap), 7);
            let position = file.stream_position().await.unwrap();
            assert_eq!(position, if way.polls() { 7 } else { 0 });
            is_ready
        })
        .await;
        // So is a change, before what comes next.
        in_each_way(async |way| {
            let mut file = open().await;
            let cut = way.run(file.set_len(3), nothing).await;
            let is_ready = cut.map(Result::unwrap).is_some();
            let mut text = String::new();
            file.read_to_string(&mut text).await.unwrap();
            let is_cut = text == "012";
            assert!(is_cut || text == "0123456789");
            // The first poll finds no lock and no operation before it.
            assert_eq!(is_cut, way.polls());
            is_ready
        })
        .await;
        for operation in 0..4 {
            in_each_way(async |way| {
                let file = open().await;
                let is_ready = match operation {
                    0 => way.run(file.sync_all(), nothing).await.is_some(),
                    1 => way.run(file.sync_data(), nothing).await.is_some(),
                    2 => way.run(file.metadata(), nothing).await.is_some(),
                    _ => way.run(file.try_clone(), nothing).await.is_some(),
                };
                assert_eq!(file.metadata().await.unwrap().len(), 10);
                file.into_std().await;
                is_ready
            })
            .await;
        }
        in_each_way(async |way| {
            let mut file = open().await;
            file.write_all(b"abc").await.unwrap();
            way.run(file.into_std(), nothing).await.is_some()
        })
        .await;
    });
}

#[test]
fn paths() {
    leaves_nothing("paths", async || {
        let dir = Dir::new("paths");
        let path = dir.path("file");
        in_each_way(async |way| {
            let opened = way.run(File::create(&path), nothing).await;
            opened.map(Result::unwrap).is_some()
        })
        .await;
        in_each_way(async |way| {
            std::fs::write(&path, "old").unwrap();
            let written = way.run(fs::write(&path, "new"), nothing).await;
            let is_ready = written.map(Result::unwrap).is_some();
            let expected = if way.polls() { "new" } else { "old" };
            // What has begun runs on.
            let waiting = async {
                while std::fs::read_to_string(&path).unwrap() != expected {
                    yield_now().await;
                }
            };
            timeout(PATIENCE, waiting).await.unwrap();
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let read = way.run(fs::read_to_string(&path), nothing).await;
            assert!(
                read.as_ref()
                    .is_none_or(|read| read.as_ref().unwrap() == "new")
            );
            read.is_some()
        })
        .await;
        for number in 0..40 {
            std::fs::write(dir.path(&number.to_string()), "").unwrap();
        }
        in_each_way(async |way| {
            let listed = way.run(fs::read_dir(&dir.0), nothing).await;
            listed.map(Result::unwrap).is_some()
        })
        .await;
        // More entries than a thread reads at a time.
        in_each_way(async |way| {
            let mut entries = fs::read_dir(&dir.0).await.unwrap();
            let mut count = 0;
            let mut is_ready = true;
            loop {
                let entry = match way.run(entries.next_entry(), nothing).await {
                    Some(entry) => entry,
                    None => {
                        is_ready = false;
                        entries.next_entry().await
                    }
                };
                let Some(entry) = entry.unwrap() else { break };
                let file_type = way.run(entry.file_type(), nothing).await;
                assert!(file_type.is_none_or(|it| it.unwrap().is_file()));
                count += 1;
            }
            assert_eq!(count, 41);
            is_ready
        })
        .await;
    });
}

#[test]
fn standard_streams() {
    leaves_nothing("standard_streams", async || {
        let (stdin, count) = (Mutex::new(tokio::io::stdin()), Cell::new(0));
        in_each_way(async |way| {
            let (mut buf, mut stdin) = ([0; 8], stdin.lock().await);
            let read = way.run(stdin.read(&mut buf), nothing).await;
            let is_ready = read.is_some();
            count.set(count.get() + read.map_or(0, Result::unwrap));
            is_ready
        })
        .await;
        let mut rest = Vec::new();
        stdin.lock().await.read_to_end(&mut rest).await.unwrap();
        assert_eq!(count.get() + rest.len(), INPUT);
        in_each_way(async |way| {
            let mut stdout = tokio::io::stdout();
            let written = way.run(stdout.write(b"\n"), nothing).await;
            let is_written = written.map(Result::unwrap).is_some();
            let flushed = way.run(stdout.flush(), nothing).await;
            stdout.flush().await.unwrap();
            is_written && flushed.map(Result::unwrap).is_some()
        })
        .await;
    });
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped());
    command
}

#[test]
fn processes() {
    leaves_nothing("processes", async || {
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

#[test]
fn pipes() {
    leaves_nothing("pipes", async || {
        for wait in 0..3 {
            in_each_way(async |way| {
                let (mut sender, mut receiver) = pipe::pipe().unwrap();
                let event = async || sender.write_all(b"abc").await.unwrap();
                let mut buf = [0; 8];
                let is_ready = match wait {
                    0 => way.run(receiver.read(&mut buf), event).await.is_some(),
                    1 => way.run(receiver.readable(), event).await.is_some(),
                    _ => way
                        .run(receiver.ready(Interest::READABLE), event)
                        .await
                        .is_some(),
                };
                if wait == 0 && is_ready {
                    assert_eq!(&buf[..3], b"abc");
                } else {
                    assert_eq!(receiver.read(&mut buf).await.unwrap(), 3);
                }
                drop(sender);
                assert_eq!(receiver.read(&mut buf).await.unwrap(), 0);
                is_ready
            })
            .await;
            in_each_way(async |way| {
                let (mut sender, mut receiver) = pipe::pipe().unwrap();
                let mut written = 0;
                while let Ok(n) = sender.try_write(&[0; 4096]) {
                    written += n;
                }
                let mut read = 0;
                let event = async || {
                    let mut room = vec![0; 65536];
                    while read < written {
                        read += receiver.read(&mut room).await.unwrap();
                    }
                };
                let (is_ready, more) = match wait {
                    0 => match way.run(sender.write(b"abc"), event).await {
                        Some(written) => (true, written.unwrap()),
                        None => (false, 0),
                    },
                    1 => (way.run(sender.writable(), event).await.is_some(), 0),
                    _ => (
                        way.run(sender.ready(Interest::WRITABLE), event)
                            .await
                            .is_some(),
                        0,
                    ),
                };
                drop(sender);
                let mut rest = Vec::new();
                receiver.read_to_end(&mut rest).await.unwrap();
                assert_eq!(read + rest.len(), written + more);
                is_ready
            })
            .await;
        }
    });
}

#[test]
fn sockets() {
    leaves_nothing("sockets", async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        in_each_way(async |way| {
            let mut client = None;
            let event = async || client = Some(std::net::TcpStream::connect(addr).unwrap());
            let accepted = way.run(listener.accept(), event).await;
            let is_ready = accepted.is_some();
            let accepted = match accepted {
                Some(accepted) => accepted,
                None => listener.accept().await,
            };
            let client = client.unwrap().local_addr().unwrap();
            assert_eq!(accepted.unwrap().1, client);
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let mut client = TcpStream::connect(addr).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let mut buf = [0; 8];
            let event = async || client.write_all(b"abc").await.unwrap();
            let read = way.run(server.read(&mut buf), event).await;
            let is_ready = read.is_some();
            let n = match read {
                Some(read) => read,
                None => server.read(&mut buf).await,
            };
            assert_eq!(&buf[..n.unwrap()], b"abc");
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let connected = way.run(TcpStream::connect(addr), nothing).await;
            let is_ready = connected.is_some();
            let accept = timeout(Duration::from_millis(2), listener.accept()).await;
            drop(connected);
            if let Ok(accepted) = accept {
                let mut end = accepted.unwrap().0;
                assert!(matches!(end.read(&mut [0; 8]).await, Ok(0) | Err(_)));
            }
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let addr = socket.local_addr().unwrap();
            let event = async || _ = socket.send_to(b"abc", addr).await.unwrap();
            let mut buf = [0; 8];
            let received = way.run(socket.recv_from(&mut buf), event).await;
            if received.is_none() {
                assert_eq!(socket.recv_from(&mut buf).await.unwrap().0, 3);
            }
            let nothing = socket.try_recv(&mut buf).unwrap_err();
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
            received.is_some()
        })
        .await;
    });
}

#[test]
fn channels() {
    leaves_nothing("channels", async || {
        for wait in 0..5 {
            in_each_way(async |way| {
                let (sender, mut receiver) = mpsc::channel(1);
                sender.send(1).await.unwrap();
                let other = sender.clone();
                let event = async || assert_eq!(receiver.recv().await, Some(1));
                let is_ready = match wait {
                    0 => way
                        .run(sender.send(2), event)
                        .await
                        .map(Result::unwrap)
                        .is_some(),
                    1 => {
                        let sent = way.run(sender.send_timeout(2, PATIENCE), event).await;
                        sent.map(Result::unwrap).is_some()
                    }
                    2 => {
                        let permit = way.run(sender.reserve(), event).await;
                        permit.map(|permit| permit.unwrap().send(2)).is_some()
                    }
                    3 => {
                        let permits = way.run(sender.reserve_many(1), event).await;
                        let send = |permit: mpsc::Permit<'_, i32>| permit.send(2);
                        permits
                            .map(|permits| permits.unwrap().for_each(send))
                            .is_some()
                    }
                    _ => {
                        let permit = way.run(other.clone().reserve_owned(), event).await;
                        permit.map(|permit| drop(permit.unwrap().send(2))).is_some()
                    }
                };
                // Without a value there is room, and with one there is none.
                assert_eq!(other.try_send(3).is_ok(), !is_ready);
                let expected = if is_ready { 2 } else { 3 };
                assert_eq!(receiver.recv().await, Some(expected));
                is_ready
            })
            .await;
        }
        in_each_way(async |way| {
            let (sender, receiver) = mpsc::channel::<()>(1);
            let is_ready = way
                .run(sender.closed(), async || drop(receiver))
                .await
                .is_some();
            sender.closed().await;
            is_ready
        })
        .await;
    });
}

#[test]
fn signals_and_tasks() {
    leaves_nothing("signals_and_tasks", async || {
        in_each_way(async |way| {
            let mut signals = signal(SignalKind::user_defined1()).unwrap();
            let event = async || kill_process(getpid(), Signal::USR1).unwrap();
            let received = way.run(signals.recv(), event).await;
            if received.is_none() {
                signals.recv().await.unwrap();
            }
            received.is_some()
        })
        .await;
        in_each_way(async |way| {
            while coop::has_budget_remaining() {
                coop::consume_budget().await;
            }
            way.run(coop::consume_budget(), nothing).await.is_some()
        })
        .await;
    });
}

#[test]
fn a_local_runtime_keeps_its_tasks_when_what_awaits_them_is_dropped() {
    let runtime = LocalRuntime::new().unwrap();
    runtime.block_on(in_each_way(async |way| {
        let mut task = spawn_local(async {
            yield_now().await;
            7
        });
        let ended = way.run(&mut task, nothing).await;
        let is_ready = ended.is_some();
        let output = match ended {
            Some(output) => output,
            None => task.await,
        };
        assert_eq!(output.unwrap(), 7);
        is_ready
    }));
}

/// The directory of this test, which is one of its own.
#[test]
fn a_directory_that_is_made_is_whole() {
    let dir = Dir::new("made");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(in_each_way(async |way| {
        let path = dir.path("one/two/three");
        let _ = std::fs::remove_dir_all(dir.path("one"));
        let made = way.run(fs::create_dir_all(&path), nothing).await;
        let is_ready = made.map(Result::unwrap).is_some();
        let waiting = async {
            while way.polls() && !Path::exists(&path) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("it is made");
        is_ready
    }));
}
