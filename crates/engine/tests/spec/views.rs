use super::*;

fn grid(e: &Engine) -> Tensor {
    e.tensor(&(0..6).map(|i| i as f32).collect::<Vec<_>>(), &[2, 3])
}

#[test]
fn s4_1_views_share_a_base_and_other_ops_do_not() {
    let e = engine();
    let x = grid(&e);
    for v in [
        x.t(),
        x.permute(&[1, 0]),
        x.reshape(&[6]),
        x.view(&[3, 2]),
        x.slice(1, 0, 2, 1),
        x.index(0, 1),
        x.unsqueeze(0),
        x.detach(),
    ] {
        assert_eq!(v.base_id(), x.base_id(), "{v}");
    }
    for v in [x.tanh(), x.copy(), x.t().reshape(&[6]), x.flip(&[0])] {
        assert_ne!(v.base_id(), x.base_id(), "{v}");
    }
}

#[test]
fn s2_3_view_metadata_is_offset_and_strides_in_bytes() {
    let e = engine();
    let x = grid(&e);
    let m = x.t().view_meta();
    assert_eq!((m.offset_bytes, m.strides_bytes.as_slice(), m.is_contiguous), (0, [4isize, 12].as_slice(), false));
    let m = x.slice(1, 1, 3, 2).view_meta();
    assert_eq!((m.offset_bytes, m.strides_bytes.as_slice(), m.is_contiguous), (4, [12isize, 8].as_slice(), false));
    let m = x.index(0, 1).expand(&[4, 3]).view_meta();
    assert_eq!((m.offset_bytes, m.strides_bytes.as_slice()), (12, [0isize, 4].as_slice()));
    assert!(x.reshape(&[3, 2]).view_meta().is_contiguous);
}

#[test]
fn s4_2_views_have_the_values_of_their_base_through_its_binding() {
    let e = engine();
    let x = grid(&e);
    let (t, s) = (x.t(), x.slice(1, 0, 3, 2));
    is(&t, &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    is(&s, &[0.0, 2.0, 3.0, 5.0]);
    x.mul_scalar_(10);
    is(&t, &[0.0, 30.0, 10.0, 40.0, 20.0, 50.0]);
    is(&s, &[0.0, 20.0, 30.0, 50.0]);
    e.mark_step().unwrap();
    is(&t.t(), &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
}

#[test]
fn s4_4_writes_through_views_of_views() {
    let e = engine();
    let x = grid(&e);
    x.t().slice(0, 1, 3, 1).index(1, 0).copy_(&vec1(&e, &[-1.0, -2.0]));
    is(&x, &[0.0, -1.0, -2.0, 3.0, 4.0, 5.0]);
    x.slice(1, 0, 3, 2).add_scalar_(100);
    is(&x, &[100.0, -1.0, 98.0, 103.0, 4.0, 105.0]);
    x.reshape(&[6]).narrow(0, 2, 2).zero_();
    is(&x, &[100.0, -1.0, 0.0, 0.0, 4.0, 105.0]);
    x.permute(&[1, 0]).index(0, -1).mul_(&e.tensor(&[2.0f32], &[]));
    is(&x, &[100.0, -1.0, 0.0, 0.0, 4.0, 210.0]);
}

#[test]
fn s4_4_expanded_views_cannot_be_written() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let err = x.expand(&[3]).add_scalar_(1).check().unwrap_err().to_string();
    assert!(err.contains("expanded") && err.contains("views.rs"), "{err}");
    is(&x, &[1.0]);
}

#[test]
fn s4_4_a_write_through_a_view_of_an_expanded_tensor_changes_the_shared_element() {
    type Write = fn(&Tensor) -> Tensor;
    let cases: [(&str, Write, &[f32]); 7] = [
        ("one of a repeated axis", |x| x.slice(0, 0, 1, 1).expand(&[3]).index(0, 2).add_(1.0), &[1.0, 1.0, 2.0]),
        ("one row", |x| x.expand(&[4, 3]).index(0, 3).mul_(3.0), &[0.0, 3.0, 6.0]),
        ("part of a row", |x| x.expand(&[4, 3]).i((2, 1..)).fill_(7.0), &[0.0, 7.0, 7.0]),
        ("repeated rows, one number", |x| x.expand(&[4, 3]).i((1..3, ..2)).fill_(7.0), &[7.0, 7.0, 2.0]),
        ("a column of one", |x| x.view(&[3, 1]).expand(&[3, 5]).index(1, 4).neg_(), &[-0.0, -1.0, -2.0]),
        ("reshaped in between", |x| x.index(0, 1).expand(&[6]).view(&[2, 3]).i((1, 2)).zero_(), &[0.0, 0.0, 2.0]),
        ("nothing", |x| x.expand(&[0, 3]).add_(1.0), &[0.0, 1.0, 2.0]),
    ];
    for (name, write, expected) in cases {
        let e = engine();
        let x = e.arange(F, 3).copy();
        write(&x).check().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(x.to_vec::<f32>().unwrap(), expected, "{name}");
        let x = e.arange(F, 3).copy();
        e.compile(|x: Tensor| write(&x)).call(x.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(x.to_vec::<f32>().unwrap(), expected, "{name} in a region");
    }
}

#[test]
fn s4_4_writing_to_one_element_does_not_compute_the_expanded_tensor() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.expand(&[1usize << 40]).index(0, 5).add_(1.0);
    is(&x, &[2.0]);
}

#[test]
fn s4_3_in_place_ops_take_tensors_without_elements() {
    let e = engine();
    let index = e.zeros(DType::I64, &[0]);
    for whole in [[0, 3], [3, 0], [0, 0], [0, 1]] {
        for view in
            [|x: &Tensor| x.clone(), |x: &Tensor| x.t(), |x: &Tensor| x.unsqueeze(0).expand(&[2, -1, -1]).index(0, 1)]
        {
            let x = view(&e.zeros(F, &whole));
            let like = e.ones(F, x.shape());
            let all = [
                x.add_(1.0),
                x.mul_(&like),
                x.copy_(&like),
                x.fill_(3),
                x.zero_(),
                x.exp_(),
                x.clamp_(0, 1),
                x.relu_(),
                x.addcmul_(&like, &like, 2),
                x.lerp_(&like, 0.5),
                x.masked_fill_(&e.zeros(DType::Bool, x.shape()), 1),
                x.index_fill_(0, &index, 1),
                x.scatter_add_(0, &e.zeros(DType::I64, x.shape()), &like),
            ];
            for (k, y) in all.iter().enumerate() {
                y.check().unwrap_or_else(|e| panic!("{k} of {:?}: {e}", x.shape()));
            }
            assert_eq!(x.to_vec::<f32>().unwrap(), [0f32; 0]);
        }
    }
}

#[test]
fn s4_2_reshape_of_strided_views_copies_only_where_it_must() {
    let e = engine();
    let x = e.tensor(&(0..24).map(|i| i as f32).collect::<Vec<_>>(), &[2, 3, 4]);
    assert_eq!(x.slice(2, 0, 2, 1).reshape(&[6, 2]).base_id(), x.base_id());
    assert_ne!(x.slice(2, 0, 2, 1).reshape(&[12]).base_id(), x.base_id());
    assert!(x.slice(2, 0, 2, 1).view(&[12]).check().is_err());
    let y = x.transpose(0, 1).reshape(&[3, 8]);
    assert_eq!(y.to_vec::<f32>().unwrap()[..8], [0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 14.0, 15.0]);
}

#[test]
fn broadcasting_and_promotion_are_numpys() {
    let e = engine();
    let x = grid(&e);
    is(&(&x + &vec1(&e, &[10.0, 20.0, 30.0])), &[10.0, 21.0, 32.0, 13.0, 24.0, 35.0]);
    let i = e.tensor(&[1i32, 2], &[2, 1]);
    let y = &x * &i;
    assert_eq!(y.dtype(), F);
    is(&y, &[0.0, 1.0, 2.0, 6.0, 8.0, 10.0]);
    assert_eq!((&i * 2).dtype(), DType::I32);
    assert_eq!((&i * 2.5).dtype(), F);
    is(&(1.0 - &x.index(0, 0)), &[1.0, 0.0, -1.0]);
    is(&x.matmul(&vec1(&e, &[1.0, 1.0, 1.0])), &[3.0, 12.0]);
    is(&x.matmul(&x.t()), &[5.0, 14.0, 14.0, 50.0]);
    let b = e.ones(F, &[5, 3, 2]);
    assert_eq!(x.matmul(&b).dims::<3>().unwrap(), [5, 2, 2]);
    is(&x.sum_axes(&[-1], true), &[3.0, 12.0]);
    is(&x.mean(), &[2.5]);
    assert!(x.sum_axes(&[2], false).check().is_err());
}

/// One of the views that a tensor has.
fn some_view(t: &Tensor, dense: bool, rng: &mut testing::rng::Rng) -> Tensor {
    let rank = t.rank();
    if rank == 0 {
        return t.unsqueeze(0);
    }
    let axis = rng.below(rank);
    let n = t.shape()[axis];
    match rng.below(9) {
        0 => {
            let p: Vec<isize> = rng.permutation(rank).iter().map(|&a| a as isize).collect();
            t.permute(&p)
        }
        1 if rank > 1 => t.t(),
        2 | 3 if n > 1 => {
            let start = rng.below(n - 1);
            let end = start + 1 + rng.below(n - start);
            t.slice(axis as isize, start as isize, end as isize, 1 + rng.below(2))
        }
        4 if rank > 1 => t.index(axis as isize, rng.below(n) as isize),
        5 if rank < 5 => t.unsqueeze(rng.below(rank + 1) as isize),
        6 if dense => t.view(&[-1]),
        7 if dense && t.numel().is_multiple_of(2) => t.view(&[2, -1]),
        8 if n == 1 => t.squeeze(axis as isize),
        _ => t.transpose(0, -1),
    }
}

#[test]
fn s4_2_chains_of_views_are_what_copies_at_every_step_are() {
    let e = engine();
    let mut rng = testing::rng::Rng::new(7);
    for case in 0..300 {
        let shape = [2 + rng.below(3), 1 + rng.below(4), 2 + rng.below(3)];
        let n: usize = shape.iter().product();
        let sizes: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
        let whole = e.arange(DType::I64, n).reshape(&sizes).copy();
        let (mut view, mut copy) = (whole.clone(), whole.copy());
        for _ in 0..1 + rng.below(14) {
            let (seed, dense) = (rng.bits(), view.view_meta().is_contiguous);
            view = some_view(&view, dense, &mut testing::rng::Rng::new(seed));
            copy = some_view(&copy, dense, &mut testing::rng::Rng::new(seed)).copy();
        }
        let places = copy.to_vec::<i64>().unwrap();
        assert_eq!(view.to_vec::<i64>().unwrap(), places, "case {case}");
        view.fill_(-1);
        let expected: Vec<i64> = (0..n as i64).map(|i| if places.contains(&i) { -1 } else { i }).collect();
        assert_eq!(whole.to_vec::<i64>().unwrap(), expected, "case {case}: {:?}", view.view_meta());
    }
}

#[test]
fn a_view_of_a_view_costs_what_a_view_does() {
    let e = engine();
    let x = e.arange(DType::F32, 60_000).reshape(&[2, 30_000]).copy();
    type Step = fn(&Tensor) -> Tensor;
    let steps: [(&str, Step); 6] = [
        ("t", |t| t.t()),
        ("slice", |t| t.slice(-1, 0, -1, 1)),
        ("t and slice", |t| if t.size(0) == 2 { t.slice(1, 1, 40_000, 1).t() } else { t.t() }),
        ("unsqueeze and index", |t| t.unsqueeze(0).index(0, 0)),
        ("view", |t| if t.rank() == 2 { t.view(&[-1]) } else { t.view(&[2, -1]) }),
        ("detach", |t| t.detach()),
    ];
    for (name, step) in steps {
        let start = std::time::Instant::now();
        let mut t = x.clone();
        for _ in 0..20_000 {
            t = step(&t);
        }
        t.sum().item::<f32>().unwrap();
        // A few milliseconds; the lengths of chains are tested where they are made.
        assert!(start.elapsed().as_secs() < 5, "{name} takes {:?}", start.elapsed());
    }
}

#[test]
fn chains_that_do_not_join_drop_without_recursion() {
    let e = engine();
    let mut t = e.arange(DType::F32, 4).reshape(&[2, 2]).copy();
    for _ in 0..50_000 {
        // That the permutation moves nothing but an axis of size 1 is not seen.
        t = t.unsqueeze(0).transpose(0, 1).squeeze(1);
    }
    assert_eq!(t.shape(), [2, 2]);
    drop(t);
}
