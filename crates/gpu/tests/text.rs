//! Snapshots of grids and their CUDA source.

use compiler::loops::{AccessMode, KernelBuilder, LoopKind, Size};
use ir::{Binary, DType};
use tensorloom_gpu::{cuda, grid};

#[test]
fn a_map_is_cut_into_pieces() {
    let mut b = KernelBuilder::new("double");
    let (x, y) = (b.buffer(DType::F32, AccessMode::Read), b.buffer(DType::F32, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(100), |b, i| {
        let v = b.load(x, i);
        let w = b.binary(Binary::Add, v, v);
        b.store(y, i, w);
    });
    let g = grid::lower(&b.finish(), &grid::GridLimits::CUDA, &grid::LaunchInfo::default()).unwrap();
    let text = "\
grid double(b0: in f32, b1: out f32) 128 threads, 1 teams, work 100/128 {
  r0: i32 = thread
  r1: i32 = 127
  r2: i32 = and r0, r1
  r3: i32 = 0
  r4: bool = eq r2, r3
  r5: i32 = 1
  r6: i32 = 100
  r7: i32 = 127
  r8: i32 = 128
  r9: i32 = add r6, r7
  r10: i32 = div r9, r8
  r11: i32 = block
  r12: i32 = 1
  r13: i32 = mul r11, r12
  r14: i32 = 128
  r15: i32 = mul r13, r14
  r16: i32 = 100
  r17: i32 = 128
  r18: i32 = add r15, r17
  r19: i32 = add r15, r2
  r20: i32 = min r16, r18
  r21: i32 = 128
  for r22 = r19; < r20; += r21 {
    r23 = b0[r22]
    r24: f32 = add r23, r23
    b1[r22] = r24
  }
}";
    assert_eq!(g.to_string(), text);
    let text = cuda::function("twice", &g);
    for line in [
        "extern \"C\" __global__ void __launch_bounds__(128) twice(const f32* __restrict__ b0, f32* __restrict__ b1) {",
        "    wait_turn();",
        "    const i32 r13 = mul<i32, u32>(r11, r12);",
        "    for (i32 r22 = r19; r22 < r20; r22 += r21) {",
        "        const f32 r23 = b0[r22];",
        "        const f32 r24 = r23 + r23;",
        "        b1[r22] = r24;",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}
