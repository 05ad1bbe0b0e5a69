//! `threefry2x32(key0, key1, x0, x1)`: the counter-based generator of all random numbers, elementwise on u32.
//!
//! Random123's Threefry-2x32 with 20 rounds, bit for bit as JAX computes it.

use super::elementwise::batch_map;
use super::*;
use crate::dtype::DType;
use crate::literal::Element;

/// `threefry2x32(k0, k1, x0, x1)`: one block of Threefry-2x32, JAX's random bits, for each element; two results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threefry2x32;

const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
const PARITY: u32 = 0x1BD1_1BDA;

/// The block function on scalars.
pub fn threefry2x32(key: [u32; 2], mut x: [u32; 2]) -> [u32; 2] {
    let ks = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    x = [x[0].wrapping_add(ks[0]), x[1].wrapping_add(ks[1])];
    for round in 0..5 {
        for r in ROTATIONS[round % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(r) ^ x[0];
        }
        x[0] = x[0].wrapping_add(ks[(round + 1) % 3]);
        x[1] = x[1].wrapping_add(ks[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    x
}

impl Rules for Threefry2x32 {
    fn name(&self) -> &'static str {
        "threefry2x32"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 4)?;
        for (operand, t) in args.iter().enumerate() {
            if t.dtype != DType::U32 {
                return Err(InferError::DType { operand, expected: "u32", got: t.dtype });
            }
            if t.shape != args[0].shape {
                return Err(InferError::Shapes(args[0].shape.clone(), t.shape.clone()));
            }
        }
        Ok(vec![args[0].clone(), args[0].clone()])
    }

    no_tangent!();
    split_whole!();
    never_linear!();

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        batch_map(Threefry2x32.into(), cx, x, batched, size)
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Index(Indexing::Threefry)
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let types = eval_types(self, args)?;
        let block = |i: usize| {
            let [k0, k1, x0, x1] = [0, 1, 2, 3].map(|n| u32::from_scalar(args[n].get(i)));
            threefry2x32([k0, k1], [x0, x1])
        };
        Ok(types.into_iter().enumerate().map(|(k, ty)| Literal::from_fn(ty, |i| block(i)[k].to_scalar())).collect())
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Threefry2x32>> {
        (name == "threefry2x32").then_some(Ok(Threefry2x32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_jax() {
        // The known-answer tests of Random123, and `jax.extend.random.threefry_2x32` of key (1, 2) over 0..6, which pairs the
        // first half of the counters with the second.
        let rows = [
            ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
            ([u32::MAX; 2], [u32::MAX; 2], [0x1cb9_96fc, 0xbb00_2be7]),
            ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3], [0xc492_3a9c, 0x483d_f7a0]),
            ([1, 2], [0, 3], [0x7a58_200f, 0x7011_cb50]),
            ([1, 2], [1, 4], [0xd0e5_f1df, 0x7220_8658]),
            ([1, 2], [2, 5], [0x3dea_a527, 0x3d36_ec0b]),
        ];
        for (key, x, expected) in rows {
            assert_eq!(threefry2x32(key, x), expected, "{key:x?} {x:x?}");
        }
    }
}
