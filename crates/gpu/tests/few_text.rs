//! Products with few rows: the kernels compiled by the host's C++ compiler (skipped without one), compared with sums in f64.

use compiler::program::Matmul;
use ir::{DType, Scalar};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tensorloom_gpu::cuda::{PRELUDE, SkinnyMatmul, gemv};
use testing::Rng;
use testing::rng::run_seed;

fn compiler() -> Option<String> {
    let named = std::env::var("CXX").ok();
    let all = named.into_iter().chain(["c++", "g++", "clang++"].map(String::from));
    all.into_iter().find(|c| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success()))
}

/// A product with few rows on either side, with any batch and strides with gaps.
fn shape(rng: &mut Rng) -> Matmul {
    let dtype = *rng.pick(&[DType::F32, DType::BF16, DType::F16]);
    let out = if rng.bernoulli(0.3) { DType::F32 } else { dtype };
    let each = 16 / dtype.size();
    let (few, many) = (1 + rng.below(4), 64 + rng.below(7));
    let k = each * (32 + rng.below(100));
    let batch = 1 + rng.below(2);
    let gap = each * rng.below(2);
    let (m, n) = if rng.bernoulli(0.5) { (few, many) } else { (many, few) };
    let wide = k + gap;
    let shared = rng.bernoulli(0.5);
    let a = [(m * wide) as isize, wide as isize, 1];
    let b = [if shared { 0 } else { (n * wide) as isize }, 1, wide as isize];
    let c = [(m * n) as isize, n as isize, 1];
    Matmul { dtype, acc: DType::F32, out, batch, m, n, k, a, b, c }
}

fn values(d: DType, n: usize, rng: &mut Rng) -> Vec<Scalar> {
    (0..n).map(|_| Scalar::from_f64(d, rng.below(2001) as f64 / 1000.0 - 1.0)).collect()
}

fn bytes(values: &[Scalar]) -> Vec<u8> {
    values.iter().flat_map(|s| s.bits().to_le_bytes()[..s.dtype().size()].to_vec()).collect()
}

#[test]
fn products_of_few_rows_are_what_they_should_be() {
    let Some(cxx) = compiler() else {
        println!("skipped: no C++ compiler (set CXX)");
        return;
    };
    let mut rng = Rng::new(run_seed());
    let cases: Vec<(Matmul, SkinnyMatmul)> = (0..8)
        .map(|_| {
            let s = shape(&mut rng);
            let few = SkinnyMatmul::of(&s, [16, 16]).unwrap_or_else(|| panic!("not taken: {s:?}"));
            (s, few)
        })
        .collect();
    let tests = format!("{}/tests", env!("CARGO_MANIFEST_DIR"));
    let mut text = format!("#include \"{tests}/shim.h\"\n{PRELUDE}\n");
    let mut known: Vec<String> = Vec::new();
    for (s, f) in &cases {
        let (entry, own) = f.text();
        if known.contains(&entry) {
            continue;
        }
        text += &own;
        let ty = |d: DType| if d == DType::F32 { "f32" } else { "u16" };
        let (x, y) = (ty(s.dtype), ty(s.out));
        let sizes: Vec<String> = (0..11).map(|n| format!("s[{n}]")).collect();
        let _ = writeln!(
            text,
            "static void call{}(u8** a, i64* s) {{ {entry}(({x}*)a[0], ({x}*)a[1], ({y}*)a[2], {}); }}",
            known.len(),
            sizes.join(", ")
        );
        known.push(entry);
    }
    let table: Vec<String> = (0..known.len()).map(|i| format!("call{i}")).collect();
    let _ =
        writeln!(text, "static const Entry table[] = {{{}}};\nint main() {{ return serve(table); }}", table.join(", "));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("few.cpp"), folder.join("few"));
    std::fs::write(&source, text).unwrap();
    let flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let built = Command::new(cxx).args(flags).arg("-o").arg(&program).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for (s, f) in &cases {
        let room = |strides: [isize; 3], sizes: [usize; 3]| {
            1 + strides.iter().zip(sizes).map(|(x, n)| *x as usize * (n - 1)).sum::<usize>()
        };
        let a = values(s.dtype, room(s.a, [s.batch, s.m, s.k]), &mut rng);
        let b = values(s.dtype, room(s.b, [s.batch, s.k, s.n]), &mut rng);
        let results = s.batch * s.m * s.n;
        let (first, second) = if f.swapped() { (&b, &a) } else { (&a, &b) };
        let regions = [bytes(first), bytes(second), vec![0xA5; results * s.out.size()]];
        let mut input = Vec::new();
        let mut number = |n: i64| input.extend(n.to_le_bytes());
        let index = known.iter().position(|k| *k == f.text().0).unwrap();
        [1, index as i64, gemv::THREADS as i64, f.blocks(s) as i64, 1, 11].into_iter().for_each(&mut number);
        f.sizes(s, rng.bernoulli(0.5)).into_iter().for_each(&mut number);
        number(3);
        for r in &regions {
            input.extend((r.len() as i64).to_le_bytes());
            input.extend(r);
        }
        [3i64, 0, 0, 1, 0, 2, 0].into_iter().for_each(|n| input.extend(n.to_le_bytes()));
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join();
        assert!(output.status.success(), "{s:?}");
        let got = &output.stdout[regions[0].len() + regions[1].len()..];
        let tolerance = match s.out {
            DType::F32 => 1e-4,
            DType::F16 => 2e-3,
            _ => 1e-2,
        };
        for (z, i, j) in (0..s.batch).flat_map(|z| (0..s.m).flat_map(move |i| (0..s.n).map(move |j| (z, i, j)))) {
            let at =
                |strides: [isize; 3], p: [usize; 3]| strides.iter().zip(p).map(|(x, n)| *x as usize * n).sum::<usize>();
            let want: f64 = (0..s.k).map(|l| a[at(s.a, [z, i, l])].to_f64() * b[at(s.b, [z, l, j])].to_f64()).sum();
            let (size, place) = (s.out.size(), at(s.c, [z, i, j]));
            let mut word = [0; 8];
            word[..size].copy_from_slice(&got[place * size..place * size + size]);
            let have = Scalar::from_bits(s.out, u64::from_le_bytes(word)).to_f64();
            assert!(
                (have - want).abs() <= tolerance * (1.0 + want.abs()),
                "{s:?}: [{z}, {i}, {j}] is {have}, not {want}"
            );
        }
    }
}

/// x · wᵀ: both operands are contiguous along the contracted axis.
fn dense(m: usize, n: usize, k: usize, d: DType) -> Matmul {
    let [mi, ni, ki] = [m, n, k].map(|x| x as isize);
    let (a, b, c) = ([mi * ki, ki, 1], [0, 1, ki], [mi * ni, ni, 1]);
    Matmul { dtype: d, acc: DType::F32, out: d, batch: 1, m, n, k, a, b, c }
}

#[test]
fn few_rows_or_columns_that_are_dense_along_the_sum_are_taken() {
    let one = dense(1, 2048, 8192, DType::BF16);
    let few = SkinnyMatmul::of(&one, [16, 16]).expect("one row");
    assert_eq!((few.text().0.as_str(), few.blocks(&one), few.swapped()), ("few_1_2_4_bf16_bf16", 1024, false));
    let wide = dense(1, 50_000, 768, DType::F32);
    let few = SkinnyMatmul::of(&wide, [16, 16]).expect("one row");
    assert_eq!((few.text().0.as_str(), few.blocks(&wide)), ("few_1_4_4_f32_f32", 12_500));
    let swapped = dense(4096, 2, 512, DType::F16);
    let few = SkinnyMatmul::of(&swapped, [16, 16]).expect("two columns");
    assert!(few.swapped());
    assert_eq!(few.sizes(&swapped, true), [1, 4096, 512, 0, 512, 4096 * 512, 512, 8192, 1, 2, 1]);
    for (s, aligned) in [
        (dense(5, 2048, 2048, DType::BF16), [16, 16]),
        (dense(1, 2048, 2046, DType::BF16), [16, 16]),
        (dense(1, 2048, 2048, DType::BF16), [16, 8]),
        (dense(1, 2048, 2048, DType::F64), [16, 16]),
        (Matmul { b: [0, 2048, 1], ..dense(1, 2048, 2048, DType::BF16) }, [16, 16]),
    ] {
        assert_eq!(SkinnyMatmul::of(&s, aligned), None, "{s:?}");
    }
}
