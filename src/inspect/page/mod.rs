//! The page's files, which are part of the program.

use ::hyper::body::Bytes;

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    /// Where it is, from the root of the site.
    pub(super) path: &'static str,
    /// What it is, as `Content-Type` says it.
    pub(super) content_type: &'static str,
    body: &'static str,
}

impl Asset {
    pub(super) fn body(&self) -> Bytes {
        Bytes::from_static(self.body.as_bytes())
    }
}

/// All files.
pub(super) const ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        body: include_str!("index.html"),
    },
    Asset {
        path: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        body: include_str!("app.js"),
    },
    Asset {
        path: "/style.css",
        content_type: "text/css; charset=utf-8",
        body: include_str!("style.css"),
    },
];
