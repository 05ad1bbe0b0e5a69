use super::*;
use engine::EngineOptions;

fn two() -> Engine {
    Engine::with(vec![Arc::new(cpu::Cpu::new(1)), Arc::new(cpu::Cpu::new(1))], &EngineOptions::default())
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
