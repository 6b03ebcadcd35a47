//! Texts that become due, each by a timer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tourbillon::{Timer, timer::Cancel};

/// Reminders that wait, and those that are due.
#[derive(Clone, Default)]
pub struct Reminders(Arc<Mutex<Lists>>);

#[derive(Default)]
struct Lists {
    next: u64,
    waiting: HashMap<u64, Timer>,
    due: Vec<String>,
}

impl Reminders {
    /// Arms a reminder, and returns its number.
    pub fn add(&self, after: Duration, text: String) -> u64 {
        let reminders = self.clone();
        // The callback waits for this lock, so it finds its timer in the list.
        let mut lists = self.lock();
        let number = lists.next;
        lists.next += 1;
        let timer = tourbillon::after(after, move || {
            let mut lists = reminders.lock();
            lists.waiting.remove(&number);
            lists.due.push(text);
        });
        lists.waiting.insert(number, timer);
        number
    }

    /// Cancels a reminder. Returns `false` if there is none of this number, or it is due.
    pub fn cancel(&self, number: u64) -> bool {
        let timer = self.lock().waiting.remove(&number);
        timer.is_some_and(|timer| timer.cancel() == Cancel::Cancelled)
    }

    /// Returns the texts that are due, oldest first.
    pub fn due(&self) -> Vec<String> {
        self.lock().due.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tourbillon::time::sleep;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    // The clock is paused: a sleep takes no time, and timers fire in the order of their deadlines.
    #[tourbillon::test(start_paused = true)]
    async fn a_reminder_is_due_at_its_time_and_not_before() {
        let reminders = Reminders::default();
        reminders.add(MINUTE, "tea".to_owned());
        sleep(MINUTE - Duration::from_millis(1)).await;
        assert!(reminders.due().is_empty());
        sleep(Duration::from_millis(2)).await;
        assert_eq!(reminders.due(), ["tea"]);
    }

    #[tourbillon::test(start_paused = true)]
    async fn a_cancelled_reminder_is_never_due() {
        let reminders = Reminders::default();
        let number = reminders.add(MINUTE, "tea".to_owned());
        assert!(reminders.cancel(number));
        assert!(!reminders.cancel(number));
        sleep(2 * MINUTE).await;
        assert!(reminders.due().is_empty());
    }
}
