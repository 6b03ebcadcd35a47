//! Labels: what a job does at the moment, in the words of the user.

use std::{fmt, panic::Location, ptr};

use crate::metrics::spawned::Named;

/// A text that tells what a poll or a callback is about, beside the name of its job. See
/// [`task::label`](crate::task::label).
///
/// It is one pointer to a text that is kept for good, once for all labels with this text. All names
/// and labels of a process may take 1 MiB together. Further labels have the text `…`.
#[derive(Clone, Copy)]
pub struct Label(&'static Named);

/// The label if there are too many.
static MANY: Named = Named {
    place: Location::caller(),
    name: "…",
};

impl Label {
    /// Returns the label with this text. This looks it up in a table: keep the result if it is used
    /// often.
    pub fn new(text: &str) -> Self {
        // All labels have one place in the table of names.
        Self(Named::find(MANY.place, text).unwrap_or(&MANY))
    }

    /// Returns the text.
    pub fn text(self) -> &'static str {
        self.0.name
    }

    /// Returns the pointer, from which [`from_ptr`](Self::from_ptr) makes this value again.
    pub(crate) fn as_ptr(self) -> *mut () {
        ptr::from_ref(self.0).cast_mut().cast()
    }

    /// # Safety
    ///
    /// `it` is null or comes from [`as_ptr`](Self::as_ptr).
    pub(crate) unsafe fn from_ptr(it: *mut ()) -> Option<Self> {
        // SAFETY: `as_ptr` made it of a `&'static Named`, or it is null.
        unsafe { it.cast::<Named>().as_ref() }.map(Self)
    }
}

impl From<&str> for Label {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Label").field(&self.text()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn labels_of_one_text_are_one_pointer() {
        let label = Label::new("GET /report");
        assert_eq!(label.as_ptr(), Label::from("GET /report").as_ptr());
        assert_ne!(label.as_ptr(), Label::new("GET /invoice").as_ptr());
        // SAFETY: the pointer is that of a `Label`.
        let same = unsafe { Label::from_ptr(label.as_ptr()) }.unwrap();
        assert_eq!(same.text(), "GET /report");
        // SAFETY: null is allowed.
        assert!(unsafe { Label::from_ptr(ptr::null_mut()) }.is_none());
        assert_eq!(Label::new(&"x".repeat(2 << 20)).text(), "…");
    }
}
