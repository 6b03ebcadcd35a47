//! The files of the page, compiled into the program.

use hyper::body::Bytes;

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    /// The path from the root of the site.
    pub(crate) path: &'static str,
    /// The value of `Content-Type`.
    pub(crate) content_type: &'static str,
    body: &'static str,
}

impl Asset {
    const fn script(path: &'static str, body: &'static str) -> Self {
        Self {
            path,
            content_type: "text/javascript; charset=utf-8",
            body,
        }
    }

    pub(crate) fn body(&self) -> Bytes {
        if cfg!(feature = "profile") && self.path == "/" {
            return Bytes::from(self.body.replace(PLACE, PROFILE));
        }
        Bytes::from_static(self.body.as_bytes())
    }
}

/// Where the page has a button for profiles, and the button.
const PLACE: &str = "<!-- profile -->";
const PROFILE: &str = include_str!("profile.html");

/// All files.
pub(crate) const ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        body: include_str!("index.html"),
    },
    Asset {
        path: "/style.css",
        content_type: "text/css; charset=utf-8",
        body: include_str!("style.css"),
    },
    Asset::script("/app.js", include_str!("app.js")),
    Asset::script("/buckets.js", include_str!("buckets.js")),
    Asset::script("/canvas.js", include_str!("canvas.js")),
    Asset::script("/cell.js", include_str!("cell.js")),
    Asset::script("/charts.js", include_str!("charts.js")),
    Asset::script("/columns.js", include_str!("columns.js")),
    Asset::script("/format.js", include_str!("format.js")),
    Asset::script("/frame.js", include_str!("frame.js")),
    Asset::script("/heatmap.js", include_str!("heatmap.js")),
    Asset::script("/history.js", include_str!("history.js")),
    Asset::script("/lanes.js", include_str!("lanes.js")),
    Asset::script("/matrix.js", include_str!("matrix.js")),
    Asset::script("/palette.js", include_str!("palette.js")),
    Asset::script("/profile.js", include_str!("profile.js")),
    Asset::script("/rows.js", include_str!("rows.js")),
    Asset::script("/stacks.js", include_str!("stacks.js")),
    Asset::script("/stream.js", include_str!("stream.js")),
    Asset::script("/tables.js", include_str!("tables.js")),
    Asset::script("/tasks.js", include_str!("tasks.js")),
    Asset::script("/tiles.js", include_str!("tiles.js")),
    Asset::script("/tip.js", include_str!("tip.js")),
    Asset::script("/view.js", include_str!("view.js")),
    Asset::script("/window.js", include_str!("window.js")),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks in a test what would otherwise fail only in a browser: a missing module.
    #[test]
    fn all_imported_modules_are_served() {
        let mut imports = 0;
        for asset in ASSETS {
            for line in asset.body.lines() {
                let Some((_, from)) = line.split_once(" from './") else {
                    continue;
                };
                let name = from.strip_suffix("';").unwrap();
                let path = format!("/{name}");
                assert!(ASSETS.iter().any(|asset| asset.path == path), "{path}");
                imports += 1;
            }
        }
        assert!(imports > ASSETS.len() / 2);
    }
}
