//! The cases, generated from the op tables: dtypes, short and long rows, odd sizes, all axes, forward and backward.

use crate::case::Case;
use ir::{Binary, Compare, DType, DTypeDomain, Unary};

const F: DType = DType::F32;
const D: DType = DType::F64;
const H: DType = DType::BF16;

fn takes(domain: DTypeDomain, d: DType) -> bool {
    domain.contains(d)
}

/// Returns every case.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = vec![];
    elementwise(&mut all);
    reductions(&mut all);
    rows(&mut all);
    layout(&mut all);
    places(&mut all);
    windows(&mut all);
    products(&mut all);
    routines(&mut all);
    all
}

fn elementwise(all: &mut Vec<Case>) {
    let n = [1_000_003];
    for &op in Unary::ALL {
        for d in [F, D, H, DType::I32] {
            if takes(op.domain(), d) && (d != H || op.cost() > 6) {
                all.push(Case::new(op.name(), d, &n));
            }
        }
        if takes(op.domain(), F) && op.cost() > 6 {
            all.push(Case::new(op.name(), F, &n).backward());
        }
    }
    for &op in Binary::ALL {
        if op == Binary::Zeta {
            continue;
        }
        for d in [F, D, H, DType::I32, DType::I64, DType::U8] {
            let slow = matches!(op, Binary::Div | Binary::Rem | Binary::Pow | Binary::Atan2);
            let wanted = match d {
                DType::I64 | DType::U8 => slow || op == Binary::Add,
                H => slow || op == Binary::Max,
                _ => true,
            };
            if wanted && takes(op.domain(), d) {
                all.push(Case::new(op.name(), d, &n));
            }
        }
    }
    for &op in [Binary::Pow, Binary::Atan2, Binary::Div, Binary::Max].iter() {
        all.push(Case::new(op.name(), F, &n).backward());
    }
    for &op in Compare::ALL {
        all.push(Case::new(op.name(), if op == Compare::Lt { D } else { F }, &n));
    }
    for d in [F, D, H, DType::I32] {
        all.push(Case::new("select", d, &n));
        all.push(Case::new("clamp", d, &n));
        for to in [F, D, H, DType::I32, DType::I64, DType::U8] {
            if d != to && (d == F || to == F) {
                all.push(Case::new("cast", d, &n).with("to", to));
            }
        }
    }
    for name in ["gelu", "gelu_tanh", "silu", "relu"] {
        all.push(Case::new(name, F, &n));
        all.push(Case::new(name, F, &n).backward());
    }
    all.push(Case::new("add", F, &[16]));
    all.push(Case::new("add", F, &[10_000_000]));
    all.push(Case::new("add_row", F, &[1000, 1001]));
    all.push(Case::new("add_column", F, &[1000, 1001]));
}

fn reductions(all: &mut Vec<Case>) {
    let places: &[(&[usize], &str)] = &[
        (&[1000, 1000], "1"),
        (&[1000, 1000], "0"),
        (&[1000, 1000], "0,1"),
        (&[64, 128, 128], "1"),
        (&[64, 128, 128], "0,2"),
        (&[16, 64, 32, 33], "0,2,3"),
        (&[100_000, 7], "1"),
        (&[7, 100_000], "0"),
        (&[3, 300_001], "1"),
        (&[300_001, 3], "0"),
    ];
    for (shape, axes) in places {
        for op in ["reduce_sum", "reduce_max", "reduce_prod"] {
            all.push(Case::new(op, F, shape).with("axes", axes));
        }
        all.push(Case::new("reduce_sum", F, shape).with("axes", axes).backward());
        for d in [D, H, DType::I32] {
            all.push(Case::new("reduce_sum", d, shape).with("axes", axes));
        }
    }
    all.push(Case::new("reduce_max", F, &[64, 128, 128]).with("axes", "1").backward());
    all.push(Case::new("reduce_prod", F, &[1000, 1000]).with("axes", "1").backward());
    for (shape, axis) in [
        (&[1000, 1000][..], 1),
        (&[1000, 1000], 0),
        (&[64, 128, 128], 1),
        (&[3, 300_001], 1),
        (&[100_000, 7], 1),
        (&[1_000_000], 0),
    ] {
        for op in ["argmax", "cumsum", "cumprod", "cummax"] {
            all.push(Case::new(op, F, shape).with("axis", axis));
        }
        all.push(Case::new("cumsum", F, shape).with("axis", axis).backward());
        all.push(Case::new("argmax", DType::I32, shape).with("axis", axis));
    }
    all.push(Case::new("cumprod", F, &[1000, 1000]).with("axis", 1).backward());
    all.push(Case::new("variance", F, &[1000, 1000]).with("axes", "1"));
    all.push(Case::new("variance", F, &[64, 128, 128]).with("axes", "0,2"));
}

fn rows(all: &mut Vec<Case>) {
    for (shape, axis) in
        [(&[1000, 1000][..], 1), (&[1000, 1000], 0), (&[64, 128, 128], 1), (&[100_000, 7], 1), (&[3, 300_001], 1)]
    {
        for op in ["softmax", "log_softmax", "logsumexp"] {
            all.push(Case::new(op, F, shape).with("axis", axis));
        }
        all.push(Case::new("softmax", F, shape).with("axis", axis).backward());
    }
    for shape in [&[1000, 1000][..], &[10_007, 65]] {
        for op in ["layernorm", "rmsnorm"] {
            all.push(Case::new(op, F, shape));
            all.push(Case::new(op, F, shape).backward());
            all.push(Case::new(op, H, shape));
        }
    }
    for shape in [&[16, 64, 32, 32][..], &[8, 48, 17, 19]] {
        for op in ["group_norm", "batch_norm"] {
            all.push(Case::new(op, F, shape).with("groups", 8));
            all.push(Case::new(op, F, shape).with("groups", 8).backward());
        }
    }
    for (rows, classes) in [(1024, 1000), (64, 32_000)] {
        all.push(Case::new("cross_entropy", F, &[rows, classes]).with("classes", classes));
        all.push(Case::new("cross_entropy", F, &[rows, classes]).with("classes", classes).backward());
    }
}

fn layout(all: &mut Vec<Case>) {
    for d in [F, D, H, DType::U8] {
        for shape in [&[1000, 1000][..], &[3, 400_000], &[400_000, 3], &[1021, 517]] {
            all.push(Case::new("permute", d, shape).with("perm", "1,0"));
        }
    }
    for perm in ["0,2,1", "2,1,0", "1,0,2", "1,2,0"] {
        all.push(Case::new("permute", F, &[64, 100, 120]).with("perm", perm));
    }
    all.push(Case::new("permute", F, &[16, 64, 32, 33]).with("perm", "0,2,3,1"));
    for (parts, axis) in [(2, 0), (2, 1), (16, 0), (16, 1), (64, 1)] {
        for d in [F, DType::U8] {
            all.push(Case::new("concat", d, &[500, 50]).with("parts", parts).with("axis", axis));
        }
    }
    all.push(Case::new("concat", F, &[500, 50]).with("parts", 16).with("axis", 1).backward());
    for op in ["flip", "pad", "slice", "tile", "roll"] {
        for axis in [0, 1] {
            all.push(Case::new(op, F, &[1000, 1001]).with("axis", axis));
        }
    }
    all.push(Case::new("flip", DType::U8, &[1000, 1001]).with("axis", 1));
}

fn places(all: &mut Vec<Case>) {
    for (shape, axis, n) in [(&[10_000, 64][..], 0, 20_000), (&[100_000, 4], 0, 100_000), (&[512, 1000], 1, 2000)] {
        for op in ["take", "scatter_add", "scatter_set", "scatter_max"] {
            all.push(Case::new(op, F, shape).with("axis", axis).with("n", n).with("classes", shape[axis]));
        }
        all.push(Case::new("take", F, shape).with("axis", axis).with("n", n).with("classes", shape[axis]).backward());
    }
    for (shape, axis) in [(&[1000, 1000][..], 1), (&[1000, 1000], 0)] {
        all.push(Case::new("take_along", F, shape).with("axis", axis).with("classes", 1000));
        all.push(Case::new("take_along", F, shape).with("axis", axis).with("classes", 1000).backward());
    }
    for classes in [256, 100_000] {
        all.push(Case::new("histogram", DType::I32, &[1_000_000]).with("classes", classes));
    }
    all.push(Case::new("embedding", F, &[32_000, 128]).with("n", 8192).with("classes", 32_000));
    all.push(Case::new("embedding", F, &[32_000, 128]).with("n", 8192).with("classes", 32_000).backward());
    for (shape, axis) in [(&[1_000_000][..], 0), (&[1000, 1000], 1), (&[1000, 1000], 0), (&[50_000, 16], 1)] {
        for d in [F, DType::I32, DType::U8] {
            all.push(Case::new("sort", d, shape).with("axis", axis));
        }
        all.push(Case::new("argsort", F, shape).with("axis", axis));
    }
    all.push(Case::new("sort", F, &[1000, 1000]).with("axis", 1).backward());
    for (shape, k) in
        [(&[1000, 1000][..], 1), (&[1000, 1000], 10), (&[1000, 1000], 200), (&[8, 100_000], 50), (&[20_000, 32], 4)]
    {
        all.push(Case::new("top_k", F, shape).with("k", k));
    }
}

fn windows(all: &mut Vec<Case>) {
    for (kind, window, stride) in [("max", 2, 2), ("max", 3, 1), ("sum", 2, 2), ("sum", 3, 1), ("sum", 7, 1)] {
        let c = Case::new(&format!("pool_{kind}"), F, &[16, 32, 56, 56]).with("window", window).with("stride", stride);
        all.push(c.clone());
        all.push(c.backward());
    }
    all.push(Case::new("pool_sum", F, &[64, 10_000]).with("window", 100).with("stride", 1));
    let kinds: &[(&str, &[usize])] = &[
        // batch, features, height, width; out, kernel, stride, groups.
        ("conv", &[16, 32, 32, 32, 64, 3, 1, 1]),
        ("conv", &[16, 64, 28, 28, 64, 1, 1, 1]),
        ("conv", &[16, 64, 32, 32, 128, 3, 2, 1]),
        ("conv", &[16, 3, 64, 64, 32, 7, 2, 1]),
        ("conv", &[16, 64, 32, 32, 64, 3, 1, 64]),
        ("conv", &[16, 64, 32, 32, 64, 3, 2, 64]),
        ("conv", &[16, 64, 32, 32, 64, 3, 1, 8]),
        ("conv", &[1, 16, 17, 23, 24, 5, 1, 1]),
        ("conv_transpose", &[16, 64, 16, 16, 32, 2, 2, 1]),
        ("conv_transpose", &[16, 64, 16, 16, 32, 4, 2, 1]),
    ];
    for (op, s) in kinds {
        let c =
            Case::new(op, F, &s[..4]).with("out", s[4]).with("kernel", s[5]).with("stride", s[6]).with("groups", s[7]);
        all.push(c.clone());
        all.push(c.backward());
    }
    all.push(
        Case::new("conv", H, &[16, 32, 32, 32]).with("out", 64).with("kernel", 3).with("stride", 1).with("groups", 1),
    );
    all.push(Case::new("conv1d", F, &[16, 64, 4096]).with("out", 64).with("kernel", 3));
}

fn products(all: &mut Vec<Case>) {
    for d in [F, D, H, DType::F16, DType::I8] {
        for s in [&[256, 256, 256][..], &[512, 512, 512], &[1, 1024, 1024], &[127, 333, 65]] {
            all.push(Case::new("matmul", d, s));
        }
    }
    all.push(Case::new("matmul", F, &[1024, 1024, 1]));
    all.push(Case::new("matmul", F, &[512, 512, 512]).backward());
    all.push(Case::new("matmul", F, &[4096, 16, 16]));
    all.push(Case::new("matmul", F, &[16, 4096, 16]));
    for s in [&[64, 64, 64, 64][..], &[512, 16, 16, 16], &[32, 128, 32, 128]] {
        all.push(Case::new("batch_matmul", F, s));
    }
    all.push(Case::new("batch_matmul", H, &[32, 128, 64, 128]));
    for causal in [0, 1] {
        let c = Case::new("attention", F, &[4, 8, 256, 64]).with("causal", causal);
        all.push(c.clone());
        all.push(c.backward());
    }
}

fn routines(all: &mut Vec<Case>) {
    for op in ["fft", "rfft", "irfft"] {
        for (shape, axes) in [
            (&[1024, 1024][..], "1"),
            (&[1024, 1024], "0"),
            (&[65_536], "0"),
            (&[1000, 1000], "1"),
            (&[512, 512], "0,1"),
            (&[1000, 64], "1"),
        ] {
            all.push(Case::new(op, F, shape).with("axes", axes));
        }
    }
    for op in ["cholesky", "lu", "qr", "eigh", "svd", "svd_values", "triangular_solve"] {
        for d in [F, D] {
            for shape in [&[256, 256][..], &[512, 512], &[200, 16, 16]] {
                all.push(Case::new(op, d, shape));
            }
        }
    }
    all.push(Case::new("cholesky", F, &[256, 256]).backward());
    all.push(Case::new("svd", F, &[512, 64]));
    all.push(Case::new("qr", F, &[1024, 64]));
}
