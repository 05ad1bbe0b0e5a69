//! A prepared dispatch; only the addresses of its memory are resolved later.

use super::allocations::{ARENA, Allocations, CONSTANTS, Iteration};
use super::binding_split::split;
use crate::wgpu::ShaderSource;
use compiler::program::{BufferRef, BufferSlice};
use compiler::{Error, Result};
use smallvec::SmallVec;

/// A dispatch.
pub(super) struct Launch {
    /// The loops whose iteration count selects double buffers.
    levels: SmallVec<[usize; 2]>,
    /// The variants by the parity of those loops.
    variants: SmallVec<[Variant; 1]>,
    pub(super) args: Vec<Argument>,
    /// The parameters after those of the arguments.
    pub(super) params: Vec<u32>,
    pub(super) grid: [u32; 3],
}

/// A dispatch with certain memory locations.
pub(super) struct Variant {
    /// The index of its pipeline.
    pub(super) pipeline: usize,
    /// The bound memory ranges.
    pub(super) bound: SmallVec<[Window; 8]>,
    /// For each argument the index of the binding that contains it, or its first part.
    pub(super) binding_of_arg: SmallVec<[usize; 8]>,
}

/// A part of one allocation that a kernel binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) root: usize,
    pub(super) start: usize,
    /// Up to the end of the allocation if none.
    pub(super) bytes: Option<usize>,
}

/// A memory argument of a kernel.
#[derive(Clone)]
pub(super) struct Argument {
    pub(super) place: Where,
    /// The bytes of an element.
    pub(super) size: usize,
}

#[derive(Clone)]
pub(super) enum Where {
    Place(BufferSlice),
    /// A range of the arena: offset and number of bytes.
    Scratch(usize, usize),
}

impl Argument {
    pub(super) fn place(p: &BufferSlice, size: usize) -> Argument {
        Argument { place: Where::Place(p.clone()), size }
    }

    pub(super) fn scratch(at: usize, bytes: usize) -> Argument {
        Argument { place: Where::Scratch(at, bytes), size: 4 }
    }

    /// The byte of its allocation that it starts at.
    pub(super) fn byte(&self, roots: &Allocations, at: &dyn Iteration) -> usize {
        match &self.place {
            Where::Place(p) => roots.find(p, at).1,
            Where::Scratch(offset, _) => *offset,
        }
    }

    /// Its allocation, and the byte range of it that a kernel may access.
    fn extent(&self, roots: &Allocations, at: &dyn Iteration) -> (usize, usize, usize) {
        match &self.place {
            Where::Place(p) => roots.extent(p, at),
            Where::Scratch(offset, bytes) => (ARENA, *offset, offset + bytes),
        }
    }
}

/// An iteration of each loop that selects double buffers.
struct Parity<'a> {
    levels: &'a [usize],
    bits: usize,
}

impl Iteration for Parity<'_> {
    fn odd(&self, level: usize) -> bool {
        self.levels.iter().position(|l| *l == level).is_some_and(|k| self.bits >> k & 1 == 1)
    }

    fn index(&self, _: usize) -> i64 {
        0
    }
}

/// The binding limits of a kernel.
#[derive(Clone, Copy)]
pub(super) struct BindingLimits {
    /// The maximum bytes of a binding.
    pub(super) binding: usize,
    /// The maximum number of bindings.
    pub(super) count: usize,
    /// Whether the arena, including scratch, fits in one binding.
    pub(super) arena_fits: bool,
    /// Whether the constants fit in one binding.
    pub(super) constants_fit: bool,
}

impl Launch {
    /// The numbers of its pipelines.
    pub(super) fn pipelines(&self) -> impl Iterator<Item = usize> + '_ {
        self.variants.iter().map(|v| v.pipeline)
    }

    /// A dispatch of a kernel whose source depends on its memory locations; `pipeline` returns the index for a source.
    pub(super) fn new(
        roots: &Allocations,
        reach: BindingLimits,
        args: Vec<Argument>,
        params: Vec<u32>,
        grid: [u32; 3],
        text: &dyn Fn(&[usize]) -> ShaderSource,
        pipeline: &mut dyn FnMut(ShaderSource) -> usize,
    ) -> Result<Launch> {
        let mut levels: SmallVec<[usize; 2]> = SmallVec::new();
        for a in &args {
            if let Where::Place(BufferSlice { buffer: BufferRef::DoubleBuffered(level, ..), .. }) = &a.place
                && !levels.contains(level)
            {
                levels.push(*level);
            }
        }
        let mut variants: SmallVec<[Variant; 1]> = SmallVec::new();
        for bits in 0..1usize << levels.len() {
            let at = Parity { levels: &levels, bits };
            let extents: Vec<(usize, usize, usize)> = args.iter().map(|a| a.extent(roots, &at)).collect();
            let windows = argument_windows(&extents, reach);
            let (mut bound, mut homes) = (Vec::<Window>::new(), Vec::new());
            for w in windows {
                homes.push(bound.iter().position(|b| *b == w).unwrap_or_else(|| {
                    bound.push(w);
                    bound.len() - 1
                }));
            }
            let text = text(&homes);
            // A range that exceeds the binding limit is bound in parts.
            let parts: Vec<usize> =
                bound.iter().map(|w| w.bytes.map_or(1, |n| n.div_ceil(reach.binding)).max(1)).collect();
            let count = parts.iter().sum::<usize>();
            if count > reach.count {
                return Err(Error::Backend(format!(
                    "a kernel needs {count} parts of memory at once ({}), this adapter's kernels have {} at most, of {} MiB each; \
                     smaller shapes or a smaller batch need fewer",
                    sizes(&extents),
                    reach.count,
                    reach.binding >> 20
                )));
            }
            let first = |h: usize| parts[..h].iter().sum::<usize>();
            let homes = homes.into_iter().map(first).collect();
            let text = split(text, &parts, reach.binding / 4);
            let bound: SmallVec<[Window; 8]> =
                bound.iter().zip(&parts).flat_map(|(w, n)| (0..*n).map(|k| w.part(k, *n, reach.binding))).collect();
            let pipeline = pipeline(unify_access(text, &bound));
            variants.push(Variant { pipeline, bound, binding_of_arg: homes });
        }
        Ok(Launch { levels, variants, args, params, grid })
    }

    /// The variant for an iteration.
    pub(super) fn variant(&self, at: &dyn Iteration) -> &Variant {
        let odd = |(k, level): (usize, &usize)| (at.odd(*level) as usize) << k;
        &self.variants[self.levels.iter().enumerate().map(odd).sum::<usize>()]
    }
}

/// Makes all bindings of one allocation writable if one of them is, because WebGPU tracks buffers, not their parts.
fn unify_access(mut text: ShaderSource, bound: &[Window]) -> ShaderSource {
    for i in 0..text.bindings.len() {
        let written = (0..text.bindings.len()).any(|j| bound[j].root == bound[i].root && text.bindings[j].writable);
        if written && !text.bindings[i].writable {
            let declared = |access: &str| format!("@binding({i}) var<storage, {access}> g{i}:");
            text.source = text.source.replacen(&declared("read"), &declared("read_write"), 1);
            text.bindings[i].writable = true;
        }
    }
    text
}

/// The sizes of a kernel's arguments, for messages.
fn sizes(extents: &[(usize, usize, usize)]) -> String {
    let all: Vec<String> = extents.iter().map(|e| format!("{:.1}", (e.2 - e.1) as f64 / (1 << 20) as f64)).collect();
    format!("of values of {} MiB", all.join(", "))
}

impl Window {
    /// Part `k` of an allocation that is bound in several parts, each with the maximum binding size except the last.
    fn part(&self, k: usize, parts: usize, binding: usize) -> Window {
        let Some(bytes) = self.bytes.filter(|_| parts > 1) else { return *self };
        Window { start: self.start + k * binding, bytes: Some((bytes - k * binding).min(binding)), ..*self }
    }
}

/// The bound range for each argument: its allocation, or a part of an arena or of constants that exceed the binding limit. A
/// range that exceeds the limit itself contains a single large value.
fn argument_windows(extents: &[(usize, usize, usize)], reach: BindingLimits) -> Vec<Window> {
    let whole = |e: &(usize, usize, usize)| {
        let bytes = e.2 - e.1;
        Window { root: e.0, start: 0, bytes: (bytes > reach.binding).then(|| bytes.next_multiple_of(4)) }
    };
    let cut = |root: usize| (root == ARENA && !reach.arena_fits) || (root == CONSTANTS && !reach.constants_fit);
    let joined = [ARENA, CONSTANTS].map(|root| match cut(root) {
        true => bound_parts(extents, root, reach.binding),
        false => Vec::new(),
    });
    let window = |e: &(usize, usize, usize)| match *e {
        (root, start, _) if cut(root) => {
            let part = joined[root].iter().find(|p| p.0 <= start && start < p.1.max(p.0 + 1));
            let (start, end) = part.copied().unwrap_or((start / 256 * 256, start + 4));
            Window { root, start, bytes: Some((end - start).next_multiple_of(4).max(4)) }
        }
        (ARENA | CONSTANTS, ..) => Window { root: e.0, start: 0, bytes: None },
        _ => whole(e),
    };
    extents.iter().map(window).collect()
}

/// Groups an allocation's ranges from the start: as many as fit in one binding; overlapping ranges stay together.
fn bound_parts(extents: &[(usize, usize, usize)], root: usize, binding: usize) -> Vec<(usize, usize)> {
    let mut parts: Vec<(usize, usize)> = extents.iter().filter(|e| e.0 == root).map(|e| (e.1, e.2)).collect();
    parts.sort_unstable();
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (start, end) in parts {
        let start = start / 256 * 256;
        match joined.last_mut() {
            Some(last) if start < last.1.next_multiple_of(256) || end.max(last.1) - last.0 <= binding => {
                last.1 = last.1.max(end);
            }
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The number of workgroups for this much work, in one dimension.
pub(super) fn blocks(work: usize, each: usize) -> u32 {
    work.div_ceil(each).min(65_535) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_that_is_too_large_is_bound_in_parts() {
        let reach = BindingLimits { binding: 1000, count: 8, arena_fits: false, constants_fit: true };
        let check = |extents: &[(usize, usize, usize)], want: &[(usize, usize)]| {
            let got = argument_windows(extents, reach);
            let got: Vec<(usize, usize)> = got.iter().map(|w| (w.start, w.bytes.unwrap_or(0))).collect();
            assert_eq!(got, want, "{extents:?}");
        };
        check(&[(0, 0, 300), (0, 512, 900)], &[(0, 900), (0, 900)]);
        check(&[(0, 0, 600), (0, 768, 1500)], &[(0, 600), (768, 732)]);
        // In the order of the arguments, with other allocations as a whole.
        check(&[(0, 2048, 2448), (3, 0, 900), (0, 0, 600)], &[(2048, 400), (0, 0), (0, 600)]);
        // A result that overwrites an operand is bound with it.
        check(&[(0, 256, 856), (0, 256, 856)], &[(256, 600), (256, 600)]);
        // Overlapping ranges that do not fit; a value that is too large.
        check(&[(0, 0, 700), (0, 512, 1300)], &[(0, 1300), (0, 1300)]);
        check(&[(3, 0, 2400), (4, 0, 8)], &[(0, 2400), (0, 0)]);
        // Constants that are too large together, and an arena that fits.
        let got = argument_windows(
            &[(CONSTANTS, 2048, 2448), (ARENA, 0, 10)],
            BindingLimits { arena_fits: true, constants_fit: false, ..reach },
        );
        assert_eq!((got[0].start, got[0].bytes, got[1].bytes), (2048, Some(400), None));
        let parts: Vec<Window> =
            (0..3).map(|k| Window { root: 3, start: 0, bytes: Some(2400) }.part(k, 3, 1024)).collect();
        let parts: Vec<(usize, usize)> = parts.iter().map(|w| (w.start, w.bytes.unwrap_or(0))).collect();
        assert_eq!(parts, [(0, 1024), (1024, 1024), (2048, 352)]);
    }
}
