//! Walks a copied stack.

use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder};

use crate::sys::{Loaded, Registers, loaded};

/// The most frames of a stack.
const FRAMES: usize = 512;

#[cfg(target_arch = "x86_64")]
mod processor {
    pub(super) use framehop::x86_64::{CacheX86_64 as Cache, UnwinderX86_64 as Walker};

    use crate::sys::Registers;

    pub(super) fn registers(of: Registers) -> framehop::x86_64::UnwindRegsX86_64 {
        framehop::x86_64::UnwindRegsX86_64::new(of.instruction, of.stack, of.frame)
    }
}

#[cfg(target_arch = "aarch64")]
mod processor {
    pub(super) use framehop::aarch64::{CacheAarch64 as Cache, UnwinderAarch64 as Walker};

    use crate::sys::Registers;

    pub(super) fn registers(of: Registers) -> framehop::aarch64::UnwindRegsAarch64 {
        framehop::aarch64::UnwindRegsAarch64::new(of.link, of.stack, of.frame)
    }
}

/// The tables by which stacks are walked.
pub(crate) struct Tables {
    walker: processor::Walker<&'static [u8]>,
    cache: processor::Cache<MayAllocateDuringUnwind>,
}

impl Tables {
    pub(crate) fn new() -> Self {
        let mut walker = processor::Walker::new();
        for file in loaded() {
            walker.add_module(module(&file));
        }
        let cache = processor::Cache::new();
        Self { walker, cache }
    }

    /// Returns the addresses of the instructions that a stack has calls of, innermost first. The
    /// first one runs. `words` is what the stack has from the stack pointer on.
    pub(crate) fn walk(&mut self, registers: Registers, words: &[u64]) -> Vec<u64> {
        let mut read = |at: u64| {
            let word = at.checked_sub(registers.stack).ok_or(())? / 8;
            let word = usize::try_from(word).map_err(drop)?;
            words.get(word).copied().ok_or(())
        };
        let (at, from) = (registers.instruction, processor::registers(registers));
        let mut frames = (self.walker).iter_frames(at, from, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        // An error ends the stack: the copy does, or a function has no tables.
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == FRAMES {
                break;
            }
        }
        addresses
    }
}

fn module(file: &Loaded) -> Module<&'static [u8]> {
    let range = |(from, to): (u64, u64)| from..to;
    let at = |place: u64| file.base + place;
    let sections = ExplicitModuleSectionInfo {
        text_svma: Some(range(file.code)),
        eh_frame_svma: Some(range(file.frames)),
        eh_frame: Some(file.memory(file.frames)),
        eh_frame_hdr_svma: Some(range(file.index)),
        eh_frame_hdr: Some(file.memory(file.index)),
        ..ExplicitModuleSectionInfo::default()
    };
    let all = at(file.all.0)..at(file.all.1);
    Module::new(String::new(), all, file.base, sections)
}
