use std::{env, fs, process};

use futures::{StreamExt, channel::mpsc};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tourbillon_matrix::Case;

pub fn cases() -> Vec<Case> {
    vec![Case::new("notify", "a new file in a directory", |_| {
        exchange()
    })]
}

async fn exchange() {
    let dir = env::temp_dir().join(format!("tourbillon-matrix-notify-{}", process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (sender, mut events) = mpsc::unbounded();
    let mut watcher = RecommendedWatcher::new(
        move |event| {
            let _ = sender.unbounded_send(event);
        },
        notify::Config::default(),
    )
    .unwrap();
    watcher.watch(&dir, RecursiveMode::NonRecursive).unwrap();
    fs::write(dir.join("file"), "hello").unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(event.paths, [dir.join("file")]);
    drop(watcher);
    fs::remove_dir_all(&dir).unwrap();
}
