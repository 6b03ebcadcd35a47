//! A page of another site, open in the same browser, which tries all ways that pages have to read
//! the inspector.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// A site with an empty page, which runs the test's script.
pub struct OtherSite {
    pub addr: SocketAddr,
}

impl OtherSite {
    /// It lives as long as the test's process.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                // Each connection has a thread of its own: browsers open connections in advance,
                // and never use some of them.
                thread::spawn(move || answer(stream));
            }
        });
        Self { addr }
    }
}

fn answer(mut stream: TcpStream) {
    // Only the end of a request's head matters.
    let lines = BufReader::new(&stream).lines().map_while(Result::ok);
    if lines.take_while(|line| !line.is_empty()).count() == 0 {
        return;
    }
    let page = "<!doctype html><title>other</title><body>";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
    let length = page.len();
    let answer = format!("{head}Content-Length: {length}\r\n\r\n{page}");
    // A client that no longer wants the answer has gone.
    let _ = stream.write_all(answer.as_bytes());
}

/// Returns an expression that tries all the ways. Its promise resolves to what each of them
/// brought: `null` means nothing.
pub fn ways_to_read(origin: &str) -> String {
    format!("{WAYS}('{origin}')")
}

const WAYS: &str = r#"(async (site) => {
  const element = (tag, attributes) => new Promise((done) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.onload = () => done(tag + ' loaded');
    made.onerror = () => done(null);
    document.body.append(made);
  });
  const asked = (path, options) => fetch(site + path, options)
    .then(async (answer) => answer.type === 'opaque' ? (await answer.text()) || null : answer.status + ' ' + await answer.text())
    .catch(() => null);
  const events = new Promise((done) => {
    const source = new EventSource(site + '/events');
    source.addEventListener('snapshot', (event) => { source.close(); done(event.data); });
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) done(null); };
  });
  const socket = new Promise((done) => {
    const opened = new WebSocket(site.replace('http', 'ws') + '/events');
    opened.onopen = () => done('opened');
    opened.onerror = () => done(null);
  });
  const framed = new Promise((done) => {
    const frame = document.createElement('iframe');
    frame.onload = () => {
      try {
        done(frame.contentDocument?.body.innerText || null);
      } catch {
        done(null);
      }
    };
    frame.src = site + '/';
    document.body.append(frame);
  });
  return {
    fetched: await asked('/snapshot.json'),
    with_credentials: await asked('/snapshot.json', { credentials: 'include' }),
    opaque: await asked('/snapshot.json', { mode: 'no-cors' }),
    asked_before: await asked('/snapshot.json', { headers: { 'x-any': '1' } }),
    posted: await asked('/snapshot.json', { method: 'POST', mode: 'no-cors', body: 'x' }),
    metrics: await asked('/metrics'),
    events: await events,
    socket: await socket,
    script: await element('script', { src: site + '/app.js' }),
    module: await element('script', { src: site + '/format.js', type: 'module' }),
    data_as_script: await element('script', { src: site + '/snapshot.json' }),
    style: await element('link', { rel: 'stylesheet', href: site + '/style.css' }),
    image: await element('img', { src: site + '/snapshot.json' }),
    framed: await framed,
  };
})"#;
