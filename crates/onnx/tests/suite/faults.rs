//! Error messages for models that can't be imported.

use ir::{DType, Literal};
use prost::Message;
use tensorloom_onnx::proto::*;
use tensorloom_onnx::{Elem, ImportOptions};

fn info(name: &str, elem: Elem, dims: &[i64]) -> ValueInfo {
    let dim = |&d: &i64| Dimension {
        value: Some(if d < 0 { DimensionValue::Name("batch".into()) } else { DimensionValue::Size(d) }),
    };
    let t =
        TensorType { elem_type: Some(elem.number()), shape: Some(ShapeProto { dim: dims.iter().map(dim).collect() }) };
    ValueInfo { name: Some(name.into()), r#type: Some(TypeProto { value: Some(TypeValue::Tensor(t)) }) }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let list = |l: &[&str]| l.iter().map(|s| s.to_string()).collect();
    NodeProto {
        name: Some(format!("the_{op}")),
        op_type: Some(op.into()),
        input: list(inputs),
        output: list(outputs),
        ..NodeProto::default()
    }
}

fn model(inputs: Vec<ValueInfo>, nodes: Vec<NodeProto>) -> ModelProto {
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![OperatorSetId { domain: None, version: Some(21) }],
        graph: Some(GraphProto {
            input: inputs,
            output: vec![info("y", Elem::Float, &[])],
            node: nodes,
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    }
}

fn said(model: &ModelProto, options: &ImportOptions) -> String {
    tensorloom_onnx::import(&model.encode_to_vec(), options).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
}

#[test]
fn faults_name_the_node_and_the_remedy() {
    let x = || info("x", Elem::Float, &[2, 3]);
    let shape = || info("shape", Elem::Int64, &[2]);
    let none = ImportOptions::default();
    let mut other = model(vec![x()], vec![node("Relu", &["x"], &["y"])]);
    other.graph.as_mut().unwrap().node[0].domain = Some("com.vendor".into());
    other.opset_import.push(OperatorSetId { domain: Some("com.vendor".into()), version: Some(1) });
    let mut external = model(vec![x()], vec![node("Add", &["x", "w"], &["y"])]);
    external.graph.as_mut().unwrap().initializer.push(TensorProto {
        name: Some("w".into()),
        dims: vec![2, 3],
        data_type: Some(1),
        data_location: Some(1),
        external_data: vec![StringStringEntry { key: Some("location".into()), value: Some("../w.bin".into()) }],
        ..TensorProto::default()
    });
    let mut endless = model(vec![x()], vec![node("Again", &["x"], &["y"])]);
    endless.graph.as_mut().unwrap().node[0].domain = Some("own".into());
    endless.functions.push(FunctionProto {
        name: Some("Again".into()),
        domain: Some("own".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: vec![NodeProto { domain: Some("own".into()), ..node("Again", &["x"], &["y"]) }],
        ..FunctionProto::default()
    });
    let rows: Vec<(ModelProto, &[&str])> = vec![
        (
            model(vec![x()], vec![node("Frobnicate", &["x"], &["y"])]),
            &["`the_Frobnicate`", "(Frobnicate)", "not supported"],
        ),
        (model(vec![x()], vec![node("Relu", &["z"], &["y"])]), &["`the_Relu`", "`z` is not defined"]),
        (model(vec![x()], vec![node("MatMul", &["x", "x"], &["y"])]), &["`the_MatMul`", "size"]),
        (
            model(vec![x(), shape()], vec![node("Reshape", &["x", "shape"], &["y"])]),
            &["`the_Reshape`", "input shape", "Options::value"],
        ),
        (
            model(vec![info("x", Elem::Float, &[-1, 3])], vec![node("Relu", &["x"], &["y"])]),
            &["input x", "batch", "Options::dim"],
        ),
        (
            model(vec![info("x", Elem::String, &[2])], vec![node("Identity", &["x"], &["y"])]),
            &["input x", "string", "outside the model"],
        ),
        (model(vec![x()], vec![node("StringConcat", &["x", "x"], &["y"])]), &["`the_StringConcat`", "text"]),
        (model(vec![x()], vec![]), &["output `y`"]),
        (model(vec![x()], vec![node("Relu", &["x"], &["y"]), node("Abs", &["x"], &["y"])]), &["`y` is defined twice"]),
        (other, &["com.vendor", "function"]),
        (external, &["w", "../w.bin"]),
        (endless, &["levels"]),
    ];
    for (model, parts) in rows {
        let text = said(&model, &none);
        assert!(!text.is_empty(), "imported, though it should say {parts:?}");
        for part in parts {
            assert!(text.contains(part), "{text}\nshould say {part}");
        }
    }
    assert!(tensorloom_onnx::import(b"not a model", &none).unwrap_err().to_string().contains("not an ONNX model"));
    // The requested size is sufficient.
    let open = model(vec![info("x", Elem::Float, &[-1, 3])], vec![node("Relu", &["x"], &["y"])]);
    assert_eq!(said(&open, &ImportOptions::default().dim("batch", 4)), "");
    let reshape = model(vec![x(), shape()], vec![node("Reshape", &["x", "shape"], &["y"])]);
    assert_eq!(said(&reshape, &ImportOptions::default().value("shape", Literal::new(&[2], &[3i64, -1]))), "");
    assert!(said(&open, &ImportOptions::default().shape("z", &[1])).contains("has no input `z`"));
}

#[test]
fn data_beside_the_model_is_read() {
    let dir = std::env::temp_dir().join(format!("onnx-external-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let mut m = model(vec![info("x", Elem::Float, &[3])], vec![node("Add", &["x", "w"], &["y"])]);
    let entry = |k: &str, v: &str| StringStringEntry { key: Some(k.into()), value: Some(v.into()) };
    m.graph.as_mut().unwrap().initializer.push(TensorProto {
        name: Some("w".into()),
        dims: vec![3],
        data_type: Some(1),
        data_location: Some(1),
        external_data: vec![entry("location", "w.bin"), entry("offset", "4"), entry("length", "12")],
        ..TensorProto::default()
    });
    let bytes: Vec<u8> = [9f32, 1.0, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(dir.join("w.bin"), bytes).expect("written");
    std::fs::write(dir.join("m.onnx"), m.encode_to_vec()).expect("written");
    let read = tensorloom_onnx::import_file(&dir.join("m.onnx"), &ImportOptions::default()).expect("imports");
    assert_eq!(read.parameters[0].1.to_vec::<f32>(), [1.0, 2.0, 3.0]);
    // Beyond the end of the file.
    m.graph.as_mut().unwrap().initializer[0].external_data[1] = entry("offset", "8");
    std::fs::write(dir.join("m.onnx"), m.encode_to_vec()).expect("written");
    let e = tensorloom_onnx::import_file(&dir.join("m.onnx"), &ImportOptions::default()).unwrap_err().to_string();
    assert!(e.contains("the file has 16"), "{e}");
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// `while x < limit { x = x + x }`, with a trip count that is known only at run time.
#[test]
fn a_loop_of_unknown_length_runs() {
    let body = GraphProto {
        input: vec![info("i", Elem::Int64, &[]), info("go", Elem::Bool, &[]), info("v", Elem::Float, &[2])],
        output: vec![info("more", Elem::Bool, &[]), info("next", Elem::Float, &[2])],
        node: vec![
            node("Add", &["v", "v"], &["next"]),
            NodeProto { attribute: vec![int("keepdims", 0)], ..node("ReduceMax", &["next"], &["most"]) },
            node("Less", &["most", "limit"], &["more"]),
        ],
        ..GraphProto::default()
    };
    let mut repeat = node("Loop", &["", "", "x"], &["y"]);
    repeat.attribute =
        vec![AttributeProto { name: Some("body".into()), g: Some(body), r#type: Some(5), ..Default::default() }];
    let m = model(vec![info("x", Elem::Float, &[2]), info("limit", Elem::Float, &[])], vec![repeat]);
    let read = tensorloom_onnx::import(&m.encode_to_vec(), &ImportOptions::default()).expect("imports");
    let inputs = [Literal::new(&[2], &[1f32, 3.0]), Literal::new(&[], &[40f32])];
    let out = ir::interp::run(&read.graph, &inputs).expect("runs");
    assert_eq!(out[0].to_vec::<f32>(), [16.0, 48.0]);
    assert_eq!(out[0].ty().dtype, DType::F32);
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), i: Some(i), r#type: Some(2), ..AttributeProto::default() }
}

/// A condition that depends on an input keeps both branches in the program.
#[test]
fn a_branch_on_data_is_part_of_the_program() {
    let branch = |op: &str, out: &str| GraphProto {
        output: vec![info(out, Elem::Float, &[2])],
        node: vec![node(op, &["x"], &[out])],
        ..GraphProto::default()
    };
    let graph =
        |name: &str, g| AttributeProto { name: Some(name.into()), g: Some(g), r#type: Some(5), ..Default::default() };
    let mut choose = node("If", &["c"], &["y"]);
    choose.attribute = vec![graph("then_branch", branch("Neg", "a")), graph("else_branch", branch("Exp", "b"))];
    let m = model(vec![info("x", Elem::Float, &[2]), info("c", Elem::Bool, &[])], vec![choose]);
    let read = tensorloom_onnx::import(&m.encode_to_vec(), &ImportOptions::default()).expect("imports");
    for (c, want) in [(true, [-1.0, 0.0]), (false, [1f32.exp(), 1.0])] {
        let inputs = [Literal::new(&[2], &[1f32, 0.0]), Literal::new(&[], &[c])];
        assert_eq!(ir::interp::run(&read.graph, &inputs).expect("runs")[0].to_vec::<f32>(), want);
    }
    let back = transform::grad(
        &{
            let mut b = ir::Builder::new();
            let args: Vec<_> = read.graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
            let outs = ir::GraphBuilder::inline(&mut b, &read.graph, &args).expect("inlines");
            let s = ir::GraphBuilder::sum_all(&mut b, outs[0]).expect("sums");
            b.finish(&[s])
        },
        &[0],
    )
    .expect("differentiates");
    let inputs = [Literal::new(&[2], &[1f32, 0.0]), Literal::new(&[], &[true])];
    assert_eq!(ir::interp::run(&back, &inputs).expect("runs")[0].to_vec::<f32>(), [-1.0, -1.0]);
}

/// A long loop of known length is one scan, including its scan outputs.
#[test]
fn a_long_loop_is_a_scan() {
    let body = GraphProto {
        input: vec![info("i", Elem::Int64, &[]), info("go", Elem::Bool, &[]), info("v", Elem::Float, &[])],
        output: vec![info("go_on", Elem::Bool, &[]), info("next", Elem::Float, &[]), info("seen", Elem::Float, &[])],
        node: vec![
            node("Add", &["v", "step"], &["next"]),
            node("Identity", &["go"], &["go_on"]),
            node("Mul", &["next", "next"], &["seen"]),
        ],
        ..GraphProto::default()
    };
    let mut repeat = node("Loop", &["n", "", "x"], &["y", "all"]);
    repeat.attribute =
        vec![AttributeProto { name: Some("body".into()), g: Some(body), r#type: Some(5), ..Default::default() }];
    let mut m = model(vec![info("x", Elem::Float, &[]), info("step", Elem::Float, &[])], vec![repeat]);
    let g = m.graph.as_mut().unwrap();
    g.output.push(info("all", Elem::Float, &[1000]));
    g.initializer.push(TensorProto {
        name: Some("n".into()),
        dims: vec![],
        data_type: Some(7),
        int64_data: vec![1000],
        ..Default::default()
    });
    let read = tensorloom_onnx::import(&m.encode_to_vec(), &ImportOptions::default()).expect("imports");
    assert!(read.graph.to_string().contains("scan"), "{}", read.graph);
    let out = ir::interp::run(&read.graph, &[Literal::new(&[], &[1f32]), Literal::new(&[], &[0.5f32])]).expect("runs");
    assert_eq!(out[0].to_vec::<f32>(), [501.0]);
    assert_eq!(out[1].to_vec::<f32>()[..2], [2.25, 4.0]);
}

/// Padding larger than any memory is rejected at once, not after counting its windows.
#[test]
fn windows_over_endless_padding_are_refused() {
    let ints = |name: &str, list: &[i64]| AttributeProto {
        name: Some(name.into()),
        ints: list.to_vec(),
        r#type: Some(7),
        ..AttributeProto::default()
    };
    for pads in [[1, 1 << 31, 1, 1], [1 << 39, 0, 0, 0], [0, 0, 1 << 25, 0]] {
        let mut pool = node("AveragePool", &["x"], &["y"]);
        pool.attribute = vec![ints("kernel_shape", &[3, 3]), ints("pads", &pads)];
        let start = std::time::Instant::now();
        let text = said(&model(vec![info("x", Elem::Float, &[1, 3, 2, 2])], vec![pool]), &ImportOptions::default());
        assert!(text.contains("too large"), "{text}");
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}

#[test]
fn operands_of_a_wrong_rank_are_refused() {
    for (op, gates) in [("RNN", 1), ("GRU", 3), ("LSTM", 4)] {
        for dims in [&[][..], &[1], &[1, 8 * gates, 1]] {
            let inputs = vec![
                info("x", Elem::Float, &[2, 1, 3]),
                info("w", Elem::Float, &[1, 4 * gates, 3]),
                info("r", Elem::Float, &[1, 4 * gates, 4]),
                info("b", Elem::Float, dims),
            ];
            let said = said(&model(inputs, vec![node(op, &["x", "w", "r", "b"], &["y"])]), &ImportOptions::default());
            assert!(said.contains("2 axes for 1 directions"), "{op} {dims:?}: {said}");
        }
    }
}
