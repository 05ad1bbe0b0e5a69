//! Errors name the user's line and the remedy, wherever in the library they come from.

use std::sync::{Arc, Mutex};
use tensorloom::nn::StateDict;
use tensorloom::prelude::*;
use tensorloom::{Result, debug, load, save};

/// The error is one of this file's line `line`, and says all of these.
#[track_caller]
fn at(line: u32, error: tensorloom::Error, says: &[&str]) {
    let text = error.to_string();
    assert!(text.contains(&format!("error_lines.rs:{line}:")), "line {line}: {text}");
    for part in says {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[track_caller]
fn of(t: &Tensor) -> tensorloom::Error {
    t.error().expect("it is invalid")
}

#[test]
fn calls_into_the_library_have_the_caller_s_line() {
    let model = nn::Linear::new(3, 2);
    at(line!(), model.load_state_dict(&StateDict::new()).unwrap_err(), &["load_state_dict", "no weight"]);
    let net = nn::Sequential::default().add(nn::Linear::new(3, 2)).add(nn::Relu).add(nn::Linear::new(4, 1));
    at(line!(), of(&net.forward(&ones((2, 3)))), &["matmul", "2 elements"]);
    at(line!(), of(&net.forward(&ones((2, 7)))), &["matmul", "7 elements"]);
    let tuple = (nn::Linear::new(3, 2), (nn::Tanh, nn::Linear::new(5, 1)));
    at(line!(), of(&tuple.forward(&ones((2, 3)))), &["matmul"]);
    at(line!(), of(&ones(3).copy_(&ones(4))), &["copy_"]);
    at(line!(), of(&ones(3).dropout(1.5)), &["dropout"]);
    at(line!(), of(&jit(|x: Tensor| nn::Dropout::new(0.5).forward(&x)).call(ones(3))), &["key"]);
    at(line!(), of(&nn::Embedding::new(3, 2).forward(&ones(2))), &["embedding"]);
    at(line!(), of(&nn::LayerNorm::new(3).forward(&ones((2, 4)))), &["layernorm"]);
    at(line!(), of(&nn::Conv2d::new(1, 1, 3, Default::default()).forward(&ones(3))), &["conv2d"]);
    at(line!(), of(&nn::MultiheadAttention::new(4, 2).forward(&ones(3))), &["attention"]);
    at(line!(), of(&nn::Lstm::new(3, 4).forward(&ones((5, 2, 7)))), &["lstm", "[T, N, 3]"]);
    at(line!(), of(&nn::Gru::new(3, 4).run(&ones((5, 2, 3)), Some(ones((2, 2, 4)))).0), &["gru", "state"]);
    at(line!(), of(&nn::BatchNorm::new(3).forward(&ones((2, 4)))), &["batch_norm"]);
    at(line!(), of(&nn::mse_loss(&ones(2), &ones(3))), &["[2]", "[3]"]);
    at(line!(), of(&nn::huber_loss(&ones(2), &ones(3), 1.0)), &["[2]", "[3]"]);
    let labels = tensor(&[0, 1], 2);
    at(line!(), of(&nn::cross_entropy(&ones((3, 4)), &labels, Default::default())), &["cross_entropy"]);
    at(line!(), of(&np::concatenate(&[&ones((2, 3)), &ones((3, 2))], 0)), &["concat"]);
    at(line!(), of(&random::normal(&ones(3), &[2], DType::F32)), &["key"]);
    at(line!(), load("/no/such.safetensors").unwrap_err(), &["/no/such.safetensors"]);
    at(line!(), save("/no/such/x", &StateDict::new()).unwrap_err(), &["/no/such/x"]);
    at(line!(), nn::functional_call(&model, &[("w".to_string(), ones(1))].into()).unwrap_err(), &["no w"]);
    at(line!(), DataLoader::new((ones(2), ones(3))).err().unwrap(), &["3 examples"]);
    let optimizer = optimizer::Adam::new(model.parameters(), 0.1);
    let state: StateDict = [("9.step".to_string(), ones(()).to_literal().unwrap())].into();
    at(line!(), optimizer.load_state_dict(&state).unwrap_err(), &["9.step"]);
    at(line!(), GradScaler::new().step(&optimizer).unwrap_err(), &["gradient"]);
}

/// A layer of the user's own inside a sequence has its own lines.
#[derive(Module, Tree)]
struct Own;

impl Layer for Own {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.matmul(&ones((77, 1)))
    }
}

const OWN: u32 = line!() - 4;

#[test]
fn layers_of_the_user_have_their_own_lines() {
    let net = nn::Sequential::default().add(nn::Relu).add(Own);
    at(OWN, of(&net.forward(&ones((2, 3)))), &["matmul", "77"]);
}

#[test]
fn remedies_are_named() -> Result<()> {
    let x = ones(3).requires_grad_();
    let y = x.exp();
    let z = (&y * &y).sum();
    no_grad(|| y.add_(1));
    let error = z.backward().unwrap_err().to_string();
    assert!(error.contains("copy()"), "{error}");
    // And it works.
    let y = x.exp();
    let z = (&y * &y).sum();
    no_grad(|| y.copy().add_(1));
    z.backward()
}

#[test]
fn an_invalid_tensor_answers_with_its_error() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let into = told.clone();
    debug::set_output(move |text| into.lock().unwrap().push(text.to_string()));
    let made = line!() + 1;
    let bad = ones((2, 3)).matmul(&ones((2, 3))).relu();
    at(made, bad.try_shape().unwrap_err(), &["matmul"]);
    at(made, bad.dims::<2>().unwrap_err(), &["matmul"]);
    at(made, bad.try_size(0).unwrap_err(), &["matmul"]);
    at(line!(), ones(3).try_size(1).unwrap_err(), &["axis"]);
    // What the library asks itself is no question of the user's.
    let _ = (nn::softmax(&bad, -1), np::sum(&bad, 0), &bad + 1, bad.i(0), nn::Linear::new(3, 2).forward(&bad));
    assert!(told.lock().unwrap().is_empty(), "{told:?}");
    let asked = line!() + 1;
    assert_eq!(bad.shape(), [0usize; 0]);
    let _ = (bad.rank(), bad.size(0), bad.numel());
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    let text = &told[0];
    assert!(text.contains(&format!("error_lines.rs:{asked}: the shape of an invalid tensor: matmul")), "{text}");
    assert!(text.contains(&format!("error_lines.rs:{made}:")), "{text}");
}
