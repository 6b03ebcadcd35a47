//! The page in Chromium.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tourbillon::{Runtime, net::TcpListener};
use tourbillon_jobs::{Failure, NewJob, Node, Queue, sqlite::Sqlite, store::Store};
use tourbillon_jobs_server as api;
use tourbillon_support::clients::browser::Browser;

use crate::support::{Dir, PATIENCE, live};

fn keys(browser: &mut Browser, expected: &[&str]) {
    let shown = "[...document.querySelectorAll('#jobs .key')].map((key) => key.textContent)";
    browser.eventually(&format!(
        "JSON.stringify({shown}) === '{}'",
        json!(expected)
    ));
}

/// Types into a field.
fn fill(browser: &mut Browser, field: &str, text: &str) {
    browser.eval(&format!("document.querySelector('{field}').select()"));
    browser.eval(&format!("document.querySelector('{field}').focus()"));
    browser.call("Input.insertText", json!({ "text": text }));
}

fn fits(browser: &mut Browser, width: u32) {
    browser.resize(width, 900);
    browser.eventually(&format!(
        "innerWidth === {width} && document.documentElement.scrollWidth <= {width}"
    ));
}

/// Saves a picture if the variable names a directory, to look at.
fn picture(browser: &mut Browser, name: &str) {
    if let Some(dir) = std::env::var_os("DURABLE_PICTURES") {
        let path = std::path::Path::new(&dir).join(name);
        std::fs::write(path, browser.picture()).unwrap();
    }
}

#[test]
fn jobs_are_listed_searched_and_cancelled() {
    let dir = Dir::new();
    let runtime = Runtime::new().unwrap();
    let (queue, addr): (Queue<Sqlite>, SocketAddr) = runtime.block_on(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = api::router(queue.clone());
        tourbillon::spawn(async move { tourbillon_axum::serve(listener, router).await });
        (queue, addr)
    });
    let node = runtime.block_on(async {
        let node = Node::builder(queue.clone())
            .start(|_| async { Err(Failure::give_up("<img src=x onerror=alert(1)>")) });
        queue
            .schedule("mail/welcome/17", Duration::ZERO, "ann@example.org")
            .await
            .unwrap();
        live(&queue, 0).await;
        let hour = Duration::from_secs(3600);
        queue
            .schedule_job(
                NewJob::new("mail/reminder/18", hour, "bob@example.org")
                    .kind("mail")
                    .priority(1),
            )
            .await
            .unwrap();
        queue
            .schedule("k".repeat(300), 30 * hour, "w".repeat(300))
            .await
            .unwrap();
        node
    });
    let Some(mut browser) = Browser::start() else {
        return;
    };
    browser.open(&format!("http://{addr}/"));
    let long = "k".repeat(300);
    keys(
        &mut browser,
        &[&long, "mail/reminder/18", "mail/welcome/17"],
    );
    assert_eq!(browser.text("#counts"), "2 live, 1 dead");
    let kinds = "[...document.querySelectorAll('.when')].map((when) => /kind .*/.exec(when.textContent)?.[0] ?? '').join()";
    assert_eq!(browser.eval(kinds), json!(",kind mail; priority 1,"));
    // An error is text, not HTML.
    let error = browser.eval("document.querySelector('.error').textContent");
    assert_eq!(error, json!("<img src=x onerror=alert(1)>"));
    assert_eq!(
        browser.eval("document.querySelector('#jobs img')"),
        Value::Null
    );
    fits(&mut browser, 1400);
    picture(&mut browser, "1400.png");
    fits(&mut browser, 400);
    picture(&mut browser, "400.png");

    // Schedule with a form.
    fill(&mut browser, "#key", "from the page");
    fill(&mut browser, "#time", "2h");
    browser.press("Enter", "Enter", "\r");
    keys(
        &mut browser,
        &[
            "from the page",
            &long,
            "mail/reminder/18",
            "mail/welcome/17",
        ],
    );
    let made = runtime.block_on(queue.get("from the page")).unwrap();
    assert_eq!(made.unwrap().priority, 4);
    // A key that is taken is an error.
    fill(&mut browser, "#key", "from the page");
    browser.press("Enter", "Enter", "\r");
    browser.eventually("document.querySelector('#notice').textContent.includes('already')");

    // Search and filter.
    fill(&mut browser, "#search", "mail/");
    keys(&mut browser, &["mail/reminder/18", "mail/welcome/17"]);
    browser.eval(
        "document.querySelector('#state').value = 'dead';
         document.querySelector('#state').dispatchEvent(new Event('change'))",
    );
    keys(&mut browser, &["mail/welcome/17"]);

    // Pause a queue, and let it go on.
    fill(&mut browser, "#queue", "a/b c");
    browser.press("Enter", "Enter", "\r");
    let shown = "document.querySelector('#paused').textContent";
    browser.eventually(&format!("{shown} === 'a/b c is paused: resume'"));
    let paused = || runtime.block_on(queue.paused()).unwrap();
    assert_eq!(paused(), ["a/b c"]);
    fits(&mut browser, 400);
    browser.click("#paused button");
    browser.eventually(&format!("{shown} === ''"));
    assert!(paused().is_empty());

    // Cancel.
    browser.click(r#"#jobs [aria-label="Cancel mail/welcome/17"]"#);
    keys(&mut browser, &[]);
    browser.eventually("!document.querySelector('#empty').hidden");
    assert_eq!(runtime.block_on(queue.count()).unwrap().dead, 0);
    assert_eq!(browser.troubles(), Vec::<String>::new());
    assert!(runtime.block_on(node.stop(PATIENCE)));
}

/// Clicks, and waits until this is the text of an element.
fn click(browser: &mut Browser, button: &str, element: &str, text: &str) {
    browser.click(button);
    browser.eventually(&format!(
        "document.querySelector('{element}').textContent === {}",
        json!(text)
    ));
}

#[test]
fn dead_jobs_of_a_search_are_retried_and_discarded() {
    let dir = Dir::new();
    let runtime = Runtime::new().unwrap();
    let (queue, addr) = runtime.block_on(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = api::router(queue.clone());
        tourbillon::spawn(async move { tourbillon_axum::serve(listener, router).await });
        let node = Node::builder(queue.clone()).start(|_| async { Err(Failure::give_up("bad")) });
        let new = |n: u32| NewJob::new(format!("mail/{n:04}"), Duration::ZERO, "");
        let mut jobs: Vec<_> = (0..1200).map(new).collect();
        jobs.push(NewJob::new("report", Duration::ZERO, ""));
        queue.store().schedule(jobs).await.unwrap();
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
        (queue, addr)
    });
    let count = || runtime.block_on(queue.count()).unwrap();
    let Some(mut browser) = Browser::start() else {
        return;
    };
    browser.open(&format!("http://{addr}/"));
    browser.eventually("document.querySelector('#counts').textContent === '0 live, 1,201 dead'");
    // The buttons are there while dead jobs are listed.
    let hidden = "document.querySelector('#bulk').hidden";
    assert_eq!(browser.eval(hidden), json!(true));
    browser.eval(
        "document.querySelector('#state').value = 'dead';
         document.querySelector('#state').dispatchEvent(new Event('change'))",
    );
    browser.eventually(&format!("!{hidden}"));
    // Nothing is done before the answer.
    let all = "Retry 1,201 dead jobs? They are due at once, with all their attempts.";
    click(&mut browser, "#retry", "#question", all);
    fits(&mut browser, 400);
    picture(&mut browser, "retry.png");
    browser.click("#keep");
    browser.eventually("document.querySelector('#sure').hidden");
    assert_eq!(count().dead, 1201);
    fill(&mut browser, "#search", "report");
    keys(&mut browser, &["report"]);
    let one = "Discard 1 dead job, whose keys contain “report”? They are gone then.";
    click(&mut browser, "#discard", "#question", one);
    let gone = "Discarded 1 of 1 dead job.";
    click(&mut browser, "#go", "#progress", gone);
    assert_eq!((count().live, count().dead), (0, 1200));
    // More than a list has, in several calls.
    fill(&mut browser, "#search", "mail/");
    browser.eventually("document.querySelectorAll('#jobs .key').length === 50");
    let many = "Retry at least 1,000 dead jobs, whose keys contain “mail/”? \
                They are due at once, with all their attempts.";
    click(&mut browser, "#retry", "#question", many);
    let done = "Retried 1,200 dead jobs.";
    click(&mut browser, "#go", "#progress", done);
    assert_eq!((count().live, count().dead), (1200, 0));
    fits(&mut browser, 400);
    keys(&mut browser, &[]);
    browser.eventually("document.querySelector('#counts').textContent === '1,200 live, 0 dead'");
    assert_eq!(browser.troubles(), Vec::<String>::new());
}
