//! Flame graphs.

use inferno::flamegraph::{Options, from_lines};

use crate::{options::Clock, profile::Profile};

impl Profile {
    /// Returns the profile as a flame graph: an SVG file for a browser, in which one can search, and
    /// click on a function to see those that it called. Without samples, the picture says so.
    ///
    /// The lowest row are the jobs, then come labels, spans and functions, as in
    /// [`folded`](Profile::folded).
    #[cfg_attr(docsrs, doc(cfg(feature = "flamegraph")))]
    pub fn svg(&self) -> String {
        let mut options = Options::default();
        let time = match self.clock() {
            Clock::Cpu => "processor time",
            Clock::Wall => "time",
        };
        options.title = format!(
            "{} samples in {:.1?}, each of {:.1?} of {time}",
            self.num_samples(),
            self.elapsed(),
            self.period()
        );
        if let Some(lost) = self.said_lost() {
            options.title += &format!("; {lost}");
        }
        options.pretty_xml = true;
        let lines = self.lines();
        let mut svg = Vec::new();
        // It writes a picture that says that there are no samples, and returns an error as well.
        let _ = from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
        String::from_utf8_lossy(&svg).into_owned()
    }
}
