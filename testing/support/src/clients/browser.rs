//! Chromium, driven by its DevTools protocol: JSON messages through a pipe, each with a zero byte
//! at its end.
//!
//! The browser ends when the other end of the pipe is closed, even if the test is killed.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    clients::{AGES, have},
    dir::Dir,
    eventually,
};

/// One browser at a time: each is some ten processes.
static ONE: Mutex<()> = Mutex::new(());

/// A browser process, which ends when this is dropped. Its methods act on the selected page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// The events of all pages.
    events: VecDeque<Value>,
    page: Page,
    calls: u64,
    profile: Dir,
    /// Held until the browser has ended.
    _alone: MutexGuard<'static, ()>,
}

/// A page, in a window of its own.
#[derive(Clone, Default)]
pub struct Page {
    target: String,
    /// Empty in messages to the browser itself.
    session: String,
}

impl Browser {
    /// Starts a browser with one page of 1440 × 900 pixels and a dark colour scheme. Returns
    /// `None` if Chromium is not installed; the test should then be skipped.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a browser as [`start`](Self::start) does, with more arguments.
    pub fn start_with(args: &[&str]) -> Option<Self> {
        if !have("chromium") {
            return None;
        }
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = Dir::new();
        let says = fs::File::create(profile.path("says")).unwrap();
        // The browser reads commands from descriptor 3 and answers on 4: our pipes to its stdin and
        // stdout.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 </dev/null >&2",
                "chromium",
            ])
            .args(["--headless=new", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path("").display()))
            // Root cannot use Chromium's sandbox. Without background networking, all requests are
            // those of the page.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--no-proxy-server", "--hide-scrollbars"])
            .args(["--disable-background-networking", "--disable-breakpad"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(says)
            .process_group(0)
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let (sender, from) = mpsc::channel();
        thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let _ = sender.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let mut browser = Self {
            child,
            to,
            from,
            events: VecDeque::new(),
            page: Page::default(),
            calls: 0,
            profile,
            _alone: alone,
        };
        browser.open_page();
        Some(browser)
    }

    /// Opens a page, which is selected then.
    pub fn open_page(&mut self) -> Page {
        self.select(&Page::default());
        let created = self.call(
            "Target.createTarget",
            json!({ "url": "about:blank", "newWindow": true }),
        );
        let target = created["targetId"].as_str().unwrap().to_owned();
        let attached = self.call(
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        );
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        self.select(&Page { target, session });
        for domain in ["Runtime", "Log", "Network", "Page"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.resize(1440, 900);
        self.prefer("dark");
        self.page.clone()
    }

    /// Returns the selected page.
    pub fn page(&self) -> Page {
        self.page.clone()
    }

    /// Selects a page.
    pub fn select(&mut self, page: &Page) {
        self.page.clone_from(page);
    }

    /// Closes the selected page, and selects another.
    pub fn close_page(&mut self, next: &Page) {
        let closed = std::mem::take(&mut self.page);
        self.call("Target.closeTarget", json!({ "targetId": closed.target }));
        self.select(next);
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if !self.page.session.is_empty() {
            message["sessionId"] = json!(self.page.session);
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes());
        sent.unwrap_or_else(|error| self.fail(&format!("{method}: {error}")));
        loop {
            let message = self.from.recv_timeout(AGES);
            let mut message =
                message.unwrap_or_else(|error| self.fail(&format!("{method}: {error}")));
            if message["id"] != self.calls {
                self.events.push_back(message);
                continue;
            }
            assert_eq!(message["error"], Value::Null, "{method}");
            return message["result"].take();
        }
    }

    fn fail(&self, what: &str) -> ! {
        let said = fs::read_to_string(self.profile.path("says"));
        panic!("{what}\nThe browser said: {}", said.unwrap_or_default());
    }

    /// Goes to a page.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Sets the size of the window.
    pub fn resize(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 }),
        );
    }

    /// Sets the colour scheme of the system: `dark` or `light`.
    pub fn prefer(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
    }

    /// Returns the value of an expression. Waits for the value if it is a promise.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let mut answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        let thrown = &answer["exceptionDetails"];
        assert_eq!(*thrown, Value::Null, "{expression}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn eventually(&mut self, expression: &str) {
        let start = Instant::now();
        loop {
            // The elements in the expression may not exist yet.
            let guarded = format!(
                "(() => {{ try {{ return {expression}; }} catch (error) {{ return String(error); }} }})()"
            );
            let value = self.eval(&guarded);
            if value == true {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "never came true: {expression}, but {value}; the page shows:\n{}",
                self.eval("document.body.innerText")
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the text of an element. Waits until the element exists: the page says that it is
    /// live before it has drawn everything.
    #[track_caller]
    pub fn text(&mut self, selector: &str) -> String {
        self.eventually(&format!("document.querySelector('{selector}') !== null"));
        let value = self.eval(&format!("document.querySelector('{selector}').innerText"));
        value.as_str().unwrap().trim().to_owned()
    }

    /// Clicks on the element that `selector` finds, wherever it is on the page.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        self.eval(&format!("document.querySelector('{selector}').click()"));
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: &str, code: &str, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Moves the mouse.
    pub fn point(&mut self, x: f64, y: f64) {
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": "mouseMoved", "x": x, "y": y }),
        );
    }

    /// Returns the content of the window, as a PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// Returns all events with these names since the browser was started.
    pub fn events(&mut self, methods: &[&str]) -> Vec<&Value> {
        while let Ok(event) = self.from.try_recv() {
            self.events.push_back(event);
        }
        let events = self.events.iter();
        events
            .filter(|event| methods.iter().any(|method| event["method"] == *method))
            .map(|event| &event["params"])
            .collect()
    }

    /// Returns the addresses of all requests that the page has sent.
    pub fn requests(&mut self) -> Vec<String> {
        let sent = self.events(&["Network.requestWillBeSent", "Network.webSocketCreated"]);
        let urls = sent
            .iter()
            .map(|event| event["request"]["url"].as_str().or(event["url"].as_str()));
        urls.map(|url| url.unwrap().to_owned()).collect()
    }

    /// Returns the address and the status of each answer that the page has received.
    pub fn answers(&mut self) -> Vec<(String, u64)> {
        let came = self.events(&["Network.responseReceived"]);
        let answers = came.iter().map(|event| &event["response"]);
        answers
            .map(|answer| {
                let url = answer["url"].as_str().unwrap().to_owned();
                (url, answer["status"].as_u64().unwrap())
            })
            .collect()
    }

    /// Returns all problems of the page: exceptions, messages on the console, failed requests.
    pub fn troubles(&mut self) -> Vec<String> {
        let all = self.events(&[
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Network.loadingFailed",
        ]);
        // A request that the page cancelled did not fail: on a busy machine a stream was silent for
        // too long.
        let failed = all.iter().filter(|event| event["canceled"] != true);
        let mut troubles: Vec<_> = failed.map(ToString::to_string).collect();
        let refused = self
            .answers()
            .into_iter()
            .filter(|(_, status)| *status >= 400);
        troubles.extend(refused.map(|(url, status)| format!("{url}: {status}")));
        troubles
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Kill all processes of the browser. They may have ended already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        if !thread::panicking() {
            // The browser's child processes end a little later than it does, and may write until
            // then.
            let profile = self.profile.path("");
            eventually("the profile is removed", || {
                let _ = fs::remove_dir_all(&profile);
                !profile.exists()
            });
        }
    }
}
