//! Methods that pass on to the method of the same name of what a type wraps.
//!
//! Each method of a type of tokio is one of our type itself. By `Deref` alone it would not do: a
//! library's trait for the type may have a method of this name that calls the type's own. Without
//! one it would call itself for ever. `testing/tokio_suite/surface.py` checks this.

/// Defines methods with `&self`. Those after `async` are asynchronous.
macro_rules! forward {
    (
        [$($params:tt)*] $Outer:ty:
        $(
            fn $name:ident $(<$($G:ident $(: $Bound:path)?),*>)? (
                $($arg:ident: $Arg:ty),* $(,)?
            ) -> $Output:ty;
        )*
        $(async {$(
            fn $async_name:ident $(<$($AsyncG:ident $(: $AsyncBound:path)?),*>)? (
                $($async_arg:ident: $AsyncArg:ty),* $(,)?
            ) -> $AsyncOutput:ty;
        )*})?
    ) => {
        impl<$($params)*> $Outer {
            $(
                /// See Tourbillon's method of this name.
                ///
                /// # Errors
                ///
                /// Returns the operating system's error, or fails if the runtime is shut down. A
                /// method that begins with `try_` returns `WouldBlock` where others would wait.
                pub fn $name $(<$($G $(: $Bound)?),*>)? (&self, $($arg: $Arg),*) -> $Output {
                    self.0.$name($($arg),*)
                }
            )*
            $($(
                /// See Tourbillon's method of this name.
                ///
                /// # Errors
                ///
                /// Returns the operating system's error, or fails if the runtime is shut down.
                pub async fn $async_name $(<$($AsyncG $(: $AsyncBound)?),*>)? (
                    &self,
                    $($async_arg: $AsyncArg),*
                ) -> $AsyncOutput {
                    self.0.$async_name($($async_arg),*).await
                }
            )*)?
        }
    };
}

/// Defines methods that return an address of the type `$Addr`, from one of the standard library.
macro_rules! forward_addrs {
    ([$($params:tt)*] $Outer:ty, $Addr:ty: $($name:ident),*) => {
        impl<$($params)*> $Outer {
            $(
                /// See Tourbillon's method of this name.
                ///
                /// # Errors
                ///
                /// Returns the operating system's error.
                pub fn $name(&self) -> std::io::Result<$Addr> {
                    self.0.$name().map(<$Addr>::from)
                }
            )*
        }
    };
}

pub(crate) use {forward, forward_addrs};
