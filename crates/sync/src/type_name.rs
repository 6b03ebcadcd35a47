//! Name of a type, behind one thin pointer.

use std::{any::type_name, fmt, ptr};

/// Name of a type, which is looked up only when it is asked for.
///
/// A reference to this is one word, unlike a `&str`. So it fits into an atomic, in which a thread
/// can publish the type of the job that it runs.
///
/// ```
/// use tourbillon_sync::TypeName;
///
/// let name: &'static TypeName = TypeName::of::<Option<u8>>();
/// assert_eq!(name.get(), "core::option::Option<u8>");
/// ```
// A function, because `type_name` cannot be called in constants yet (rust-lang/rust#63084).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct TypeName(fn() -> &'static str);

impl TypeName {
    /// Returns the name of `T`.
    pub const fn of<T: ?Sized>() -> &'static Self {
        const { &Self::new::<T>() }
    }

    /// Returns a `TypeName` that calls `name`.
    #[inline]
    pub const fn from_fn(name: &'static fn() -> &'static str) -> &'static Self {
        // SAFETY: `TypeName` is `repr(transparent)`, so it has the layout of its one field, a
        // function pointer of this type. The reference is `'static`, and so is the result.
        unsafe { &*ptr::from_ref(name).cast::<Self>() }
    }

    /// Returns the name of `T`, for a static value.
    pub const fn new<T: ?Sized>() -> Self {
        Self(type_name::<T>)
    }

    /// Returns the name, as [`std::any::type_name`] does. It is for people to read, and may change.
    pub fn get(&self) -> &'static str {
        (self.0)()
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypeName").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_type_or_of_the_function() {
        static NAME: fn() -> &'static str = || "a task";
        assert_eq!(TypeName::of::<u8>().get(), "u8");
        assert_eq!(TypeName::from_fn(&NAME).get(), "a task");
    }
}
