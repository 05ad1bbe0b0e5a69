//! Hostile numbers: every attribute of every node, and every operand that determines a shape, is set in turn to numbers that
//! overflow, divide by zero or need more memory than there is. The import ends with a model or an error, without a panic, and
//! uses little memory for small files.
//!
//! By default one case of 40 is tested; `ONNX_HOSTILE=1` tests all.

use super::support;
use prost::Message;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tensorloom_onnx::proto::*;
use tensorloom_onnx::{ImportOptions, InputInfo};

/// Maximum number of bytes that the import of a small file may allocate, summed over all allocations of its thread.
const MOST: usize = 1 << 30;

/// An allocator that counts the bytes of each thread.
struct Counted;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is the system's allocator's, which is asked with the same arguments; counting doesn't allocate.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ASKED.try_with(|a| a.set(a.get().saturating_add(layout.size())));
        // SAFETY: `GlobalAlloc::alloc` has the same contract for the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: `p` was allocated by the system allocator with `layout`, since every allocation here is.
        unsafe { System.dealloc(p, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ASKED.try_with(|a| a.set(a.get().saturating_add(layout.size())));
        // SAFETY: `GlobalAlloc::alloc_zeroed` has the same contract for the system allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ASKED.try_with(|a| a.set(a.get().saturating_add(size.saturating_sub(layout.size()))));
        // SAFETY: `p` was allocated by the system allocator with `layout`, since every allocation here is.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

const NUMBERS: [i64; 16] = [
    0,
    1,
    -1,
    2,
    -7,
    64,
    1 << 20,
    (1 << 20) + 1,
    1 << 29,
    1 << 31,
    1 << 40,
    (1 << 40) + 1,
    1 << 62,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];
const FLOATS: [f32; 7] = [0.0, -1.0, 1e-30, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Imports a modified model; records what went wrong.
fn attempt(model: &ModelProto, options: &ImportOptions, what: &dyn Fn() -> String, wrong: &mut Vec<String>) {
    let bytes = model.encode_to_vec();
    let before = ASKED.with(Cell::get);
    let result = catch_unwind(AssertUnwindSafe(|| tensorloom_onnx::import(&bytes, options)));
    let asked = ASKED.with(Cell::get) - before;
    match result {
        Err(_) => wrong.push(format!("{}: a panic", what())),
        Ok(_) if asked > MOST => wrong.push(format!("{}: {asked} bytes were asked for", what())),
        Ok(Ok(m)) => {
            if let Err(e) = ir::verify::verify(&m.graph) {
                wrong.push(format!("{}: {e}", what()));
            }
        }
        Ok(Err(_)) => {}
    }
}

/// All modifications of one attribute.
fn attribute(a: &AttributeProto) -> Vec<AttributeProto> {
    let mut out = Vec::new();
    let with = |f: &dyn Fn(&mut AttributeProto)| {
        let mut a = a.clone();
        f(&mut a);
        a
    };
    if a.i.is_some() {
        out.extend(NUMBERS.iter().map(|&n| with(&|a| a.i = Some(n))));
    }
    if a.f.is_some() {
        out.extend(FLOATS.iter().map(|&x| with(&|a| a.f = Some(x))));
    }
    if !a.ints.is_empty() {
        out.extend(NUMBERS.iter().map(|&n| with(&|a| a.ints[0] = n)));
        out.extend(NUMBERS.iter().map(|&n| with(&|a| *a.ints.last_mut().expect("one at least") = n)));
        out.extend(NUMBERS.iter().map(|&n| with(&|a| a.ints.fill(n))));
        out.push(with(&|a| a.ints.clear()));
        out.push(with(&|a| a.ints.extend([1, 1])));
    }
    if !a.floats.is_empty() {
        out.extend(FLOATS.iter().map(|&x| with(&|a| a.floats.fill(x))));
        out.push(with(&|a| a.floats.clear()));
    }
    if let Some(t) = &a.t {
        out.extend(tensor(t).into_iter().map(|t| with(&|a| a.t = Some(t.clone()))));
    }
    out
}

/// All modifications of one integer tensor, and of any tensor's sizes.
fn tensor(t: &TensorProto) -> Vec<TensorProto> {
    let mut out = Vec::new();
    for n in NUMBERS {
        if !t.dims.is_empty() {
            let mut dims = t.clone();
            dims.dims[0] = n;
            out.push(dims);
        }
        if t.data_type == Some(7) {
            let mut all = t.clone();
            let count = t.dims.iter().product::<i64>().clamp(0, 64) as usize;
            (all.raw_data, all.int64_data) = (None, vec![n; count]);
            out.push(all);
        }
    }
    out
}

fn graphs(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.get_or_insert_with(GraphProto::default)
}

/// Attributes that an op may have besides those of the example: names that ops read as counts.
const COUNTS: [&str; 12] = [
    "group",
    "num_groups",
    "block_size",
    "blocksize",
    "num_heads",
    "q_num_heads",
    "kv_num_heads",
    "num_outputs",
    "batch_dims",
    "sample_size",
    "axis",
    "k",
];

#[test]
fn every_number_of_a_file_may_be_anything() {
    let mut cases = support::read(&support::golden("nodes.bin.zz"));
    cases.extend(support::read(&support::golden("models.bin.zz")));
    let stride = std::env::var("ONNX_HOSTILE").ok().and_then(|v| v.parse().ok()).unwrap_or(40usize).max(1);
    let (mut wrong, mut tried, mut seen) = (Vec::new(), 0usize, 0usize);
    let mut next = || {
        seen += 1;
        seen % stride == 0
    };
    for case in &cases {
        let Ok(model) = ModelProto::decode(case.model.clone()) else { panic!("{}", case.name) };
        let nodes: Vec<NodeProto> = model.graph.as_ref().map(|g| g.node.clone()).unwrap_or_default();
        let plain = ImportOptions::default();
        let inputs: Vec<(String, ir::Literal)> = model
            .graph
            .iter()
            .flat_map(|g| &g.input)
            .zip(&case.inputs)
            .filter_map(|(info, bytes)| match support::data(bytes, info) {
                Ok(support::Data::Tensor(x)) => Some((info.name.clone().unwrap_or_default(), x)),
                _ => None,
            })
            .collect();
        let mut given = ImportOptions::default();
        for (name, x) in &inputs {
            given.inputs.insert(name.clone(), InputInfo::Value(x.clone()));
        }
        let mut go = |model: &ModelProto, what: &dyn Fn() -> String| {
            for options in [&plain, &given] {
                attempt(model, options, what, &mut wrong);
                tried += 1;
            }
        };
        for (i, node) in nodes.iter().enumerate().take(40) {
            for (k, a) in node.attribute.iter().enumerate() {
                for changed in attribute(a) {
                    if next() {
                        let mut m = model.clone();
                        graphs(&mut m).node[i].attribute[k] = changed.clone();
                        go(&m, &|| format!("{}: node {i} with {changed:?}", case.name));
                    }
                }
            }
            for name in COUNTS.iter().filter(|n| node.attribute.iter().all(|a| a.name.as_deref() != Some(**n))) {
                for n in NUMBERS {
                    if next() {
                        let mut m = model.clone();
                        let more = AttributeProto {
                            name: Some((*name).into()),
                            i: Some(n),
                            r#type: Some(2),
                            ..Default::default()
                        };
                        graphs(&mut m).node[i].attribute.push(more);
                        go(&m, &|| format!("{}: node {i} with {name} = {n}", case.name));
                    }
                }
            }
        }
        for (k, t) in model.graph.iter().flat_map(|g| &g.initializer).enumerate().take(20) {
            for changed in tensor(t) {
                if next() {
                    let mut m = model.clone();
                    graphs(&mut m).initializer[k] = changed.clone();
                    go(&m, &|| {
                        format!("{}: initializer {k} with {:?} {:?}", case.name, changed.dims, changed.int64_data)
                    });
                }
            }
        }
        // Operands that determine shapes, including floats.
        for (name, x) in &inputs {
            for n in NUMBERS {
                if next() {
                    let d = x.ty().dtype;
                    let bad = ir::Literal::from_fn(x.ty().clone(), |_| match d.is_float() {
                        true => ir::Scalar::from_f64(d, n as f64),
                        false => ir::Scalar::from_i64(d, n),
                    });
                    let mut options = given.clone();
                    options.inputs.insert(name.clone(), InputInfo::Value(bad));
                    attempt(&model, &options, &|| format!("{}: input {name} of {n}", case.name), &mut wrong);
                    tried += 1;
                }
            }
            if next() {
                let mut options = given.clone();
                let empty = ir::Type::new(x.ty().dtype, &[0]);
                options.inputs.insert(name.clone(), InputInfo::Value(ir::Literal::from_fn(empty, |_| unreachable!())));
                attempt(&model, &options, &|| format!("{}: input {name} without elements", case.name), &mut wrong);
                tried += 1;
            }
        }
    }
    println!("{tried} files");
    assert!(tried > 500, "{tried} files");
    wrong.truncate(40);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A vector of two floats.
fn float(name: &str) -> ValueInfo {
    let two = Dimension { value: Some(DimensionValue::Size(2)) };
    let t = TensorType { elem_type: Some(1), shape: Some(ShapeProto { dim: vec![two] }) };
    ValueInfo { name: Some(name.into()), r#type: Some(TypeProto { value: Some(TypeValue::Tensor(t)) }) }
}

/// Functions that call the next one twice, nested thirty deep, are 2³⁰ nodes.
#[test]
fn functions_that_double_are_refused() {
    let own = || Some("own".to_string());
    let call = |f: usize, x: &str, y: &str| NodeProto {
        op_type: Some(format!("f{f}")),
        domain: own(),
        input: vec![x.into()],
        output: vec![y.into()],
        ..NodeProto::default()
    };
    let relu = NodeProto {
        op_type: Some("Relu".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        ..NodeProto::default()
    };
    for deep in [30usize, 300] {
        let function = |k: usize| FunctionProto {
            name: Some(format!("f{k}")),
            domain: own(),
            input: vec!["x".into()],
            output: vec!["y".into()],
            node: match k == deep {
                true => vec![relu.clone()],
                false => vec![call(k + 1, "x", "m"), call(k + 1, "m", "y")],
            },
            opset_import: vec![OperatorSetId { domain: None, version: Some(21) }],
            ..Default::default()
        };
        let mut model = ModelProto {
            ir_version: Some(10),
            opset_import: vec![
                OperatorSetId { domain: None, version: Some(21) },
                OperatorSetId { domain: own(), version: Some(1) },
            ],
            functions: (0..=deep).map(function).collect(),
            ..ModelProto::default()
        };
        let g = graphs(&mut model);
        g.node = vec![call(0, "a", "b")];
        g.input = vec![float("a")];
        g.output = vec![float("b")];
        let e = tensorloom_onnx::import(&model.encode_to_vec(), &ImportOptions::default())
            .expect_err("2^30 nodes")
            .to_string();
        assert!(e.contains("nodes") || e.contains("levels"), "{e}");
    }
}
