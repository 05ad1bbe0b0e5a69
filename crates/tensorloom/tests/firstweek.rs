//! The examples of a first week, run on the data and the first parameters that PyTorch and JAX had
//! (`golden/firstweek/make.py`): the same losses, parameters and answers.

use tensorloom::nn::StateDict;
use tensorloom::prelude::*;
use tensorloom::{engine, load};

#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/char_lstm.rs"]
pub mod char_lstm;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/cnn.rs"]
pub mod cnn;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/forecast.rs"]
pub mod forecast;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/kmeans.rs"]
pub mod kmeans;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/linear_regression.rs"]
pub mod linear_regression;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/moons.rs"]
pub mod moons;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/newton.rs"]
pub mod newton;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/pca.rs"]
pub mod pca;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/recommender.rs"]
pub mod recommender;
#[expect(dead_code, reason = "its main runs as an example")]
#[path = "../examples/vae.rs"]
pub mod vae;

struct Golden {
    program: &'static str,
    all: StateDict,
}

impl Golden {
    fn of(program: &'static str) -> Golden {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/firstweek");
        Golden { program, all: load(format!("{folder}/{program}.safetensors")).unwrap() }
    }

    #[track_caller]
    fn get(&self, name: &str) -> Tensor {
        engine().literal(self.all.get(name).unwrap_or_else(|| panic!("no {name} of {}", self.program)))
    }

    fn data(&self, name: &str) -> Tensor {
        self.get(&format!("data/{name}"))
    }

    fn begin(&self, model: &impl Module) {
        let own = self.all.iter().filter_map(|(k, v)| Some((k.strip_prefix("init/")?.to_string(), v.clone())));
        model.load_state_dict(&own.collect()).unwrap();
    }

    /// What came out is what was expected, to a share of the largest element.
    #[track_caller]
    fn check(&self, name: &str, got: &Tensor, share: f64) {
        let expected = self.get(&format!("out/{name}"));
        assert_eq!(got.shape(), expected.shape(), "{name} of {}", self.program);
        let (a, b) = (got.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap());
        let scale = b.iter().fold(1e-2f64, |m, x| m.max(x.abs()));
        let worst = a.iter().zip(&b).fold(0f64, |m, (x, y)| m.max((x - y).abs() / scale));
        assert!(worst <= share, "{name} of {} is off by {worst:.2e}: {a:?} for {b:?}", self.program);
    }

    #[track_caller]
    fn check_all(&self, model: &impl Module, share: f64) {
        let tensors = model.named_tensors();
        assert!(!tensors.is_empty());
        tensors.iter().for_each(|(name, t)| self.check(name, t, share));
    }

    #[track_caller]
    fn check_losses(&self, losses: &[f32], share: f64) {
        self.check("losses", &tensor(losses, losses.len()), share);
        assert!(losses[losses.len() - 1] < losses[0], "{} learned nothing", self.program);
    }
}

#[test]
fn linear_regression_is_pytorch_s() {
    let g = Golden::of("linear_regression");
    let model = nn::Linear::new(3, 1);
    g.begin(&model);
    g.check_losses(&linear_regression::fit(&model, &g.data("x"), &g.data("y"), 60).unwrap(), 1e-5);
    g.check_all(&model, 1e-5);
    g.check("exact", &linear_regression::exact(&g.data("x"), &g.data("y")), 1e-5);
}

#[test]
fn moons_is_pytorch_s() {
    let g = Golden::of("moons");
    let net = moons::net();
    g.begin(&net);
    let (x, y) = (g.data("x"), g.data("y"));
    g.check_losses(&moons::train(&net, &x, &y, 8).unwrap(), 1e-4);
    g.check_all(&net, 1e-3);
    g.check("accuracy", &full((), moons::accuracy(&net, &x, &y).unwrap()), 1e-6);
}

#[test]
fn cnn_is_pytorch_s() {
    let g = Golden::of("cnn");
    let model = cnn::Cnn::new();
    g.begin(&model);
    g.check_losses(&cnn::train(&model, &g.data("x"), &g.data("y"), 4).unwrap(), 1e-3);
    g.check_all(&model, 5e-3);
    model.train(false);
    g.check("logits", &model.forward(&g.data("x")), 5e-3);
}

#[test]
fn char_lstm_is_pytorch_s() {
    let g = Golden::of("char_lstm");
    let (letters, ids) = char_lstm::encode(char_lstm::TEXT);
    let model = char_lstm::CharLstm::new(letters.len());
    g.begin(&model);
    let (losses, norms) = char_lstm::train(&model, &ids, 12).unwrap();
    g.check_losses(&losses, 1e-4);
    g.check("norms", &tensor(&norms, norms.len()), 1e-3);
    g.check_all(&model, 1e-3);
    g.check("said", &tensor(char_lstm::say(&model, ids[0], 10).unwrap(), 10), 0.0);
}

#[test]
fn forecast_is_pytorch_s() {
    let g = Golden::of("forecast");
    let model = forecast::Forecast::new();
    g.begin(&model);
    let (x, y) = forecast::windows(&g.data("series"), 60);
    g.check_losses(&forecast::train(&model, &x, &y, 14).unwrap(), 1e-4);
    g.check_all(&model, 1e-3);
    g.check("next", &model.forward(&x.i((.., -3..))), 1e-3);
}

#[test]
fn kmeans_is_jax_s() {
    let g = Golden::of("kmeans");
    let (centers, rounds) = kmeans::kmeans(&g.data("x"), &g.data("start"));
    g.check("centers", &centers, 1e-5);
    g.check("rounds", &rounds, 0.0);
    g.check("labels", &kmeans::assign(&g.data("x"), &centers), 0.0);
}

#[test]
fn pca_is_jax_s() {
    let g = Golden::of("pca");
    let found = pca::pca(&g.data("x"), 3);
    g.check("ratio", &found.ratio, 1e-5);
    g.check("projector", &found.directions.t().matmul(&found.directions), 1e-4);
    g.check("restored", &found.restored, 1e-4);
}

#[test]
fn vae_is_pytorch_s() {
    let g = Golden::of("vae");
    let model = vae::Vae::new();
    g.begin(&model);
    let (params, losses) = vae::train(&model, &g.data("x"), 15).unwrap();
    g.check_losses(&losses, 1e-4);
    params.iter().for_each(|(name, t)| g.check(name, t, 1e-3));
}

#[test]
fn recommender_is_pytorch_s() {
    let g = Golden::of("recommender");
    let model = recommender::Recommender::new(12, 9);
    g.begin(&model);
    let data = ["users", "films", "ratings"].map(|n| g.data(n));
    g.check_losses(&recommender::train(&model, &data[0], &data[1], &data[2], 6).unwrap(), 1e-3);
    g.check_all(&model, 1e-2);
    g.check("best", &tensor(model.best(0, 3).unwrap(), 3), 0.0);
}

#[test]
fn newton_is_jax_s() {
    let g = Golden::of("newton");
    let (x, y) = (g.data("x"), g.data("y"));
    let (w, losses) = newton::newton(&x, &y, 6).unwrap();
    g.check_losses(&losses, 1e-5);
    g.check("w", &w, 1e-4);
    g.check("per_row", &newton::per_row(&w, &x, &y), 1e-4);
}
