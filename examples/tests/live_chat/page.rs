//! The page of `live_chat` in Chromium.

use serde_json::{Value, json};

use super::{cable::Cable, end, start};
use crate::clients::browser::Browser;

/// Opens the page, and joins the chat.
fn join(browser: &mut Browser, url: &str, name: &str) {
    browser.open(url);
    // The script enables the form. The page has the focus before that.
    browser.eventually("!document.querySelector('#join button').disabled");
    browser.eventually("document.activeElement.id === 'name'");
    browser.call("Input.insertText", json!({ "text": name }));
    browser.press("Enter", "Enter", "\r");
    browser.eventually("document.querySelector('#status').innerText.trim() === 'connected'");
}

fn say(browser: &mut Browser, text: &str) {
    browser.eval("document.querySelector('#text').focus()");
    browser.call("Input.insertText", json!({ "text": text }));
    browser.press("Enter", "Enter", "\r");
}

/// Waits until the page lists these members.
#[track_caller]
fn expect_people(browser: &mut Browser, names: &[&str]) {
    let shown = "[...document.querySelectorAll('#people li')].map((line) => line.textContent)";
    browser.eventually(&format!("JSON.stringify({shown}) === '{}'", json!(names)));
}

/// Waits until one message is there, and checks its text and its class.
#[track_caller]
fn expect_said(browser: &mut Browser, text: &str, class: &str) {
    let all = "document.querySelectorAll('#log .said')";
    browser.eventually(&format!("{all}.length === 1"));
    let shown = browser.eval(&format!(
        "[{all}[0].className, {all}[0].childNodes[1].data]"
    ));
    assert_eq!(shown, json!([class, text]));
    assert_eq!(
        browser.eval("document.querySelector('#log img')"),
        Value::Null
    );
}

/// Lets two pages join, talk and leave. Then ends the server.
fn talk(args: &[&str], scheme: &str, transport: &str) {
    let server = start(args);
    let Some(mut browser) = Browser::start_with(&["--ignore-certificate-errors"]) else {
        return;
    };
    let url = format!("{scheme}://{}/", server.addr);
    let ann = browser.page();
    join(&mut browser, &url, "ann");
    expect_people(&mut browser, &["ann (you)"]);
    let bob = browser.open_page();
    join(&mut browser, &url, "bob");
    // The server tells which version of HTTP the browser used.
    assert_eq!(browser.text("#transport"), transport);
    browser.eventually("/^[0-9.]+ (µs|ms)$/.test(document.querySelector('#trip').innerText)");

    // What is said is text, not HTML.
    let text = "<img src=x onerror=alert(1)> & \"bye\"";
    say(&mut browser, text);
    expect_people(&mut browser, &["ann", "bob (you)"]);
    expect_said(&mut browser, text, "said mine");
    browser.select(&ann);
    expect_people(&mut browser, &["ann (you)", "bob"]);
    expect_said(&mut browser, text, "said");

    // On a phone, a word that is wider than the page is broken.
    say(&mut browser, &"w".repeat(300));
    browser.eventually("document.querySelectorAll('#log .said').length === 2");
    browser.resize(400, 800);
    browser.eventually("innerWidth === 400 && document.documentElement.scrollWidth <= 400");

    assert_eq!(browser.troubles(), Vec::<String>::new());
    browser.select(&bob);
    browser.close_page(&ann);
    expect_people(&mut browser, &["ann (you)"]);
    assert!(browser.text("#log").contains("bob is gone"));

    end(server);
    browser.eventually("document.querySelector('#notice').checkVisibility()");
    let notice = browser.text("#notice");
    assert!(
        notice.starts_with("Disconnected: the server has ended."),
        "{notice}"
    );
    assert_eq!(browser.text("#status"), "not connected");
    expect_people(&mut browser, &[]);
}

#[test]
fn two_pages_talk_over_http1() {
    talk(&[], "http", "HTTP/1.1");
}

#[test]
fn two_pages_talk_over_tls_and_http2() {
    talk(&["--tls"], "https", "HTTP/2.0, TLS");
}

#[test]
fn a_page_that_loses_its_network_is_removed_and_comes_back() {
    let server = start(&["--heartbeat", "100ms", "--idle", "3s"]);
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let ann = browser.page();
    join(&mut browser, &format!("http://{}/", server.addr), "ann");
    let cable = Cable::to(server.addr);
    let bob = browser.open_page();
    join(&mut browser, &format!("http://{}/", cable.addr), "bob");
    // On a busy machine, either page may be removed and come back at any time.
    let sees = |other| format!("document.querySelector('#people').innerText.includes('{other}')");
    browser.select(&ann);
    browser.eventually(&sees("bob"));

    cable.cut();
    browser.eventually(&format!("{} && !{}", sees("ann"), sees("bob")));
    browser.select(&bob);
    browser.eventually("document.querySelector('#notice').innerText.includes('no sign')");

    cable.mend();
    browser.eventually(&format!("{} && {}", sees("ann"), sees("bob")));
    assert_eq!(browser.text("#notice"), "");
    browser.select(&ann);
    browser.eventually(&sees("bob"));
    end(server);
}
