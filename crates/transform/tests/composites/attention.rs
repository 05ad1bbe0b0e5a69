//! Attention. Expected values are PyTorch's in f64: `scaled_dot_product_attention`, or its formula where that function
//! lacks an option.

use super::check::*;
use ir::composites::attention::*;
use ir::ops::Composite;
use ir::{DType, Literal, Scalar, Type, interp};

const GQA: [f64; 16] = [
    0.005922257879896283,
    -1.3363308510531822,
    -1.3599877161962441,
    0.6245083270158848,
    0.5799096205195347,
    -0.38475268796156703,
    -1.368319299254613,
    0.5957021533575729,
    -0.8794658102727825,
    0.9541799448071887,
    1.4382876411947343,
    0.8007181674805283,
    -0.40826116891685477,
    -0.9954582128559077,
    -0.7467786274778986,
    1.093373544591275,
];
const CAUSAL: [f64; 16] = [
    0.014924939635722168,
    -1.3487796447424552,
    -1.3599877161962441,
    0.6245083270158848,
    0.5872382034133038,
    -0.38846240241228547,
    -1.368319299254613,
    0.5957021533575729,
    -0.6498149718463844,
    -1.7091826752233776,
    1.4382876411947343,
    0.8007181674805283,
    -0.3271583350496001,
    -1.35545822956597,
    -0.7467786274778986,
    1.093373544591275,
];
const CAUSAL_LSE: [f64; 8] = [
    5.318748159643684,
    0.34232788702070993,
    4.736291460826439,
    1.336440630928127,
    -0.10220721104986705,
    1.0299322559716435,
    2.5319641329137785,
    0.3406928078011933,
];
const WINDOW: [f64; 16] = [
    0.014924939635722168,
    -1.3487796447424552,
    -1.4054692685255348,
    0.6101436058332116,
    0.5872382034133038,
    -0.38846240241228547,
    -1.395399595753416,
    0.586924245238605,
    -0.6498149718463844,
    -1.7091826752233776,
    -0.9091741564853362,
    -0.8097048621754499,
    -0.3271583350496001,
    -1.35545822956597,
    -0.89976598189903,
    1.0890778973631061,
];
const ALIBI: [f64; 16] = [
    -0.08132341725357917,
    -1.5102802817478989,
    -1.386549102616789,
    0.6208951426767896,
    0.22453508770826028,
    -0.9970627580276531,
    -1.3980253121884119,
    0.6081991358185986,
    -0.8236478008077606,
    -1.899753436983808,
    0.36782697693167005,
    0.5533677543543225,
    -0.7493734282198703,
    -1.818327368916439,
    -0.8900612099356737,
    1.1610048488549116,
];
const SOFTCAP: [f64; 16] = [
    0.6706728557924125,
    -0.24846261495563704,
    -1.2811422190224901,
    0.5805430250819769,
    0.7210052247586551,
    -0.16400704695679513,
    -1.3702805284000206,
    0.6063311232649271,
    -0.6492815027477837,
    -1.7085978397058093,
    1.729426847853477,
    1.0012549406312783,
    -0.21373389956987787,
    -1.231112435962046,
    -0.7748028905876331,
    1.066542866610812,
];
const BIAS: [f64; 16] = [
    -0.15234511911814583,
    -1.5968569301441826,
    -1.0182699027225623,
    0.7041872304908365,
    0.23390260117242712,
    -0.9589532927882357,
    -1.1348651426140055,
    0.590472238600292,
    -0.8910110875020271,
    0.9705699472519056,
    1.8167950614320167,
    1.022332065359815,
    -0.6498363541623116,
    -1.1795950996933278,
    0.04933965746669289,
    0.9874980628735686,
];
const DQ: [f64; 32] = [
    0.05374741585096082,
    0.20371657148631342,
    0.33548833250991944,
    0.4372919199589474,
    0.35738464147397675,
    0.2009862990109941,
    0.02663444904504768,
    -0.1500965769300124,
    0.5554720300957919,
    0.46860272070605646,
    0.3398745258922701,
    0.18078635191224562,
    0.6593953113213197,
    0.22253537345391558,
    -0.23420298655788177,
    -0.6700206912957914,
    -1.5461000452705354,
    -1.3281368263670292,
    -0.9915351002892693,
    -0.566362496743282,
    -0.9186655795492498,
    -0.7182267293310056,
    -0.45363082444125014,
    -0.14851342903070983,
    -0.3503096111031387,
    -0.25677970052110444,
    -0.1403124240459745,
    -0.011311456616464113,
    0.03297416605580076,
    -0.009359197559210136,
    -0.0508565319302982,
    -0.08781100376758069,
];
const DK: [f64; 24] = [
    0.323969427230552,
    0.23736026620905162,
    0.03911686313296703,
    -0.1775238118923989,
    -0.08423661687670778,
    0.28811364614708135,
    0.5249595594879932,
    0.5149087892823156,
    0.27445888225391474,
    -1.1530164465180732,
    -2.038210124113655,
    -1.9648017324268814,
    0.1420410595427528,
    0.1652814050310685,
    0.110787323140079,
    0.0041882320766344905,
    -0.7009503080877632,
    -0.02388669617749456,
    0.6644112021849754,
    1.0402261304484381,
    0.11841823779800054,
    0.03438108507251451,
    -0.06582602918184831,
    -0.13507413335190943,
];
const DV: [f64; 12] = [
    0.1057548849073554,
    0.014276097436039248,
    -0.280581663530584,
    0.3072129931034202,
    0.6748079239843627,
    0.7829720372135581,
    -0.6622473455063528,
    -1.4380831403172736,
    0.3914135166579493,
    0.7124620806187609,
    1.3791433482531108,
    1.5865472175898745,
];
const DSLOPES: [f64; 4] = [-2.9162613033849527, 0.7686218657612376, -1.3708343389297657, 0.022350516650519625];
const DBIAS: [f64; 6] =
    [0.7430619194759833, 4.388424091038944, 0.0, 0.8511386322217214, 1.0507840759835354, 2.7661147539239397];

fn qkv() -> [Literal; 3] {
    [wave(&[4, 2, 4], 0.7), wave(&[2, 3, 4], 0.3), wave(&[2, 3, 2], 1.1)]
}

fn build(x: &[Literal], options: AttentionOptions) -> Composite {
    attention(x[0].ty(), x[1].ty(), x[2].ty(), &options).unwrap()
}

fn causal() -> AttentionOptions {
    AttentionOptions { causal: true, ..AttentionOptions::default() }
}

fn ints(shape: &[usize], x: &[i32]) -> Literal {
    Literal::new(shape, x)
}

#[test]
fn forward_equals_pytorch() {
    let x = qkv();
    let (slopes, bias) = (wave(&[4], 0.2), wave(&[1, 2, 3], 0.6));
    let with = |extra: &[&Literal]| -> Vec<Literal> { x.iter().chain(extra.iter().copied()).cloned().collect() };
    let rows: [(AttentionOptions, Vec<Literal>, &[f64]); 6] = [
        (AttentionOptions::default(), with(&[]), &GQA),
        (causal(), with(&[]), &CAUSAL),
        (AttentionOptions { window: Some(2), ..causal() }, with(&[]), &WINDOW),
        (AttentionOptions { alibi_slopes: Some(slopes.ty().clone()), ..causal() }, with(&[&slopes]), &ALIBI),
        (AttentionOptions { softcap: Some(3.0), scale: Some(0.8), ..causal() }, with(&[]), &SOFTCAP),
        (AttentionOptions { mask: Some(bias.ty().clone()), ..AttentionOptions::default() }, with(&[&bias]), &BIAS),
    ];
    for (options, args, expected) in rows {
        close_to(&run(&build(&args, options), &args)[0], expected, 1e-12);
    }
    close_to(&run(&build(&x, causal()), &x)[1], &CAUSAL_LSE, 1e-12);
}

#[test]
fn gradients_equal_pytorch() {
    let (slopes, bias) = (wave(&[4], 0.2), wave(&[1, 2, 3], 0.6));
    let c = build(
        &qkv(),
        AttentionOptions {
            softcap: Some(3.0),
            alibi_slopes: Some(slopes.ty().clone()),
            mask: Some(bias.ty().clone()),
            ..causal()
        },
    );
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0, 1, 2, 3, 4]).unwrap();
    assert!(holds(&g, "attention") && holds(&g, "attention_backward"), "{g}");
    let mut args = qkv().to_vec();
    args.extend([slopes, bias, wave(&[4, 2, 2], 0.9), wave(&[4, 2], 0.4)]);
    let outs = interp::run(&g, &args).unwrap();
    for (got, expected) in outs[2..].iter().zip([&DQ[..], &DK, &DV, &DSLOPES, &DBIAS]) {
        close_to(got, expected, 1e-11);
    }
}

/// Every option, alone or with the options it is used with, on q [2, 2, 2, 3], k [2, 1, 3, 3], v [2, 1, 3, 2].
fn options() -> Vec<(AttentionOptions, Vec<Literal>)> {
    let mut n = Numbers::new(20);
    let ty = |l: &Literal| Some(l.ty().clone());
    let none = AttentionOptions::default();
    let offset = ints(&[2], &[1, 0]);
    let length = ints(&[2], &[3, 2]);
    let (sq, sk) = (ints(&[2, 2], &[0, 1, 1, 1]), ints(&[2, 3], &[0, 0, 1, 1, 1, 2]));
    let one_segment = (ints(&[2], &[0, 1]), ints(&[3], &[0, 1, 1]));
    let slopes = n.fill(&[2]);
    let bias = n.fill(&[2, 2, 1, 3]);
    let shared_bias = n.fill(&[1, 2, 3]);
    let bools = Literal::new(&[1, 2, 3], &[true, false, true, false, true, true]);
    vec![
        (none.clone(), vec![]),
        (AttentionOptions { causal: true, softcap: Some(2.0), ..none.clone() }, vec![]),
        (AttentionOptions { window: Some(2), q_offset: ty(&offset), ..causal() }, vec![offset.clone()]),
        (AttentionOptions { window: Some(1), kv_lengths: ty(&length), ..none.clone() }, vec![length.clone()]),
        (AttentionOptions { segment_ids: ty(&sq).zip(ty(&sk)), scale: Some(0.7), ..none.clone() }, vec![sq, sk]),
        (
            AttentionOptions {
                segment_ids: ty(&one_segment.0).zip(ty(&one_segment.1)),
                alibi_slopes: ty(&slopes),
                softcap: Some(1.5),
                ..causal()
            },
            vec![one_segment.0, one_segment.1, slopes.clone()],
        ),
        (AttentionOptions { mask: ty(&bias), ..none.clone() }, vec![bias]),
        (AttentionOptions { mask: ty(&shared_bias), ..causal() }, vec![shared_bias]),
        (AttentionOptions { mask: ty(&bools), alibi_slopes: ty(&slopes), ..none }, vec![slopes, bools]),
        (AttentionOptions { q_offset: ty(&offset), kv_lengths: ty(&length), ..causal() }, vec![offset, length]),
    ]
}

fn small() -> [Literal; 3] {
    let mut n = Numbers::new(21);
    [n.fill(&[2, 2, 2, 3]), n.fill(&[2, 1, 3, 3]), n.fill(&[2, 1, 3, 2])]
}

#[test]
fn derivatives_text_and_bf16() {
    for (o, extra) in options() {
        let x = [&small()[..], &extra].concat();
        let c = build(&x, o);
        check_grads(&c, &x);
        check_bf16(&c, &x, 0.03);
    }
}

#[test]
fn every_mix_of_batched_operands_stays_one_attention() {
    for (o, extra) in options() {
        let x = [&small()[..], &extra].concat();
        check_vmap(&build(&x, o), &x, &[]);
    }
}

#[test]
fn vmap_of_grad_keeps_forward_and_backward_claimable() {
    let (o, extra) = options().remove(5);
    let x = [&small()[..], &extra].concat();
    let g = tensorloom_transform::vjp(&graph_of(&build(&x, o)), &[0, 1, 2]).unwrap();
    let n = g.inputs().len();
    let (wide, _) = tensorloom_transform::vmap(&g, &vec![true; n], &vec![true; g.outputs().len()], 3).unwrap();
    assert!(holds(&wide, "attention") && holds(&wide, "attention_backward"), "{wide}");
    assert!(!holds(&wide, "vmapped"), "{wide}");
}

#[test]
fn a_row_that_sees_nothing_gives_zero_and_gradient_zero() {
    // Two queries before the first key, and one sequence without keys.
    let mut n = Numbers::new(22);
    let x = [n.fill(&[2, 1, 3, 2]), n.fill(&[2, 1, 2, 2]), n.fill(&[2, 1, 2, 2]), ints(&[2], &[2, 0])];
    let c = build(&x, AttentionOptions { kv_lengths: Some(x[3].ty().clone()), ..causal() });
    let outs = run(&c, &x);
    let (o, lse) = (outs[0].to_vec::<f64>(), outs[1].to_vec::<f64>());
    assert!(o[..2].iter().chain(&o[6..]).all(|&v| v == 0.0), "{o:?}");
    assert!(lse[0] == f64::NEG_INFINITY && lse[3..].iter().all(|&v| v == f64::NEG_INFINITY));
    assert!(lse[1..3].iter().all(|v| v.is_finite()));
    check_grads(&c, &x);
    // The same with a mask of -inf.
    let inf = f64::NEG_INFINITY;
    let mask = Literal::new(&[2, 1, 3, 2], &[inf, inf, 0.0, inf, 0.0, 0.0, inf, inf, inf, inf, inf, inf]);
    let y = [x[0].clone(), x[1].clone(), x[2].clone(), mask];
    let d = build(&y, AttentionOptions { mask: Some(y[3].ty().clone()), ..AttentionOptions::default() });
    for (a, b) in run(&d, &y).iter().zip(&outs) {
        close(a, b, 1e-15);
    }
    check_grads(&d, &y);
}

#[test]
fn keys_beyond_the_length_are_never_read() {
    let mut n = Numbers::new(23);
    let clean = [n.fill(&[1, 2, 2]), n.fill(&[1, 3, 2]), n.fill(&[1, 3, 2]), ints(&[], &[2])];
    let spoil = |x: &Literal| {
        Literal::from_fn(x.ty().clone(), |i| if i >= 4 { Scalar::from_f64(F, f64::NAN) } else { x.get(i) })
    };
    let dirty = [clean[0].clone(), spoil(&clean[1]), spoil(&clean[2]), clean[3].clone()];
    let c =
        build(&clean, AttentionOptions { kv_lengths: Some(Type::scalar(DType::I32)), ..AttentionOptions::default() });
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0, 1, 2]).unwrap();
    let cts = [n.fill(&[1, 2, 2]), n.fill(&[1, 2])];
    let expected = interp::run(&g, &[&clean[..], &cts].concat()).unwrap();
    let got = interp::run(&g, &[&dirty[..], &cts].concat()).unwrap();
    for (a, b) in got.iter().zip(&expected) {
        close(a, b, 0.0);
    }
}

#[test]
fn decoding_with_an_offset_equals_the_last_rows_of_the_whole() {
    let mut n = Numbers::new(24);
    let x = [n.fill(&[2, 5, 4]), n.fill(&[2, 5, 4]), n.fill(&[2, 5, 4])];
    let whole = run(&build(&x, causal()), &x);
    for at in 0..5 {
        let q = Literal::from_fn(Type::new(F, &[2, 1, 4]), |i| x[0].get(i / 4 * 20 + at * 4 + i % 4));
        let step = [q, x[1].clone(), x[2].clone(), ints(&[], &[at as i32]), ints(&[], &[at as i32 + 1])];
        let scalar = Some(Type::scalar(DType::I32));
        let c = build(&step, AttentionOptions { q_offset: scalar.clone(), kv_lengths: scalar, ..causal() });
        let expected = Literal::from_fn(Type::new(F, &[2, 1, 4]), |i| whole[0].get(i / 4 * 20 + at * 4 + i % 4));
        close(&run(&c, &step)[0], &expected, 1e-14);
    }
}

#[test]
fn backward_keeps_nothing_of_the_size_of_the_scores() {
    let t = Type::new(F, &[1, 16, 4]);
    let c = attention(&t, &t, &t, &causal()).unwrap();
    let l = tensorloom_transform::linearize(&graph_of(&c), &[true; 3]).unwrap();
    assert!(l.known.output_types().iter().all(|t| t.numel() < 256), "{}", l.known);
}

#[test]
fn misfits_name_what_was_found() {
    let t = |s: &[usize]| Type::new(F, s);
    let (q, k) = (t(&[4, 2, 4]), t(&[2, 3, 4]));
    let bad = |q: &Type, k: &Type, v: &Type, o: AttentionOptions| attention(q, k, v, &o).unwrap_err().to_string();
    let none = AttentionOptions::default;
    assert_eq!(
        bad(&t(&[3, 2, 4]), &k, &k, none()),
        "attention(f64[3,2,4], f64[2,3,4], f64[2,3,4]): needs a number of query heads that is divisible by 2 key heads, got 3"
    );
    assert!(bad(&q, &t(&[2, 3, 5]), &k, none()).contains("equal features, got 4 and 5"));
    assert!(bad(&q, &k, &t(&[2, 4, 4]), none()).contains("needs k and v"));
    assert!(bad(&q, &t(&[0, 3, 4]), &t(&[0, 3, 4]), none()).contains("0 key heads"));
    assert!(bad(&t(&[4]), &k, &k, none()).contains("needs q of"));
    let with = |f: &dyn Fn(&mut AttentionOptions)| {
        let mut o = none();
        f(&mut o);
        bad(&q, &k, &k, o)
    };
    assert!(with(&|o| o.window = Some(0)).contains("window of 1 or more"));
    assert!(with(&|o| o.softcap = Some(0.0)).contains("positive softcap"));
    assert!(with(&|o| o.scale = Some(f64::NAN)).contains("finite scale"));
    assert!(with(&|o| o.kv_lengths = Some(t(&[]))).contains("lengths of i32"));
    assert!(with(&|o| o.alibi_slopes = Some(t(&[2]))).contains("slopes of [4]"));
    assert!(with(&|o| o.mask = Some(t(&[2, 3]))).contains("mask of [4, 2, 3]"));
    assert!(with(&|o| o.segment_ids = Some((t(&[2]), t(&[3])))).contains("segments of [2] and [3]"));
}
