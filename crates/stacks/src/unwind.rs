//! Walks a copied stack.

use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder};

use crate::sys::{Copied, Loaded, loaded};

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

/// Returns the addresses of the instructions that a stack has calls of, innermost first. The first
/// one runs.
pub(crate) fn walk(copied: &Copied) -> Vec<u64> {
    let mut walker = processor::Walker::new();
    for file in loaded() {
        walker.add_module(module(&file));
    }
    let from = copied.registers.stack;
    let mut read = |at: u64| {
        let word = at.checked_sub(from).ok_or(())? / 8;
        let word = usize::try_from(word).map_err(drop)?;
        copied.words.get(word).copied().ok_or(())
    };
    let mut cache = processor::Cache::<MayAllocateDuringUnwind>::new();
    let mut frames = walker.iter_frames(
        copied.registers.instruction,
        processor::registers(copied.registers),
        &mut cache,
        &mut read,
    );
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
