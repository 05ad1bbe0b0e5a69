//! §3.2 item by item, and the messages people get.

mod support;

use support::Rng;
use tensorloom_vsla::describe::{NodeDesc, ValueDesc};
use tensorloom_vsla::{
    DType, Error, ErrorCode, Model, Op, Program, ProgramBuilder, ProgramDescription, ProgramFault, ValueSignature,
    ValueTag, infer,
};

fn value(tag: ValueTag, shape: Option<&[usize]>) -> ValueDesc {
    ValueDesc {
        name: String::new(),
        dtype: shape.map(|_| DType::F32),
        shape: shape.map(<[usize]>::to_vec),
        capacity: None,
        tag,
        model: Model::A,
        checkpoint: false,
    }
}

fn node(op: Op, inputs: &[u32], outputs: &[u32]) -> NodeDesc {
    NodeDesc { op, inputs: inputs.to_vec(), outputs: outputs.to_vec() }
}

/// x, y, and `2 = x + y`.
fn sum() -> ProgramDescription {
    ProgramDescription {
        values: vec![
            value(ValueTag::Input, Some(&[3])),
            value(ValueTag::Param, Some(&[2])),
            value(ValueTag::Output, None),
        ],
        nodes: vec![node(Op::Add, &[0, 1], &[2])],
        outputs: vec![2],
        ..ProgramDescription::default()
    }
}

#[track_caller]
fn fault(d: &ProgramDescription) -> ProgramFault {
    match Program::build(d) {
        Err(e @ Error::InvalidProgram(_)) => {
            assert_eq!(e.code(), ErrorCode::InvalidProgram);
            assert!(e.to_string().len() > 20);
            match e {
                Error::InvalidProgram(f) => f,
                _ => unreachable!(),
            }
        }
        other => panic!("{:?}", other.map(|p| p.to_string())),
    }
}

#[test]
fn s3_2_a_good_program_passes_and_prints() {
    let p = Program::build(&sum()).unwrap();
    assert_eq!(p.signature(tensorloom_vsla::ValueId(2)).shape, [3]);
    assert_eq!(p.values()[2].capacity, [4]);
    assert_eq!(p.to_string(), "input v0 f32[3] \"\"\nparam v1 f32[2] \"\"\nv2 = add(v0, v1) : f32[3]\noutput v2\n");
}

#[test]
fn s3_2_nodes_in_any_order_are_sorted_and_cycles_refused() {
    let mut d = sum();
    d.values.push(value(ValueTag::Temp, None));
    d.values.push(value(ValueTag::Temp, None));
    // 4 = tanh(3), 3 = relu(2): written backwards.
    d.nodes.insert(0, node(Op::Tanh, &[3], &[4]));
    d.nodes.insert(1, node(Op::Relu, &[2], &[3]));
    d.outputs = vec![4];
    let p = Program::build(&d).unwrap();
    let order: Vec<&str> = p.nodes().iter().map(|n| n.op.name()).collect();
    assert_eq!(order, ["add", "relu", "tanh"]);
    d.nodes[1].inputs = vec![4];
    assert_eq!(fault(&d), ProgramFault::Cycle { nodes: vec![0, 1] });
    let mut d = sum();
    d.nodes[0].inputs[1] = 2;
    assert_eq!(fault(&d), ProgramFault::Cycle { nodes: vec![0] });
}

#[test]
fn s3_2_ids_refer_to_values_with_one_source() {
    let mut d = sum();
    d.nodes[0].inputs[0] = 9;
    assert!(matches!(fault(&d), ProgramFault::MissingValue { id: 9, count: 3, .. }));
    let mut d = sum();
    d.nodes[0].outputs[0] = 9;
    assert!(matches!(fault(&d), ProgramFault::MissingValue { id: 9, .. }));
    let mut d = sum();
    d.outputs = vec![7];
    assert!(matches!(fault(&d), ProgramFault::MissingValue { id: 7, .. }));
    let mut d = sum();
    d.nodes.push(d.nodes[0].clone());
    assert_eq!(fault(&d), ProgramFault::MultipleProducers { id: 2 });
    let mut d = sum();
    d.nodes[0].outputs[0] = 0;
    assert_eq!(fault(&d), ProgramFault::MultipleProducers { id: 0 });
    let mut d = sum();
    d.values.push(value(ValueTag::Temp, None));
    assert_eq!(fault(&d), ProgramFault::NoProducer { id: 3 });
    d.nodes[0].inputs[0] = 3;
    assert_eq!(fault(&d), ProgramFault::NoProducer { id: 3 });
    let mut d = sum();
    d.outputs.clear();
    assert_eq!(fault(&d), ProgramFault::NoOutputs);
}

#[test]
fn s3_2_dtypes_match() {
    let mut d = sum();
    d.values[1].dtype = Some(DType::F64);
    assert!(matches!(fault(&d), ProgramFault::MixedDTypes { op: "add", a: DType::F32, b: DType::F64 }));
    let others = DType::ALL.into_iter().filter(|t| !tensorloom_vsla::shape::DTYPES.contains(t));
    for dtype in others {
        let mut d = sum();
        d.values[0].dtype = Some(dtype);
        assert!(matches!(fault(&d), ProgramFault::DType { .. }), "{dtype}");
        let mut d = sum();
        (d.values[2].dtype, d.values[2].shape) = (Some(dtype), Some(vec![3]));
        assert!(matches!(fault(&d), ProgramFault::DType { .. }), "{dtype}");
    }
    let mut d = sum();
    d.values[2].dtype = Some(DType::F16);
    assert!(matches!(fault(&d), ProgramFault::DeclarationMismatch { id: 2, .. }));
}

#[test]
fn s3_2_models_are_consistent() {
    let mut d = sum();
    d.values[1].model = Model::B;
    assert!(matches!(fault(&d), ProgramFault::MixedModels { op: "add", .. }));
    let mut d = sum();
    d.nodes[0].op = Op::Kronecker;
    assert!(matches!(fault(&d), ProgramFault::MixedModels { op: "kronecker", .. }));
    let mut d = sum();
    d.nodes[0].op = Op::Conv1d;
    d.values[0].model = Model::B;
    d.values[1].model = Model::B;
    assert!(matches!(fault(&d), ProgramFault::MixedModels { op: "conv1d", .. }));
}

#[test]
fn s3_2_no_rank_0_at_the_boundary() {
    let mut d = sum();
    d.values[0].shape = Some(vec![]);
    assert!(matches!(fault(&d), ProgramFault::RankZero { .. }));
    let mut d = sum();
    d.values[2].shape = Some(vec![]);
    assert!(matches!(fault(&d), ProgramFault::RankZero { .. }));
    assert!(ProgramBuilder::new().input("x", DType::F32, &[]).is_err());
    assert!(tensorloom_vsla::Tensor::zeros(DType::F32, &[]).is_err());
    // A reshape can't make one either.
    assert!(tensorloom_vsla::Tensor::vector(&[1.0f32]).reshape(&[]).is_err());
    assert_eq!(tensorloom_vsla::Tensor::vector(&[1.0f32, 2.0]).sum(0).unwrap().shape(), [1]);
}

#[test]
fn s3_2_shapes_are_computed() {
    let mut d = sum();
    d.values[2].shape = Some(vec![2]);
    assert!(matches!(fault(&d), ProgramFault::DeclarationMismatch { id: 2, .. }));
    let mut d = sum();
    d.values[0].shape = None;
    assert_eq!(Program::build(&d).unwrap_err().code(), ErrorCode::InvalidArg);
}

#[test]
fn s3_2_capacity_is_at_least_the_shape() {
    for capacity in [vec![2], vec![], vec![3, 3]] {
        let mut d = sum();
        d.values[0].capacity = Some(capacity.clone());
        assert!(matches!(fault(&d), ProgramFault::Capacity { id: 0, .. }), "{capacity:?}");
    }
    let mut d = sum();
    d.values[2].capacity = Some(vec![5]);
    assert_eq!(Program::build(&d).unwrap().values()[2].capacity, [5]);
    d.values[2].capacity = Some(vec![usize::MAX]);
    assert!(matches!(fault(&d), ProgramFault::Overflow { .. }));
}

#[test]
fn s3_2_sizes_do_not_overflow() {
    let big = 1usize << 40;
    let s = |shape: &[usize], model: Model| ValueSignature { model, ..ValueSignature::new(DType::F64, shape) };
    let overflows = |op: Op, args: &[ValueSignature]| {
        assert!(matches!(infer(&op, args), Err(Error::InvalidProgram(ProgramFault::Overflow { .. }))), "{op:?}");
    };
    overflows(Op::Kronecker, &[s(&[big], Model::B), s(&[big], Model::B)]);
    overflows(Op::Conv1d, &[s(&[usize::MAX], Model::A), s(&[2], Model::A)]);
    overflows(Op::Stack, &vec![s(&[1 << 59], Model::A); 4]);
    overflows(Op::Repeat { count: usize::MAX }, &[s(&[2], Model::A)]);
    overflows(Op::Matmul, &[s(&[big, 1], Model::A), s(&[1, big], Model::A)]);
    overflows(Op::Scatter { indices: vec![0], size: usize::MAX }, &[s(&[1, 2], Model::A)]);
    overflows(Op::Add, &[s(&[big, 1], Model::A), s(&[1, big], Model::A)]);
    assert!(infer(&Op::Reshape { shape: vec![big, big, 0] }, &[s(&[0], Model::A)]).is_err());
    assert!(ProgramBuilder::new().input("x", DType::F64, &[big, big]).is_err());
    // An empty axis does not hide the others.
    assert!(ProgramBuilder::new().input("x", DType::F64, &[0, big, big]).is_err());
}

#[test]
fn s4_shapes_that_do_not_fit_are_refused_with_a_remedy() {
    let s = |shape: &[usize]| ValueSignature::new(DType::F64, shape);
    let rows: Vec<(Op, Vec<ValueSignature>, &str)> = vec![
        (Op::Add, vec![s(&[2]), s(&[2, 2])], "reshape one"),
        (Op::Matmul, vec![s(&[2]), s(&[2, 2])], "rank of at least 2"),
        (Op::Matmul, vec![s(&[2, 2]), s(&[2, 2, 2])], "rank 2"),
        (Op::Conv1d, vec![s(&[2]), s(&[2, 2])], "reshape one"),
        (Op::Sum { axis: 2 }, vec![s(&[2, 2])], "axes are -2..2"),
        (Op::Mean { axis: -3 }, vec![s(&[2, 2])], "axes are -2..2"),
        (Op::Reshape { shape: vec![3] }, vec![s(&[2, 2])], "different numbers"),
        (Op::Transpose { permutation: vec![0, 0] }, vec![s(&[2, 2])], "not a permutation"),
        (Op::Slice { start: vec![1], limit: vec![0] }, vec![s(&[2])], "out of range"),
        (Op::Scatter { indices: vec![3], size: 2 }, vec![s(&[1])], "index 3"),
        (Op::Scatter { indices: vec![], size: 2 }, vec![s(&[1])], "0 indices"),
        (Op::LayerNorm { eps: 0. }, vec![s(&[2, 3]), s(&[2]), s(&[3])], "expected [3]"),
        (Op::MulScalar { value: None }, vec![s(&[2]), s(&[2])], "expected [1]"),
    ];
    for (op, args, text) in rows {
        let e = infer(&op, &args).unwrap_err();
        assert_eq!(e.code(), ErrorCode::InvalidShape, "{op:?}");
        assert!(e.to_string().contains(text), "{op:?}: {e}");
    }
    assert!(matches!(infer(&Op::Add, &[s(&[1])]), Err(Error::InvalidProgram(ProgramFault::Arity { .. }))));
    assert!(infer(&Op::Stack, &[]).is_err());
    assert!(infer(&Op::Window { size: 0, stride: 1 }, &[s(&[1])]).is_err());
    assert!(infer(&Op::Window { size: 3, stride: 1 }, &[s(&[1])]).is_err());
    assert!(infer(&Op::Dropout { rate: 1.5 }, &[s(&[1])]).is_err());
}

/// Descriptions of noise: anything may come back, but no panic.
#[test]
fn no_description_panics() {
    let mut rng = Rng::fresh("noise");
    let ops = [
        Op::Add,
        Op::Conv1d,
        Op::Matmul,
        Op::Softmax,
        Op::Sum { axis: 0 },
        Op::Stack,
        Op::Window { size: 2, stride: 1 },
        Op::Gather { indices: vec![0, 5] },
        Op::Slice { start: vec![0], limit: vec![3] },
        Op::Reshape { shape: vec![2, 3] },
        Op::LayerNorm { eps: 1e-5 },
        Op::Attention { heads: 1, lengths: vec![1, 2] },
    ];
    let mut good = 0;
    for _ in 0..3000 {
        let n = 1 + rng.below(6);
        let tags = [ValueTag::Param, ValueTag::Input, ValueTag::Output, ValueTag::Temp, ValueTag::Temp];
        let values = (0..n)
            .map(|_| {
                let shape: Vec<usize> = (0..rng.below(3)).map(|_| rng.below(4)).collect();
                let tag = tags[rng.below(5)];
                let known = rng.below(3) > 0 && (matches!(tag, ValueTag::Param | ValueTag::Input));
                value(tag, known.then_some(&shape[..]))
            })
            .collect();
        let mut ids = |k: usize| (0..k).map(|_| rng.below(n + 1) as u32).collect::<Vec<u32>>();
        let nodes = (0..3)
            .map(|i| (i, ids(2), ids(1)))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(_, a, b)| node(ops[rng.below(ops.len())].clone(), &a, &b))
            .take(n / 2)
            .collect();
        let outputs = vec![rng.below(n) as u32];
        let d = ProgramDescription { values, nodes, outputs, ..ProgramDescription::default() };
        good += usize::from(Program::build(&d).is_ok());
    }
    assert!(good > 0);
}
