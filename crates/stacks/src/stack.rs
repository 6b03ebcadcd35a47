//! A stack, and the names of its functions.

use std::{ffi::c_void, fmt, path::PathBuf};

use crate::sys::Sleep;

/// What the names of the runtime's own functions begin with, but for signs such as `<`.
const OF_RUNTIME: [&str; 3] = ["tourbillon::", "tourbillon_shards::", "tourbillon_tasks::"];

/// The stack of a thread, as it was in one moment.
///
/// It has addresses. Names are found when they are asked for. `Display` prints a line for each
/// function of the job, innermost first, without those of the runtime that called it. If the thread
/// slept in the kernel, that is the first line. Equal lines behind each other are one. After 100
/// lines, the functions that are left are only counted:
///
/// ```text
/// [read in pipe_read]
/// read
/// shop::price::load at src/price.rs:31
/// shop::tree::walk at src/tree.rs:8 (40 times)
/// shop::main::{closure#0} at src/main.rs:12
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    addresses: Vec<u64>,
    sleep: Sleep,
}

/// A function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Frame {
    /// The name of the function, without a hash. If the program has no symbols: the address.
    pub function: String,
    /// The file, if the program has debug information.
    pub file: Option<PathBuf>,
    /// The line in it: of the call of the next inner function, or the one that runs.
    pub line: Option<u32>,
}

impl Stack {
    pub(crate) fn new(addresses: Vec<u64>, sleep: Sleep) -> Self {
        Self { addresses, sleep }
    }

    /// Returns the addresses, innermost first: the instruction that runs, and then the calls. Equal
    /// stacks have equal addresses within a process.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Returns the function of the kernel in which the thread slept, such as `futex_wait_queue` for
    /// a lock or `hrtimer_nanosleep`. `None` if it ran, or if the system does not say.
    pub fn waits_in(&self) -> Option<&str> {
        self.sleep.function.as_deref()
    }

    /// Returns the call of the system in which the thread slept, such as `futex` for a lock, or
    /// `read`. `None` if it ran, or if the system does not say. A call whose name is not known is
    /// `system call 500`.
    pub fn system_call(&self) -> Option<&str> {
        self.sleep.call.as_deref()
    }

    /// Returns what the kernel says about where the thread slept, in brackets.
    fn kernel(&self) -> Option<String> {
        match (self.system_call(), self.waits_in()) {
            (Some(call), Some(function)) => Some(format!("[{call} in {function}]")),
            (Some(name), None) | (None, Some(name)) => Some(format!("[{name}]")),
            (None, None) => None,
        }
    }

    /// Returns all functions, innermost first. Functions that were inlined are among them if the
    /// program has debug information: `debug = "line-tables-only"` is enough.
    ///
    /// The first call in a process reads the debug information, which takes some 100 ms and some
    /// memory. Do not call this on a worker.
    pub fn frames(&self) -> Vec<Frame> {
        self.addresses
            .iter()
            .flat_map(|&it| frames_at(it))
            .collect()
    }

    /// Like [`frames`](Stack::frames), without the functions of the runtime that called the job.
    pub fn frames_of_job(&self) -> Vec<Frame> {
        let mut frames = self.frames();
        let is_own = |frame: &Frame| OF_RUNTIME.iter().any(|own| frame.is_in(own));
        // The job may wait in a function of the runtime. Those that called it are further out.
        if let Some(job) = frames.iter().position(|frame| !is_own(frame)) {
            let outer = frames[job..].iter().position(is_own);
            frames.truncate(outer.map_or(frames.len(), |outer| job + outer));
        }
        frames
    }

    /// Returns the names of the functions of the job in one line, outermost first, with `;` between
    /// them, and at the end where it slept in the kernel. This is the form that tools for flame
    /// graphs read, followed by a count.
    pub fn folded(&self) -> String {
        let frames = self.frames_of_job();
        let names = frames.into_iter().rev().map(|frame| frame.function);
        let names: Vec<_> = names.chain(self.kernel()).collect();
        names.join(";")
    }
}

/// How far before an instruction without a line one is looked for, in bytes.
const BEFORE: u64 = 32;

/// Returns the functions at an address of a stack: the one that was called there, and before it
/// those that were inlined into it, innermost first. There is at least one.
///
/// [`Stack::frames`] does this with each address. Do not call it on a worker, either.
pub fn frames_at(address: u64) -> Vec<Frame> {
    let mut frames = named(address);
    let Some(inner) = frames.first_mut() else {
        return vec![Frame {
            function: format!("{address:#x}"),
            file: None,
            line: None,
        }];
    };
    // The compiler gives some instructions no line, such as the jump back in a loop. Those before
    // them have one.
    if inner.file.is_some() && inner.line.is_none() {
        let before =
            (1..=BEFORE).filter_map(|back| named(address.saturating_sub(back)).into_iter().next());
        let mut alike = before.filter(|it| it.function == inner.function && it.line.is_some());
        inner.line = alike.next().and_then(|it| it.line);
    }
    frames
}

/// Returns the functions of an address, as the program describes them.
fn named(address: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    // It looks one byte before an address, as for a return address. The walk has done so already,
    // and the instruction that runs may be the first of its function.
    backtrace::resolve((address.wrapping_add(1)) as *mut c_void, |symbol| {
        let name = symbol.name().map(|name| format!("{name:#}"));
        frames.push(Frame {
            function: name.unwrap_or_else(|| format!("{address:#x}")),
            file: symbol.filename().map(PathBuf::from),
            line: symbol.lineno(),
        });
    });
    frames
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = self.frames_of_job();
        let frames = frames.iter().map(Frame::to_string);
        let lines: Vec<_> = self.kernel().into_iter().chain(frames).collect();
        write_lines(f, &lines)
    }
}

/// The most lines of a stack that are written. Deep recursion by turns has hundreds.
const LINES: usize = 100;

/// Writes lines. Equal ones behind each other are one, and those after [`LINES`] are counted.
pub(crate) fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    let mut left = lines.len();
    for (n, equal) in lines.chunk_by(|one, next| one == next).enumerate() {
        if n == LINES {
            return write!(f, "\nand {left} that called them");
        }
        left -= equal.len();
        f.write_str(if n == 0 { "" } else { "\n" })?;
        f.write_str(&equal[0])?;
        if equal.len() > 1 {
            write!(f, " ({} times)", equal.len())?;
        }
    }
    Ok(())
}

impl Frame {
    /// Returns whether the name of the function begins so, but for signs such as `<`.
    pub(crate) fn is_in(&self, module: &str) -> bool {
        let name = self.function.trim_start_matches(['<', '&', '(']);
        name.starts_with(module)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        if let Some(file) = &self.file {
            write!(f, " at {}", file.display())?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    struct Lines(Vec<String>);

    impl fmt::Display for Lines {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_lines(f, &self.0)
        }
    }

    #[test]
    fn the_outermost_functions_of_a_deep_stack_are_counted() {
        let mut lines: Vec<_> = (0..LINES).map(|n| n.to_string()).collect();
        lines.insert(0, "0".to_owned());
        let mut whole = "0 (2 times)".to_owned();
        (1..LINES).for_each(|n| write!(whole, "\n{n}").unwrap());
        assert_eq!(Lines(lines.clone()).to_string(), whole);
        lines.extend(["a", "a", "b"].map(str::to_owned));
        let cut = format!("{whole}\nand 3 that called them");
        assert_eq!(Lines(lines).to_string(), cut);
    }

    /// The byte before a function is of another one, or of none.
    #[test]
    fn the_first_instruction_of_a_function_is_its_own() {
        #[inline(never)]
        fn here() -> usize {
            std::hint::black_box(7)
        }
        assert_eq!(here(), 7);
        let frames = frames_at(here as fn() -> usize as usize as u64);
        let function = &frames.last().unwrap().function;
        assert!(function.ends_with("::here"), "{function}");
    }
}
