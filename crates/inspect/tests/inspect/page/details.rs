//! What the page shows of single timers and tasks.

use std::{thread, time::Duration};

use tourbillon::time::sleep;

use super::{
    check_clean,
    load::{Watched, cause_a_stall},
    open,
};
use crate::{clients::browser::Browser, common::Gate};

const MS: Duration = Duration::from_millis(1);

/// A job whose name has characters that a browser would take for an element.
async fn sleeper<T>(_: T) {
    sleep(MS).await;
}

/// Keeps both workers busy while a sleep comes due, again and again until the gate opens.
fn make_late(watched: &Watched, over: &Gate) {
    while !over.is_open() {
        let blocks = || watched.runtime.spawn(async { thread::sleep(30 * MS) });
        let tasks = (
            watched.runtime.spawn(sleeper(String::new())),
            blocks(),
            blocks(),
        );
        watched.runtime.block_on(async {
            tasks.0.await.unwrap();
            tasks.1.await.unwrap();
            tasks.2.await.unwrap();
        });
    }
}

/// Clicks the strips of the heat map where the latest timers are, until the panel shows a sleep.
const CHOOSE: &str = "(() => {
  const shows = () => /sleeper/.test(document.getElementById('cell-rows').textContent);
  if (shows()) return true;
  for (const strip of document.querySelectorAll('#strips .row:not([hidden]) canvas')) {
    const box = strip.getBoundingClientRect();
    for (let y = 2; y < box.height / 2; y += 3) {
      for (let x = box.width - 12; x > box.width - 200; x -= 5) {
        strip.dispatchEvent(new MouseEvent('click', { clientX: box.left + x, clientY: box.top + y }));
        const title = document.getElementById('cell-title').textContent;
        if (!document.getElementById('cell').hidden && !/: 0 timers/.test(title)) return title;
      }
    }
  }
  return false;
})()";

#[test]
fn a_click_on_a_cell_shows_its_slowest_timers_with_their_causes() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    let over = Gate::new();
    thread::scope(|scope| {
        scope.spawn(|| make_late(&watched, &over));
        crate::common::eventually("the panel shows the sleep", || {
            let chosen = browser.eval(CHOOSE);
            thread::sleep(Duration::from_secs(1));
            chosen == true
        });
        over.open();
    });
    let row = browser.text("#cell-rows tr");
    assert!(
        row.contains("details::sleeper<alloc::string::String>"),
        "{row}"
    );
    assert!(
        row.contains("details.rs:") && row.contains("behind "),
        "{row}"
    );
    let title = browser.text("#cell-title");
    assert!(title.contains("wake-late by "), "{title}");
    // The frame moves with its cell until the panel is closed.
    assert!(browser.eval(FRAMED).as_bool().unwrap());
    browser.press("Escape", "Escape", "");
    browser.eventually("document.getElementById('cell').hidden");
    browser.eventually(&format!("!{FRAMED}"));
    with_the_keyboard(&mut browser);
    check_clean(&mut browser, &watched);
}

/// An expression: whether a strip has a pixel of the colour of the chosen cell's frame.
const FRAMED: &str = "[...document.querySelectorAll('#strips canvas')].some((canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    if (data[i] > 240 && data[i + 1] > 130 && data[i + 1] < 180 && data[i + 2] < 120) return true;
  }
  return false;
})";

/// Checks that Enter chooses the cell at the cursor. At the top of the strip there are no timers.
fn with_the_keyboard(browser: &mut Browser) {
    browser.eval("document.querySelector('#strips canvas').focus({ preventScroll: true })");
    browser.press("ArrowLeft", "ArrowLeft", "");
    for _ in 0..40 {
        browser.press("ArrowUp", "ArrowUp", "");
    }
    browser.press("Enter", "Enter", "\r");
    browser.eventually("document.getElementById('cell').checkVisibility()");
    browser.eventually(
        "document.getElementById('cell-note').textContent === 'No timer was so late then.'",
    );
    browser.click("#cell-close");
    browser.eventually("document.getElementById('cell').hidden");
}

#[test]
fn tasks_are_listed_and_sorted() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    browser
        .eventually("document.getElementById('more-tasks').textContent === 'There are no tasks.'");
    let over = Gate::new();
    let works = over.clone();
    let idle: Vec<_> = (0..25)
        .map(|_| watched.runtime.spawn(std::future::pending::<()>()))
        .collect();
    let busy = watched.runtime.spawn(async move {
        while !works.is_open() {
            thread::sleep(MS);
            sleep(MS).await;
        }
    });
    browser.eval("document.getElementById('tasks').scrollIntoView({ behavior: 'instant' })");
    browser.eventually("document.getElementById('task-rows').rows.length === 20");
    let first = format!(
        "document.querySelector('#task-rows th').textContent === '{}'",
        busy.id()
    );
    browser.eventually(&first);
    browser.eventually(
        "/^[0-9.]+ m?s$/.test(document.querySelectorAll('#task-rows td')[1].textContent)",
    );
    let row = browser.text("#task-rows tr");
    assert!(
        row.contains("details::tasks_are_listed_and_sorted"),
        "{row}"
    );
    assert!(row.contains("details.rs:"), "{row}");
    browser.eventually("document.getElementById('more-tasks').textContent === 'And 6 more.'");
    // With this order the oldest task is first. The busy task was spawned last.
    browser.click("[data-order=\"age\"]");
    browser.eventually(
        "document.querySelector('#task-table [aria-sort=\"descending\"]').textContent === 'age'",
    );
    browser.click("[data-order=\"polls\"]");
    browser.eventually(&first);
    over.open();
    watched.runtime.block_on(busy).unwrap();
    idle.iter().for_each(|task| task.abort());
    browser
        .eventually("document.getElementById('more-tasks').textContent === 'There are no tasks.'");
    check_clean(&mut browser, &watched);
}

#[test]
fn the_trace_button_downloads_a_trace() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    // Fetch what a click would download.
    let trace = browser.eval(
        "fetch(document.getElementById('download').href).then((answer) => answer.json()).then((trace) => trace.tourbillon.workers)",
    );
    assert_eq!(trace, 2);
    let has_name = browser.eval("document.getElementById('download').hasAttribute('download')");
    assert_eq!(has_name, true);
    // A stall makes the recorder keep one.
    browser.eventually("document.getElementById('kept').hidden");
    cause_a_stall(&watched.runtime);
    browser.eventually("/trace.json[?]kept=[0-9]+$/.test(document.querySelector('#kept a').href)");
    let late = browser.eval(
        "fetch(document.querySelector('#kept a').href).then((answer) => answer.json()).then((trace) => trace.tourbillon.workers)",
    );
    assert_eq!(late, 2);
    check_clean(&mut browser, &watched);
}

#[cfg(feature = "profile")]
#[test]
fn the_profile_button_samples_and_says_so() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    let says =
        |text: &str| format!("/{text}/.test(document.getElementById('profile').textContent)");
    // Another test may take a profile at the moment.
    browser.eval("document.getElementById('profile').setAttribute('href', 'profile?seconds=1')");
    browser.eval(
        "globalThis.stored = null; URL.createObjectURL = (blob) => { stored = blob; return '#'; }; 0",
    );
    browser.eventually(&format!(
        "document.getElementById('profile').click() || {} || stored",
        says("^Sampling")
    ));
    browser.eventually(&format!(
        "stored ? {} : (document.getElementById('profile').click(), false)",
        says("^Profile")
    ));
    let picture = browser.eval("stored.text()");
    assert!(picture.as_str().unwrap().contains("</svg>"), "{picture}");
}
