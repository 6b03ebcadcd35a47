//! Reports the ends of attempts until the store answers.
//!
//! An attempt whose end is not reported would be run again, so an end is repeated until the store
//! takes or refuses it. One that the store cannot take keeps no other end waiting, and gets another
//! text if that is what the store cannot take.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_lite::future::or;
use tokio::sync::{mpsc, oneshot};
use tourbillon::time::{Instant, sleep_until};

use super::{
    health::Ask,
    stats::Counters,
    tasks::{Kept, Tasks},
};
use crate::{
    batch::{MOST, WAITING, calls},
    store::{End, Finish, Store, StoreError},
};

/// How many requests in a row with ends of a kind may fail in one round. It takes 12 until an end
/// of a full request is alone.
const MOST_FAILURES: usize = 24;

/// The waits between the rounds in which nothing succeeds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The text of an error of which the store can take no other form.
const PLAIN: &str = "the store cannot take the text of this error";

/// An end that the store has not taken or refused yet.
struct Report {
    finish: Finish,
    /// How often the text of its error was replaced.
    replaced: u32,
    caller: oneshot::Sender<Option<bool>>,
    /// Whether a request with this end has failed. Its answer may have been lost. As a store
    /// refuses an end that it has taken before, a refusal then tells nothing.
    is_repeated: bool,
}

impl Report {
    /// Returns 0 if the job leaves the store, which needs the least room there, and otherwise 1.
    fn kind(&self) -> usize {
        usize::from(self.finish.end != End::Done)
    }

    /// Replaces the text of the error by one that more stores can take: first by its escaped form,
    /// in ASCII, and then by a fixed text. Returns `false` if there is no further one.
    fn replace_text(&mut self) -> bool {
        let (End::Next {
            error: Some(error), ..
        }
        | End::Retry { error, .. }
        | End::Dead { error }) = &mut self.finish.end
        else {
            return false;
        };
        *error = match self.replaced {
            0 => ascii(error),
            1 => PLAIN.to_owned(),
            _ => return false,
        };
        self.replaced += 1;
        true
    }

    fn answer(self, is_taken: bool) {
        let known = (is_taken || !self.is_repeated).then_some(is_taken);
        // A caller that is gone needs no answer.
        let _ = self.caller.send(known);
    }
}

/// Returns a text in ASCII, which all databases can store.
fn ascii(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_ascii() && character != '\0' {
            true => escaped.push(character),
            false => escaped.extend(character.escape_unicode()),
        }
    }
    escaped
}

/// Sends ends to a task, which reports all that wait at once.
pub(super) struct Ends(mpsc::Sender<Report>);

impl Ends {
    /// Starts the task, which ends when this is dropped.
    pub(super) fn start<S: Store>(
        store: Arc<S>,
        counters: Arc<Counters>,
        tasks: &Tasks,
        kept: Kept,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tasks.spawn(async move {
            // This future is large. Without a box, each move of the task would need that much
            // stack.
            Box::pin(serve(store, &counters, receiver)).await;
            drop(kept);
        });
        Self(sender)
    }

    /// Waits until the store has taken or refused an end. Returns which of both, or `None` if an
    /// answer was lost, or if the store has ended.
    pub(super) async fn report(&self, finish: Finish) -> Option<bool> {
        let (caller, answer) = oneshot::channel();
        let report = Report {
            finish,
            replaced: 0,
            caller,
            is_repeated: false,
        };
        self.0.send(report).await.ok()?;
        answer.await.ok().flatten()
    }
}

async fn serve<S: Store>(store: Arc<S>, counters: &Counters, mut receiver: mpsc::Receiver<Report>) {
    let mut new = Vec::new();
    // What failed in the last round, and when it is repeated.
    let mut failed: Vec<Report> = Vec::new();
    let mut pause = SHORTEST_PAUSE;
    let mut again = Instant::now();
    loop {
        let repeats = !failed.is_empty();
        let received = or(
            async { Some(receiver.recv_many(&mut new, MOST).await) },
            async {
                if !repeats {
                    std::future::pending::<()>().await;
                }
                sleep_until(again).await;
                None
            },
        );
        if received.await == Some(0) {
            return;
        }
        // Do not mix new ends with those that failed, which would make them fail, too.
        if !new.is_empty() {
            failed.extend(round(&*store, counters, std::mem::take(&mut new)).await);
            if !repeats {
                pause = SHORTEST_PAUSE;
                again = Instant::now() + pause;
            }
        }
        if !failed.is_empty() && Instant::now() >= again {
            let before = failed.len();
            failed = round(&*store, counters, failed).await;
            pause = match failed.len() < before {
                true => SHORTEST_PAUSE,
                false => (2 * pause).min(LONGEST_PAUSE),
            };
            again = Instant::now() + pause;
        }
    }
}

/// Reports each end once. A request that fails is divided, until each end that the store does not
/// take is alone. When many of a kind have failed, the others of this kind are left out, so that
/// they keep no end of the other kind waiting. Returns the ends that failed or were left out, in
/// the order in which the next round should report them.
async fn round<S: Store>(store: &S, counters: &Counters, mut ends: Vec<Report>) -> Vec<Report> {
    ends.sort_by_key(Report::kind);
    // The last request is the next.
    let mut requests = calls(ends, |end| match &end.finish.end {
        End::Next {
            error: Some(error), ..
        }
        | End::Retry { error, .. }
        | End::Dead { error } => error.len(),
        _ => 0,
    });
    requests.reverse();
    let mut failed = Vec::new();
    let mut left_out = Vec::new();
    // How many requests with ends of each kind have failed in a row.
    let mut failures = [0; 2];
    while let Some(mut request) = requests.pop() {
        left_out.extend(request.extract_if(.., |end| failures[end.kind()] >= MOST_FAILURES));
        let kinds: BTreeSet<_> = request.iter().map(Report::kind).collect();
        if kinds.is_empty() {
            continue;
        }
        let finishes = request.iter().map(|end| end.finish.clone()).collect();
        let answer = counters.health.ask(Ask::Finish, store.finish(finishes));
        let error = match answer.await {
            Ok(answers) => {
                for kind in kinds {
                    failures[kind] = 0;
                }
                for (end, is_taken) in request.into_iter().zip(answers) {
                    end.answer(is_taken);
                }
                continue;
            }
            // All callers learn of this, as their ends are dropped.
            Err(StoreError::Closed) => return Vec::new(),
            Err(error) => error,
        };
        if !error.changed_nothing() {
            for end in &mut request {
                end.is_repeated = true;
            }
        }
        // What cannot be stored as it is would keep the job running for ever.
        if let (StoreError::Refused(_), [end]) = (&error, &mut request[..])
            && end.replace_text()
        {
            failures[end.kind()] = 0;
            requests.push(request);
            continue;
        }
        for &kind in &kinds {
            failures[kind] += 1;
        }
        if let (StoreError::Locked, 2..) = (&error, request.len()) {
            let keys = request.iter().map(|end| end.finish.key.clone()).collect();
            // After an error, nothing is known.
            let locked = store.locked(keys).await.unwrap_or_default();
            let before = failed.len();
            failed.extend(request.extract_if(.., |end| locked.contains(&end.finish.key)));
            if failed.len() > before {
                requests.push(request);
                continue;
            }
        }
        if request.len() > 1 {
            let done = request.iter().filter(|end| end.kind() == 0).count();
            let middle = match done {
                0 => request.len() / 2,
                _ if done == request.len() => done / 2,
                _ => done,
            };
            let rest = request.split_off(middle);
            requests.push(rest);
            requests.push(request);
        } else {
            failed.append(&mut request);
        }
    }
    left_out.append(&mut failed);
    left_out
}
