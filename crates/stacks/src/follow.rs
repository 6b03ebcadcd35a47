//! Follows stalls: takes the stack of each while it lasts.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    Handle,
    runtime::{Builder, Stall},
};

use crate::{Stack, capture};

/// What the hook tells the thread that follows: a stall, the runtime that it is of, and when.
type Told = (Stall, Option<Handle>, Instant);

/// A stall whose job still runs.
struct Open {
    stall: Stall,
    handle: Option<Handle>,
    /// When the hook told of it.
    told: Instant,
    /// When to take the next stack.
    next: Instant,
}

/// A stall with its time so far, and the stack of that moment.
struct Taken {
    stall: Stall,
    handle: Option<Handle>,
    stack: Option<Stack>,
}

/// Makes the runtimes of a builder call `f` with each stall, and with the stack of the thread while
/// the job runs.
///
/// `f` is called when a job has run for [`stall_threshold`](Builder::stall_threshold), and again
/// after twice that time, four times and so on: with the time so far, and the stack of that moment.
/// It is called once more when the job is over, with the whole time and without a stack. All calls
/// for one stall have the same [number](Stall::number). There is no stack either if the job was
/// over before it could be taken, or if the thread [does not answer](crate::CaptureError).
///
/// Each stack is [added](Handle::add_stack) to its stall before `f` is called. So it is also in
/// [`recent_stalls`](Handle::recent_stalls), and in all that shows stalls: the live page,
/// `tourbillon top`, traces of the flight recorder, and with the runtime's feature `tracing` an
/// event. `f` may do nothing.
///
/// `f` is called on a thread of this crate, so it may resolve names and write logs. The thread ends
/// with the builder and its runtimes. This takes the place of [`Builder::on_stall`].
///
/// # Errors
///
/// Returns an error if the thread cannot be started.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use tourbillon::runtime::Builder;
///
/// // Blocks its worker until the other end of the channel is gone.
/// fn sum_all_prices(until: mpsc::Receiver<()>) {
///     let _ = until.recv();
/// }
///
/// let (sender, stacks) = mpsc::channel();
/// let mut builder = Builder::new();
/// builder.worker_threads(2).stall_threshold(Duration::from_millis(20));
/// tourbillon_stacks::on_stall(&mut builder, move |stall, stack| {
///     if let Some(stack) = stack {
///         eprintln!("{stall}, in\n{stack}");
///         let _ = sender.send(stack.folded());
///     }
/// })?;
/// let runtime = builder.build().unwrap();
/// let (end, until) = mpsc::channel();
/// runtime.spawn(async move { sum_all_prices(until) });
/// let stack = stacks.recv_timeout(Duration::from_secs(60)).unwrap();
/// assert!(stack.contains("sum_all_prices"));
/// drop(end);
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn on_stall<F>(builder: &mut Builder, f: F) -> io::Result<&mut Builder>
where
    F: FnMut(&Stall, Option<&Stack>) + Send + 'static,
{
    let (sender, told) = channel::<Told>();
    thread::Builder::new()
        .name("stacks".to_owned())
        .spawn(move || follow(&told, f))?;
    Ok(builder.on_stall(move |stall| {
        // An error means that `f` has panicked.
        let _ = sender.send((stall.clone(), Handle::try_current().ok(), Instant::now()));
    }))
}

/// Takes stacks until the hook is gone.
fn follow(told: &Receiver<Told>, mut f: impl FnMut(&Stall, Option<&Stack>)) {
    // By number. The runtimes of a builder count separately, so also by thread.
    let mut open: HashMap<(u32, u64), Open> = HashMap::new();
    let mut texts = Texts::default();
    loop {
        let next = open.values().map(|open| open.next).min();
        let received = match next {
            None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => told.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok((stall, handle, told)) => {
                let key = (stall.thread, stall.number);
                if stall.is_running {
                    let stalled = Open {
                        stall,
                        handle,
                        told,
                        next: told,
                    };
                    open.insert(key, stalled);
                } else {
                    open.remove(&key);
                    f(&stall, None);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let due = open.values_mut().filter(|open| open.next <= now);
                // Take all stacks first: names take long, and jobs end meanwhile.
                let taken: Vec<_> = due.map(Open::look).collect();
                for Taken {
                    stall,
                    handle,
                    stack,
                } in taken
                {
                    if let (Some(stack), Some(handle)) = (&stack, &handle) {
                        handle.add_stack(&stall, texts.of(stack));
                    }
                    f(&stall, stack.as_ref());
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The texts of stacks, so that names are found once, and equal stacks share one text.
#[derive(Default)]
struct Texts(HashMap<Stack, Arc<str>>);

impl Texts {
    /// The most texts: many times what a program has that is not in trouble.
    const MOST: usize = 256;

    fn of(&mut self, stack: &Stack) -> Arc<str> {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        let text = || stack.to_string().into();
        self.0.entry(stack.clone()).or_insert_with(text).clone()
    }
}

impl Open {
    /// Takes the stack, unless the job is over.
    fn look(&mut self) -> Taken {
        let stack = capture(self.stall.thread).ok();
        let mut stall = self.stall.clone();
        stall.elapsed += self.told.elapsed();
        self.next = Instant::now() + stall.elapsed.max(Duration::from_millis(1));
        // Only now, since the stack of a job that is over meanwhile is that of another one.
        let stack = stack.filter(|_| self.is_running());
        Taken {
            stall,
            handle: self.handle.clone(),
            stack,
        }
    }

    /// Returns whether the job still runs.
    fn is_running(&self) -> bool {
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| handle.still_runs(&self.stall))
    }
}
