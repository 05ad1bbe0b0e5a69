//! Random operands and parameters give a composite that runs, or an error: never a panic.

use super::check::*;
use ir::attr::Attr;
use ir::composites::{COMPOSITES, build};
use ir::{DType, Literal, Scalar, Type, interp};

struct Dice(Numbers);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        (((self.0.next() + 1.0) / 2.0 * n as f64) as usize).min(n - 1)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

fn params(dice: &mut Dice) -> Vec<(String, Attr)> {
    let float = |x: f64| Attr::Scalar(Scalar::from_f64(F, x));
    let word = |w: &str| Attr::Word(w.into());
    let all = [
        ("eps", float(1e-5)),
        ("rate", float(0.5)),
        ("scale", float(0.5)),
        ("softcap", float(2.0)),
        ("label_smoothing", float(0.1)),
        ("z_loss", float(0.1)),
        ("window", Attr::Int(1)),
        ("ignore_index", Attr::Int(-1)),
        ("padding_idx", Attr::Int(0)),
        ("form", word("tanh")),
        ("pairs", word("halves")),
        ("pairs", word("interleaved")),
        ("mask", word("add")),
        ("mask", word("bool")),
        ("format", word("fp8_e4m3")),
        ("group", Attr::Int(1)),
        ("causal", Attr::Bool(true)),
        ("q_offset", Attr::Bool(true)),
        ("lengths", Attr::Bool(true)),
        ("segments", Attr::Bool(true)),
        ("slopes", Attr::Bool(true)),
        ("heads_inside", Attr::Bool(true)),
    ];
    // Optional operands are rare, so that the others are valid more often.
    all.into_iter()
        .enumerate()
        .filter(|(i, _)| dice.below(4) < if *i < 14 { 3 } else { 1 })
        .map(|(_, (n, a))| (n.to_string(), a))
        .collect()
}

#[test]
fn random_operands_never_panic() {
    let mut dice = Dice(Numbers::new(40));
    let mut built = vec![0; COMPOSITES.len()];
    for round in 0..COMPOSITES.len() * 8000 {
        let family = &COMPOSITES[round % COMPOSITES.len()];
        let params = params(&mut dice);
        let dtypes =
            [DType::F32, DType::F32, DType::F32, DType::BF16, DType::F8E4M3, DType::I32, DType::U32, DType::Bool];
        // Most operands share a base shape or a part of it; otherwise they would almost never be valid.
        let base: Vec<usize> = (0..2 + dice.below(3)).map(|_| dice.pick(&[0, 1, 2, 2, 2, 2])).collect();
        let float = dice.pick(&[DType::F32, DType::BF16, DType::F16]);
        let mut types: Vec<Type> = (0..1 + dice.below(8))
            .map(|i| match dice.below(5) {
                0 => Type::new(dice.pick(&dtypes), &base[dice.below(base.len())..]),
                1 => Type::new(dice.pick(&dtypes), &base[..dice.below(base.len())]),
                2 if i > 0 => Type::new(float, &base[base.len() - 1..]),
                3 if i > 0 => Type::new(DType::I32, &base[..base.len() - 1]),
                _ => Type::new(float, &base),
            })
            .collect();
        // Codes have one dtype, which a random choice would rarely pick.
        if family.name == "dequantize" {
            types[0].dtype = DType::F8E4M3;
        }
        let Ok(c) = build(family.name, &params, &types) else {
            continue;
        };
        built[round % COMPOSITES.len()] += 1;
        let x: Vec<Literal> = types.iter().map(|t| Literal::zeros(t.clone())).collect();
        let f = graph_of(&c);
        ir::verify::verify(&f).unwrap();
        interp::run(&f, &x).unwrap();
        let floats: Vec<usize> = (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect();
        let g = tensorloom_transform::vjp(&f, &floats).unwrap();
        let cts: Vec<Literal> = g.input_types()[x.len()..].iter().map(|t| Literal::zeros(t.clone())).collect();
        interp::run(&g, &[&x[..], &cts].concat()).unwrap();
        let batched: Vec<bool> = types.iter().map(|_| dice.below(2) == 1).collect();
        tensorloom_transform::vmap(&f, &batched, &[], 2).unwrap();
        tensorloom_transform::vmap(&g, &vec![true; g.inputs().len()], &[], 0).unwrap();
    }
    for (f, n) in COMPOSITES.iter().zip(&built) {
        assert!(*n > 0 || f.name == "attention_backward", "{} was never built: {built:?}", f.name);
    }
}

#[test]
fn an_unknown_name_and_a_missing_parameter_are_errors() {
    let t = [Type::new(F, &[2])];
    assert!(build("nothing", &[], &t).unwrap_err().to_string().contains("unknown composite `nothing`"));
    assert!(build("rmsnorm", &[], &t).unwrap_err().to_string().contains("float parameter `eps`"));
    assert!(build("gelu", &[], &t).unwrap_err().to_string().contains("`form`"));
    for f in COMPOSITES {
        assert!(build(f.name, &[], &[]).is_err(), "{}", f.name);
    }
}
