//! A dispatch that is ready but for where its memory is.

use super::roots::{ARENA, Iteration, Roots, number};
use crate::wgpu::Text;
use compiler::program::{Place, Slot};
use smallvec::SmallVec;

/// A dispatch.
pub(super) struct Launch {
    /// By which memory each argument is in: the pipeline's number.
    pub(super) variants: SmallVec<[(SmallVec<[usize; 8]>, usize); 1]>,
    pub(super) args: Vec<Argument>,
    /// Parameters behind the arguments'.
    pub(super) params: Vec<u32>,
    pub(super) grid: [u32; 3],
}

/// Memory that a kernel takes.
#[derive(Clone)]
pub(super) struct Argument {
    pub(super) place: Where,
    /// Bytes of an element.
    pub(super) size: usize,
}

#[derive(Clone)]
pub(super) enum Where {
    Place(Place),
    /// At this byte of the arena.
    Scratch(usize),
}

impl Argument {
    pub(super) fn place(p: &Place, size: usize) -> Argument {
        Argument { place: Where::Place(p.clone()), size }
    }

    /// The memory that it is in, and the byte of it.
    pub(super) fn find(&self, roots: &Roots, at: &dyn Iteration) -> (usize, usize) {
        match &self.place {
            Where::Place(p) => roots.find(p, at),
            Where::Scratch(offset) => (ARENA, *offset),
        }
    }
}

/// Some iteration of each loop that alternating places follow.
struct Parity<'a> {
    levels: &'a [usize],
    bits: u32,
}

impl Iteration for Parity<'_> {
    fn odd(&self, level: usize) -> bool {
        self.levels.iter().position(|l| *l == level).is_some_and(|k| self.bits >> k & 1 == 1)
    }

    fn index(&self, _: usize) -> i64 {
        0
    }
}

impl Launch {
    /// A dispatch of a kernel whose text follows from where its memory is; `number` gives a text its number.
    pub(super) fn new(
        roots: &Roots,
        args: Vec<Argument>,
        params: Vec<u32>,
        grid: [u32; 3],
        text: &dyn Fn(&[usize]) -> Text,
        pipeline: &mut dyn FnMut(Text) -> usize,
    ) -> Launch {
        let mut levels: Vec<usize> = Vec::new();
        for a in &args {
            if let Where::Place(Place { slot: Slot::Alternating(level, ..), .. }) = &a.place
                && !levels.contains(level)
            {
                levels.push(*level);
            }
        }
        let mut variants: SmallVec<[(SmallVec<[usize; 8]>, usize); 1]> = SmallVec::new();
        for bits in 0..1u32 << levels.len() {
            let at = Parity { levels: &levels, bits };
            let (homes, _) = number(args.iter().map(|a| a.find(roots, &at).0));
            if !variants.iter().any(|(h, _)| *h == homes) {
                let p = pipeline(text(&homes));
                variants.push((homes, p));
            }
        }
        Launch { variants, args, params, grid }
    }
}

/// Blocks for so much work, in one dimension.
pub(super) fn blocks(work: usize, each: usize) -> u32 {
    work.div_ceil(each).min(65_535) as u32
}
