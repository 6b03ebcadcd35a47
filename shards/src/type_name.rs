//! The name of a type, behind one thin pointer.

use std::{any::type_name, fmt, ptr};

/// The name of a type that is known where it is compiled in, and may be asked for anywhere.
///
/// A reference to it is one word, which a name is not: it can be kept in an atomic, for other threads
/// to see what one of them is at. The name is looked up only if somebody wants it.
///
/// ```
/// use tourbillon_shards::TypeName;
///
/// let name: &'static TypeName = TypeName::of::<Option<u8>>();
/// assert_eq!(name.get(), "core::option::Option<u8>");
/// ```
// A function, because the name itself is no constant yet (rust-lang/rust#63084).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct TypeName(fn() -> &'static str);

impl TypeName {
    /// The name of `T`.
    pub const fn of<T: ?Sized>() -> &'static Self {
        const { &Self::new::<T>() }
    }

    /// Returns the name that `name` answers.
    #[inline]
    pub const fn from_fn(name: &'static fn() -> &'static str) -> &'static Self {
        // SAFETY: `repr(transparent)`: this is such a function pointer.
        unsafe { &*ptr::from_ref(name).cast::<Self>() }
    }

    pub(crate) const fn new<T: ?Sized>() -> Self {
        Self(type_name::<T>)
    }

    /// The name, as [`std::any::type_name`] has it: for people to read, and not the same for ever.
    pub fn get(&self) -> &'static str {
        (self.0)()
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypeName").field(&self.get()).finish()
    }
}
