//! The buffers of `poll_` methods.

/// A buffer of the `poll_` methods that receive or peek.
///
/// It is a slice, an array or a vector of bytes. The methods then write to its start, and return
/// the number of bytes.
///
/// With the feature `tokio-io` it may also be tokio's `ReadBuf`. The methods then write to its
/// unfilled part, and advance it. They do not return the number of bytes, as in tokio.
///
/// Other crates cannot implement this trait.
///
/// ```
/// use std::future::poll_fn;
/// use tourbillon::net::UdpSocket;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let socket = UdpSocket::bind("127.0.0.1:0").await?;
/// let addr = socket.local_addr()?;
/// socket.send_to(b"hello", addr).await?;
/// let mut bytes = [0; 100];
/// assert_eq!(poll_fn(|cx| socket.poll_peek_from(cx, &mut bytes)).await?, (5, addr));
/// # #[cfg(feature = "tokio-io")] {
/// let mut buf = tokio::io::ReadBuf::new(&mut bytes);
/// assert_eq!(poll_fn(|cx| socket.poll_recv_from(cx, &mut buf)).await?, addr);
/// assert_eq!(buf.filled(), b"hello");
/// # }
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
pub trait PollBuf: sealed::Sealed {
    /// The number of bytes, or `()` for a `ReadBuf`.
    type Count;

    /// The number of bytes with an address, or only the address for a `ReadBuf`.
    type CountAnd<A>;

    /// Returns the part to write to.
    #[doc(hidden)]
    fn room(&mut self) -> &mut [u8];

    /// Takes note of `n` bytes that were written to the room.
    #[doc(hidden)]
    fn filled(&mut self, n: usize) -> Self::Count;

    /// Takes note of `n` bytes that were written to the room, and came from `addr`.
    #[doc(hidden)]
    fn filled_from<A>(&mut self, n: usize, addr: A) -> Self::CountAnd<A>;
}

pub(crate) mod sealed {
    /// Prevents other crates from implementing [`PollBuf`](super::PollBuf).
    pub trait Sealed {}
}

macro_rules! bytes {
    ($([$($param:tt)*] $Bytes:ty;)*) => {$(
        impl<$($param)*> sealed::Sealed for $Bytes {}

        impl<$($param)*> PollBuf for $Bytes {
            type Count = usize;
            type CountAnd<A> = (usize, A);

            fn room(&mut self) -> &mut [u8] {
                self
            }

            fn filled(&mut self, n: usize) -> usize {
                n
            }

            fn filled_from<A>(&mut self, n: usize, addr: A) -> (usize, A) {
                (n, addr)
            }
        }
    )*};
}

bytes! {
    [] [u8];
    [const N: usize] [u8; N];
    [] Vec<u8>;
}
