//! The random generator op.

use crate::check::check;
use ir::{Binary, GraphBuilder, Literal};

#[test]
fn it_is_elementwise_in_every_operand() {
    let inputs = [[1u32; 3], [2; 3], [0, 1, 2], [3, 4, 5]].map(|d| Literal::new(&[3], &d));
    let y = check("threefry", &inputs, |b, v| {
        let [a, c] = b.threefry2x32([v[0], v[1]], [v[2], v[3]])?;
        b.binary(Binary::Xor, a, c)
    });
    let expected = [0x7a58_200fu32 ^ 0x7011_cb50, 0xd0e5_f1df ^ 0x7220_8658, 0x3dea_a527 ^ 0x3d36_ec0b];
    assert_eq!(y[0].to_vec::<u32>(), expected);
    check("rank 0", &[7u32, 8, 9, 10].map(|d| Literal::new(&[], &[d])), |b, v| {
        Ok(b.threefry2x32([v[0], v[1]], [v[2], v[3]])?[1])
    });
}
