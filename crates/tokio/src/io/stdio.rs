//! The standard streams. Their operations block threads of the runtime's pool.

use std::{
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use real::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::blocking::{Job, MOST};

/// The standard input.
///
/// A read that has begun ends only with the next input, and the runtime waits for it when it is
/// dropped: end it by `shutdown_background`.
#[derive(Debug, Default)]
pub struct Stdin {
    job: Job<io::Result<()>>,
}

/// Returns the standard input.
pub fn stdin() -> Stdin {
    Stdin::default()
}

impl AsyncRead for Stdin {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let job = &mut self.get_mut().job;
        loop {
            let ended = ready!(job.poll_end(cx))?;
            let mut buf = job.take();
            let is_over = ended.is_some() || buf.len() > 0 || into.remaining() == 0;
            if is_over {
                buf.move_to(into);
                *job = Job::Idle(buf);
                return Poll::Ready(ended.unwrap_or(Ok(())));
            }
            let most = into.remaining().min(MOST);
            job.start(buf, move |buf| buf.read_from(io::stdin(), most));
        }
    }
}

/// Defines an output.
macro_rules! outputs {
    ($($Output:ident, $function:ident, $what:literal;)*) => {$(
        #[doc = concat!("The standard ", $what, ".")]
        ///
        /// A write returns when a thread has the bytes. `flush` waits until they are written.
        #[derive(Debug, Default)]
        pub struct $Output {
            job: Job<io::Result<()>>,
            /// Whether there was a write since the last flush.
            is_dirty: bool,
        }

        #[doc = concat!("Returns the standard ", $what, ".")]
        pub fn $function() -> $Output {
            $Output::default()
        }

        impl AsyncWrite for $Output {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                let this = self.get_mut();
                // The end of the last write, whose error is returned here.
                ready!(this.job.poll_end(cx))?.unwrap_or(Ok(()))?;
                let mut buf = this.job.take();
                let n = buf.take_from([bytes], MOST);
                this.job.start(buf, |buf| buf.write_to(io::$function()));
                this.is_dirty = true;
                Poll::Ready(Ok(n))
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let this = self.get_mut();
                loop {
                    ready!(this.job.poll_end(cx))?.unwrap_or(Ok(()))?;
                    if !std::mem::take(&mut this.is_dirty) {
                        return Poll::Ready(Ok(()));
                    }
                    let buf = this.job.take();
                    this.job.start(buf, |_| io::$function().flush());
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_flush(cx)
            }
        }
    )*};
}

outputs! {
    Stdout, stdout, "output";
    Stderr, stderr, "error output";
}

macro_rules! descriptors {
    ($($Stream:ident, $function:ident;)*) => {$(
        impl AsFd for $Stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: the standard library does not close this descriptor either.
                unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
            }
        }

        impl AsRawFd for $Stream {
            fn as_raw_fd(&self) -> RawFd {
                io::$function().as_raw_fd()
            }
        }
    )*};
}

descriptors! {
    Stdin, stdin;
    Stdout, stdout;
    Stderr, stderr;
}
