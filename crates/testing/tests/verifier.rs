//! The verifier detects a violation of each invariant.

use ir::ops::{Call, Cast};
use ir::verify::verify;
use ir::{Builder, DType, Def, Graph, GraphBuilder, Loc, Node, Op, Type, Unary, Value};

/// `(x: f32[2]) -> neg(exp(x))`, in parts that a test can modify.
#[derive(Clone)]
struct Parts {
    values: Vec<(Type, Def)>,
    nodes: Vec<Node>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

fn node(op: impl Into<Op>, args: &[u32], outs: &[u32]) -> Node {
    Node {
        op: op.into(),
        args: args.iter().map(|&a| Value(a)).collect(),
        outs: outs.iter().map(|&o| Value(o)).collect(),
        loc: Loc::Unknown,
    }
}

fn parts() -> Parts {
    let ty = Type::new(DType::F32, &[2]);
    Parts {
        values: vec![(ty.clone(), Def::Input(0)), (ty.clone(), Def::Node(0, 0)), (ty, Def::Node(1, 0))],
        nodes: vec![node(Unary::Exp, &[0], &[1]), node(Unary::Neg, &[1], &[2])],
        inputs: vec![Value(0)],
        outputs: vec![Value(2)],
    }
}

fn build(p: Parts) -> Graph {
    Graph::from_raw(p.values, p.nodes, p.inputs, p.outputs)
}

#[test]
fn the_unbroken_graph_is_valid() {
    verify(&build(parts())).unwrap();
}

#[test]
fn each_broken_invariant_is_found() {
    type Break = fn(&mut Parts);
    let rows: &[(&str, Break, &str)] = &[
        // 1. Operands exist and are defined before their use.
        ("operand that does not exist", |p| p.nodes[0].args[0] = Value(9), "uses %9"),
        ("operand defined later", |p| p.nodes[0].args[0] = Value(2), "uses %2"),
        ("operand that is the node's own result", |p| p.nodes[1].args[0] = Value(2), "uses %2"),
        // 2. Every value has exactly one definition.
        ("input that does not exist", |p| p.inputs[0] = Value(7), "input 0 is %7"),
        ("input listed twice", |p| p.inputs.push(Value(0)), "input 1"),
        ("input defined as a node's result", |p| p.inputs[0] = Value(1), "input 0"),
        ("input with another number", |p| p.values[0].1 = Def::Input(3), "input 0"),
        ("result defined by another node", |p| p.values[2].1 = Def::Node(0, 0), "has another definition"),
        ("result with another number", |p| p.values[2].1 = Def::Node(1, 1), "has another definition"),
        ("result that does not exist", |p| p.nodes[1].outs[0] = Value(5), "%5"),
        ("one value for two results", |p| p.nodes[1].outs[0] = Value(1), "%1"),
        (
            "value without a definition",
            |p| p.values.push((Type::scalar(DType::F32), Def::Node(7, 0))),
            "%3 has no definition",
        ),
        ("input that is not listed", |p| p.inputs.clear(), "uses %0"),
        // 3. Output types equal those that the op infers.
        ("another dtype than inferred", |p| p.values[2].0.dtype = DType::F64, "declared f64[2]"),
        ("another shape than inferred", |p| p.values[2].0.shape[0] = 3, "declared f32[3]"),
        ("too many results", |p| p.nodes[1].outs.push(Value(2)), "has 2 outputs"),
        ("too few results", |p| p.nodes[1].outs.clear(), "has 0 outputs"),
        ("operands that don't fit", |p| p.nodes[1].op = Unary::Not.into(), "needs an integer"),
        ("wrong number of operands", |p| p.nodes[1].op = ir::Binary::Add.into(), "takes 2 operands"),
        // 4. Outputs are values of this graph.
        ("output that does not exist", |p| p.outputs[0] = Value(4), "output %4"),
    ];
    for (what, break_it, message) in rows {
        let mut p = parts();
        break_it(&mut p);
        let error = verify(&build(p)).expect_err(what).to_string();
        assert!(error.contains(message), "{what}: {error}");
    }
}

#[test]
fn a_broken_sub_graph_is_found() {
    // 5. Sub-graphs satisfy these invariants, at any depth.
    let mut p = parts();
    p.values[2].0.dtype = DType::F64;
    let broken = build(p);
    let x = Type::new(DType::F32, &[2]);
    let wrap = |body: Graph| {
        let out = body.output_types()[0].clone();
        let nodes = vec![node(Call::new(body), &[0], &[1])];
        let values = [(x.clone(), Def::Input(0)), (out, Def::Node(0, 0))];
        Graph::from_raw(values, nodes, vec![Value(0)], vec![Value(1)])
    };
    for graph in [wrap(broken.clone()), wrap(wrap(broken))] {
        let error = verify(&graph).unwrap_err().to_string();
        assert!(error.contains("`body`") && error.contains("declared f64[2]"), "{error}");
    }
}

#[test]
fn push_checks_what_it_adds() {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[2]);
    assert!(b.emit(Cast(DType::F64).into(), &[Value(9)]).is_err());
    assert!(b.emit(Cast(DType::F64).into(), &[x, x]).is_err());
    let y = b.cast(x, DType::F64).unwrap();
    verify(&b.finish(&[y])).unwrap();
}
