//! Hand-made kernels, one per feature.

use super::*;
use compiler::loops::{Builder, Mode, Size};
use ir::Binary;

#[test]
fn elementwise_add_with_every_tail() {
    for n in 0..70 {
        for runtime in [false, true] {
            let mut b = Builder::new("add");
            let x = b.buffer(DType::F32, Mode::Read);
            let y = b.buffer(DType::F32, Mode::Write);
            let size = if runtime { b.size() } else { Size::Const(n) };
            b.each(LoopKind::Vector, size, |b, i| {
                let v = b.load(x, i);
                let c = b.number(DType::F32, 1.5);
                let w = b.binary(Binary::Add, v, c);
                b.store(y, i, w);
            });
            let mut rng = Rng(n as u64);
            let data = [samples(&mut rng, DType::F32, n as usize), vec![0; 4 * n as usize]];
            let sizes: &[i64] = if runtime { &[n] } else { &[] };
            check(&b.finish(), &data, sizes, Match::Exact);
        }
    }
}
