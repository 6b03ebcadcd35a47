//! How to open a file.

use std::{fs, io, os::unix::fs::OpenOptionsExt, path::Path};

use super::File;
use crate::blocking::run;

/// The options for opening a file.
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl OpenOptions {
    /// Creates options that are all off.
    pub fn new() -> Self {
        Self(fs::OpenOptions::new())
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let (options, path) = (self.0.clone(), path.as_ref().to_owned());
        run(move || options.open(path)).await.map(File::from_std)
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(options: fs::OpenOptions) -> Self {
        Self(options)
    }
}

/// Defines setters that pass their value on.
macro_rules! setters {
    ($($name:ident: $Value:ty,)*) => {
        impl OpenOptions {
            $(
                #[doc = concat!("See the standard library's `", stringify!($name), "`.")]
                pub fn $name(&mut self, value: $Value) -> &mut Self {
                    self.0.$name(value);
                    self
                }
            )*
        }
    };
}

setters! {
    append: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    mode: u32,
    read: bool,
    truncate: bool,
    write: bool,
}
