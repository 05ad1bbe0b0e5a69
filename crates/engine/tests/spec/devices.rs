use super::*;
use tensorloom_engine::EngineOptions;

fn two() -> Engine {
    Engine::with_backends(vec![Arc::new(cpu::Cpu::new(1)), Arc::new(cpu::Cpu::new(1))], &EngineOptions::default())
}

#[test]
fn s13_transfers_are_lazy() {
    let e = two();
    let x = vec1(&e, &[1.0, 2.0]);
    let y = x.to(1);
    assert_eq!((x.device(), y.device()), (0, 1));
    assert_eq!(e.inspect().transferred, 0);
    is(&y, &[1.0, 2.0]);
    assert_eq!(e.inspect().transferred, 8);
    assert_eq!(y.to(1).base_id(), y.base_id(), "it is there already");
    assert!(x.to(7).check().is_err());
}

#[test]
fn s13_an_op_runs_where_its_first_operand_lives() {
    let e = two();
    let (x, y) = (vec1(&e, &[1.0, 2.0]), vec1(&e, &[10.0, 20.0]).to(1));
    let (a, b) = (&x + &y, &y + &x);
    assert_eq!((a.device(), b.device()), (0, 1));
    assert_eq!((2.0 * &y).device(), 1, "a number goes where the tensor is");
    is(&a, &[11.0, 22.0]);
    is(&b, &[11.0, 22.0]);
    is(&b.to(0), &[11.0, 22.0]);
    y.add_(&x);
    assert_eq!(y.device(), 1);
    is(&y, &[11.0, 22.0]);
}

#[test]
fn s13_gradients_flow_through_transfers() {
    let e = two();
    let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
    let y = w.to(1);
    (&y * &y).sum().backward().unwrap();
    is(&w.grad().unwrap(), &[2.0, 4.0]);
}

#[test]
fn a_compiled_call_runs_where_its_arguments_are() {
    let e = two();
    let w = vec1(&e, &[3.0, 4.0]).to(1);
    let x = vec1(&e, &[1.0, 2.0]).to(1);
    let f = e.compile(|x: Tensor| {
        w.add_(&x);
        (&x * &w).sum()
    });
    let y = f.call(x.clone()).unwrap();
    assert_eq!((y.device(), w.device()), (1, 1));
    assert_eq!(y.item::<f32>().unwrap(), 16.0);
    is(&w, &[4.0, 6.0]);
    assert_eq!(e.variant_keys()[0].device, 1);
    assert_eq!(e.inspect().transferred, 16, "the two tensors, once");
    let program = e.program(f_graph(), &[]).unwrap();
    for device in [0, 1, 0] {
        let z = program.call(&ir::Loc::Unknown, [vec1(&e, &[1.0, 2.0]).to(device)].into_iter().collect());
        assert_eq!(z[0].device(), device);
        is(&z[0], &[2.0, 4.0]);
    }
}

/// `x + x`.
fn f_graph() -> ir::Graph {
    let mut b = ir::Builder::new();
    let x = b.input(F, &[2]);
    let y = ir::GraphBuilder::add(&mut b, x, x).unwrap();
    b.finish(&[y])
}

#[test]
fn a_compiled_call_on_two_devices_is_an_error_with_the_remedy() {
    let e = two();
    let (x, y) = (vec1(&e, &[1.0, 2.0]), vec1(&e, &[1.0, 2.0]).to(1));
    let f = e.compile(|(x, y): (Tensor, Tensor)| &x + &y);
    let err = f.call((x.clone(), y.clone())).unwrap_err().to_string();
    assert!(err.contains("device 0") && err.contains("device 1") && err.contains("to("), "{err}");
    is(&f.call((x, y.to(0))).unwrap(), &[2.0, 4.0]);
    // A scalar follows.
    let g = e.compile(|(x, s): (Tensor, Tensor)| &x * &s);
    is(&g.call((y, e.full(F, &[], 3.0))).unwrap(), &[3.0, 6.0]);
}

#[test]
fn new_tensors_are_made_on_the_device_at_hand() {
    let e = two();
    tensorloom_engine::with_device(1, || {
        assert_eq!(tensorloom_engine::default_device(), 1);
        for t in [e.zeros(F, &[2]), e.arange(F, 2), vec1(&e, &[1.0]), e.rand(&[3])] {
            assert_eq!(t.device(), 1);
            t.to_vec::<f32>().unwrap();
        }
        let there = tensorloom_engine::with_device(0, || e.ones(F, &[2]));
        assert_eq!(((&there + 1.0).device(), there.device()), (0, 0), "ops run where their operands are");
    });
    assert_eq!(e.inspect().transferred, 0, "nothing was made elsewhere first");
    assert_eq!(e.zeros(F, &[2]).device(), 0);
    let err = tensorloom_engine::with_device(7, || e.zeros(F, &[2])).check().unwrap_err().to_string();
    assert!(err.contains("device is 7") && err.contains("devices()"), "{err}");
}

#[test]
fn an_op_that_a_device_has_no_kernel_for_stops_nobody() {
    let devices: Vec<Arc<dyn compiler::Backend>> =
        vec![Arc::new(cpu::Cpu::new(1)), Arc::new(testing::fake_device::FakeDevice::new(1))];
    let e = Engine::with_backends(devices, &EngineOptions::default());
    let wide = e.tensor(&[1.0f64, 2.0], &[2]).to(1);
    let sum = &wide + &wide;
    for _ in 0..2 {
        let err = sum.to_vec::<f64>().unwrap_err().to_string();
        assert!(err.contains("f64") && err.contains("does not support"), "{err}");
    }
    let narrow = vec1(&e, &[1.0, 2.0]).to(1);
    is(&(&narrow + &narrow), &[2.0, 4.0]);
}
