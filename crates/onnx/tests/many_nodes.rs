//! The time of an import is proportional to the number of nodes, for every kind of node.

use ir::{Builder, DType, GraphBuilder};
use std::time::{Duration, Instant};
use tensorloom_onnx::proto::{ModelProto, NodeProto};
use tensorloom_onnx::{ImportOptions, import_model};

const NODES: usize = 30_000;

/// A model from a float vector to a float vector, without nodes.
fn empty() -> ModelProto {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[4]);
    let y = b.neg(x).unwrap();
    tensorloom_onnx::export_model(&b.finish(&[y]), &tensorloom_onnx::ExportNames::default()).unwrap()
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    let text = |t: &&str| t.to_string();
    NodeProto {
        op_type: Some(op.into()),
        input: inputs.iter().map(text).collect(),
        output: vec![output.into()],
        ..Default::default()
    }
}

#[test]
fn thirty_thousand_nodes() {
    let base = empty();
    let graph = base.graph.as_ref().unwrap();
    let (x, y) = (graph.input[0].name.clone().unwrap(), graph.output[0].name.clone().unwrap());
    let name = |i: usize| if i == 0 { x.clone() } else { format!("v{i}") };
    type Make<'a> = &'a dyn Fn(usize) -> NodeProto;
    let kinds: &[(&str, Make<'_>)] = &[
        ("chain", &|i| node("Neg", &[&name(i)], &name(i + 1))),
        ("pairs", &|i| node("Add", &[&name(i), &name(i / 2)], &name(i + 1))),
        ("shapes", &|i| node(if i % 2 == 0 { "Shape" } else { "Cast" }, &[&name(i)], &name(i + 1))),
        ("names", &|i| node("Identity", &[&name(i)], &name(i + 1))),
        ("dead", &|i| node("Exp", &[&x], &name(i + 1))),
        ("sequence", &|i| match i {
            0 => node("SequenceConstruct", &[&x], "v1"),
            _ => node("SequenceInsert", &[&name(i), &x], &name(i + 1)),
        }),
        ("reshapes", &|i| match i % 3 {
            0 => node("Shape", &[&x], &name(i + 1)),
            1 => node("Reshape", &[&x, &name(i)], &name(i + 1)),
            _ => node("Softmax", &[&name(i)], &name(i + 1)),
        }),
    ];
    for (kind, make) in kinds {
        let mut model = base.clone();
        let graph = model.graph.as_mut().unwrap();
        graph.node = (0..NODES).map(make).collect();
        let cast = |node: &mut NodeProto| {
            if node.op_type.as_deref() == Some("Cast") {
                node.attribute.push(tensorloom_onnx::proto::AttributeProto {
                    name: Some("to".into()),
                    i: Some(1),
                    r#type: Some(2),
                    ..Default::default()
                });
            }
        };
        graph.node.iter_mut().for_each(cast);
        let last = if *kind == "sequence" { x.clone() } else { name(NODES) };
        graph.node.push(node("Identity", &[&last], &y));
        let began = Instant::now();
        let found = import_model(&model, &ImportOptions::default(), &tensorloom_onnx::tensor::NoExternalData);
        let took = began.elapsed();
        println!("{kind}: {took:.2?}");
        match found {
            Ok(_) => assert_ne!(*kind, "sequence"),
            // Each of these nodes copies the sequence of the previous one.
            Err(e) => assert!(*kind == "sequence" && e.to_string().contains("elements of sequences"), "{kind}: {e}"),
        }
        assert!(took < Duration::from_secs(20), "{kind}: {took:?}");
    }
}
