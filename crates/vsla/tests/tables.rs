//! Tables of transforms are made once for each length (§4.2). Alone in its file, since it counts for the whole process.

use cpu::convolution_lengths;
use tensorloom_vsla::{ConvAlgorithm, Tensor};

#[test]
fn s4_2_tables_of_a_length_are_made_once() {
    let ones = |n: usize| Tensor::vector(&vec![1.0f64; n]);
    let conv = |m: usize, n: usize| ones(m).conv1d_by(&ones(n), ConvAlgorithm::Fft).unwrap();
    assert!(convolution_lengths().is_empty());
    conv(700, 650);
    assert_eq!(convolution_lengths(), [1536]);
    // Other shapes, so other plans, but the same 1536 points, also in the gradients that come with them.
    conv(700, 640);
    conv(690, 660);
    assert_eq!(convolution_lengths(), [1536]);
    conv(3, 3);
    assert_eq!(convolution_lengths(), [8, 1536]);
}
