//! Static analysis of buffer slices: the alignment of their addresses, and which buffers of a kernel alias.

use compiler::program::{BufferId, BufferKind, BufferRef, BufferSlice, Program};

/// A number of bytes that always divides the address of a slice; arenas and bound buffers start at multiples of `base`.
pub(crate) fn aligned(program: &Program, place: &BufferSlice, base: usize) -> usize {
    let mut n = base;
    for b in place.buffers() {
        let buffer = &program.buffers[b.0 as usize];
        if matches!(buffer.kind, BufferKind::Activation) {
            n = gcd(n, buffer.offset);
        }
    }
    n = gcd(n, place.offset.unsigned_abs() as usize);
    place.strides.iter().fold(n, |n, (_, s)| gcd(n, s.unsigned_abs() as usize))
}

fn gcd(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether two slices of one step may be the same memory. Reads and writes of a kernel are then at the same elements:
/// the compiler lets a result share memory with an operand only under this condition.
pub(crate) fn may_alias(program: &Program, a: &BufferSlice, b: &BufferSlice) -> bool {
    // The loops whose iteration count selects the buffer of a slice.
    let mut levels: Vec<usize> = [a, b]
        .iter()
        .filter_map(|p| match p.buffer {
            BufferRef::Fixed(_) => None,
            BufferRef::DoubleBuffered(level, ..) => Some(level),
        })
        .collect();
    levels.dedup();
    let of = |p: &BufferSlice, odd: u32| match p.buffer {
        BufferRef::Fixed(b) => b,
        BufferRef::DoubleBuffered(level, even_buffer, odd_buffer) => {
            let at = levels.iter().position(|l| *l == level).unwrap_or(0);
            if odd >> at & 1 == 1 { odd_buffer } else { even_buffer }
        }
    };
    (0..1u32 << levels.len()).any(|odd| overlap(program, of(a, odd), of(b, odd)))
}

fn overlap(program: &Program, a: BufferId, b: BufferId) -> bool {
    if a == b {
        return true;
    }
    let (x, y) = (&program.buffers[a.0 as usize], &program.buffers[b.0 as usize]);
    match (&x.kind, &y.kind) {
        (BufferKind::Activation, BufferKind::Activation) => {
            x.offset < y.offset + y.ty.bytes() && y.offset < x.offset + x.ty.bytes()
        }
        (BufferKind::Input(i), BufferKind::Output(o)) | (BufferKind::Output(o), BufferKind::Input(i)) => {
            program.donated.contains(&(*i, *o))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::UncheckedProgram;
    use compiler::program::{Buffer, ProgramParts};
    use ir::{DType, Type};
    use smallvec::smallvec;

    fn program() -> Program {
        let ty = Type::new(DType::F32, &[16]);
        let buffer = |class: BufferKind, offset| Buffer { ty: ty.clone(), kind: class, offset, lifetime: None };
        let buffers = vec![
            buffer(BufferKind::Input(0), 0),
            buffer(BufferKind::Output(0), 0),
            buffer(BufferKind::Output(1), 0),
            buffer(BufferKind::Activation, 0),
            buffer(BufferKind::Activation, 64),
            buffer(BufferKind::Activation, 64),
        ];
        let parts = ProgramParts {
            buffers,
            inputs: vec![ty.clone()],
            outputs: vec![ty.clone(), ty],
            steps: Vec::new(),
            arena_bytes: 128,
            max_loop_depth: 1,
            donated: vec![(0, 1)],
        };
        UncheckedProgram::new(parts).verify().unwrap()
    }

    fn fixed(b: u32) -> BufferSlice {
        BufferSlice::of(BufferId(b))
    }

    #[test]
    fn memory_that_is_shared() {
        let p = program();
        let alternating =
            |a, b| BufferSlice { buffer: BufferRef::DoubleBuffered(0, BufferId(a), BufferId(b)), ..fixed(a) };
        for (a, b, want) in [
            (fixed(0), fixed(1), false),
            (fixed(0), fixed(2), true),
            (fixed(2), fixed(0), true),
            (fixed(3), fixed(4), false),
            (fixed(4), fixed(5), true),
            (fixed(3), fixed(3), true),
            (fixed(0), fixed(3), false),
            // The carries of a loop: an iteration does not write the buffer that it reads.
            (alternating(3, 4), alternating(4, 3), false),
            (alternating(3, 4), alternating(3, 5), true),
            (alternating(3, 4), fixed(5), true),
        ] {
            assert_eq!(may_alias(&p, &a, &b), want, "{a} {b}");
        }
    }

    #[test]
    fn alignment_of_addresses() {
        let p = program();
        let at = |b, offset, strides| BufferSlice { offset, strides, ..fixed(b) };
        assert_eq!(aligned(&p, &fixed(0), 256), 256);
        assert_eq!(aligned(&p, &fixed(3), 256), 256);
        assert_eq!(aligned(&p, &fixed(4), 256), 64);
        assert_eq!(aligned(&p, &at(0, 24, smallvec![]), 256), 8);
        assert_eq!(aligned(&p, &at(0, -16, smallvec![]), 256), 16);
        assert_eq!(aligned(&p, &at(0, 0, smallvec![(0, 4)]), 256), 4);
        assert_eq!(aligned(&p, &at(4, 128, smallvec![(0, 1024), (1, 32)]), 256), 32);
    }
}
