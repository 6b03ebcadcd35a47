use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use moka::future::Cache;
use tokio::{task::JoinSet, time::sleep};
use tourbillon_matrix::Case;

use crate::common::BRIEF;

pub fn cases() -> Vec<Case> {
    vec![Case::new(
        "moka",
        "`future::Cache`: one load for eight readers, and an expiry",
        |_| exchange(),
    )]
}

async fn exchange() {
    let cache: Cache<&str, u32> = Cache::new(8);
    let loads = Arc::new(AtomicU32::new(0));
    let readers: JoinSet<u32> = (0..8)
        .map(|_| {
            let (cache, loads) = (cache.clone(), Arc::clone(&loads));
            async move {
                let load = async {
                    sleep(BRIEF).await;
                    loads.fetch_add(1, Ordering::Relaxed)
                };
                cache.get_with("key", load).await
            }
        })
        .collect();
    assert_eq!(readers.join_all().await, [0; 8]);

    let cache = Cache::builder().time_to_live(BRIEF).build();
    cache.insert("key", 1).await;
    sleep(2 * BRIEF).await;
    assert_eq!(cache.get("key").await, None);
}
