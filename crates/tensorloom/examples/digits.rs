//! A small network learns to read digits that are drawn here: shifted, stretched, noisy.

mod plot;

use tensorloom::{DType, Tensor, Tree, jit, nn, np, optim, random, tensor, value_and_grad};

const SIDE: usize = 16;
const BATCH: usize = 128;

/// Five by seven dots for each digit.
const FONT: [[u8; 7]; 10] = [
    [14, 17, 19, 21, 25, 17, 14],
    [4, 12, 4, 4, 4, 4, 14],
    [14, 17, 1, 2, 4, 8, 31],
    [31, 2, 4, 2, 1, 17, 14],
    [2, 6, 10, 18, 31, 2, 2],
    [31, 16, 30, 1, 1, 17, 14],
    [6, 8, 16, 30, 17, 17, 14],
    [31, 1, 2, 4, 8, 8, 8],
    [14, 17, 17, 14, 17, 17, 14],
    [14, 17, 17, 15, 1, 2, 12],
];

fn glyphs() -> Tensor {
    let dot = |d: usize, r: usize, c: usize| f32::from(FONT[d][r] >> (4 - c) & 1);
    let all: Vec<f32> = (0..350).map(|i| dot(i / 35, i / 5 % 7, i % 5)).collect();
    tensor(&all, &[10, 7, 5])
}

/// Pictures of digits `[n, SIDE·SIDE]` and what they show.
fn draw(key: &Tensor, n: usize) -> (Tensor, Tensor) {
    let k = random::split(key, 6);
    let labels = random::randint(&k.index(0, 0), &[n], DType::I32, 0, 10);
    let number = |i: isize, low: f64, high: f64| random::uniform(&k.index(0, i), &[n, 1, 1], DType::F32, low, high);
    // Where each pixel falls in the glyph: a scale, a slant and a shift for each picture.
    let grid = np::arange(0.0, SIDE as f64, 1.0);
    let (rows, columns) = (grid.reshape(&[1, SIDE as isize, 1]), grid.reshape(&[1, 1, SIDE as isize]));
    let y = (rows - number(1, 1.0, 4.0)) / number(2, 1.5, 1.9);
    let x = (columns - number(3, 2.0, 5.5)) / number(4, 1.5, 1.9) + (&y - 3.0) * number(5, -0.25, 0.25);
    // Bilinear weights of the glyph's dots.
    let weight = |at: &Tensor, size: f64| {
        let dots = np::arange(0.0, size, 1.0);
        (1.0 - (at.unsqueeze(-1) - dots).abs()).relu()
    };
    let y = y.expand(&[n as isize, SIDE as isize, SIDE as isize]);
    let pictures = np::take(&glyphs(), &labels, Some(0));
    let seen = np::einsum("nijr,nijc,nrc->nij", &[&weight(&y, 7.0), &weight(&x, 5.0), &pictures]);
    let noise = random::normal(&random::fold_in(key, 9), &[n, SIDE, SIDE], DType::F32) * 0.3;
    ((seen + noise).reshape(&[n as isize, -1]), labels)
}

#[derive(Tree)]
struct Layer {
    w: Tensor,
    b: Tensor,
}

fn layer(key: &Tensor, from: usize, to: usize) -> Layer {
    let w = random::normal(key, &[from, to], DType::F32) * (2.0 / from as f64).sqrt();
    Layer { w, b: np::zeros(&[to], DType::F32) }
}

fn logits(net: &[Layer], x: &Tensor) -> Tensor {
    let apply = |x: Tensor, l: &Layer| x.matmul(&l.w) + &l.b;
    let (last, inner) = net.split_last().expect("it has layers");
    apply(inner.iter().fold(x.clone(), |x, l| nn::relu(&apply(x, l))), last)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = random::split(&random::key(2), 3);
    let sizes = [SIDE * SIDE, 128, 64, 10];
    let mut net: Vec<Layer> = (0..3).map(|i| layer(&keys.index(0, i as isize), sizes[i], sizes[i + 1])).collect();
    let schedule = optim::warmup_cosine_decay_schedule(0.0, 3e-3, 50, 600, 1e-4);
    let optimizer = optim::chain([optim::clip_by_global_norm(1.0), optim::adamw(schedule, 1e-4)]);
    let mut state = optimizer.init(&net);

    // Data, loss, gradient and update are one program.
    let step = jit(|(net, state, key): (Vec<Layer>, optim::OptState, Tensor)| {
        let (x, labels) = draw(&key, BATCH);
        let loss = |net: Vec<Layer>| {
            let log = nn::log_softmax(&logits(&net, &x), -1);
            -np::take_along_axis(&log, &labels.unsqueeze(-1), -1).mean()
        };
        let (loss, g) = value_and_grad(loss).call(net.map(|t| t.clone()));
        let (updates, state) = optimizer.update(&g, &state, &net);
        (optim::apply_updates(&net, &updates), state, loss)
    });
    for i in 0..600u32 {
        let loss;
        (net, state, loss) = step.call((net, state, random::fold_in(&random::key(3), i)));
        if i % 100 == 0 {
            println!("step {i}: loss {:.3}", loss.item::<f32>()?);
        }
    }
    let (x, labels) = draw(&random::key(99), 2000);
    let guesses = np::argmax(&logits(&net, &x), Some(-1));
    let right = guesses.eq(&labels.cast(DType::I64)).cast(DType::F32).mean().item::<f32>()?;
    println!("{:.1} % of 2000 new digits are read correctly", 100.0 * right);

    // The first 160: what was read wrongly has a red frame.
    let (pixels, guesses, labels) = (x.to_vec::<f32>()?, guesses.to_vec::<i64>()?, labels.to_vec::<i32>()?);
    let cell = 3 * SIDE + 6;
    let mut picture = plot::Canvas::new(20 * cell, 8 * cell, [0.0, 1.0, 0.0, 1.0]);
    for i in 0..160 {
        let (left, top) = (i % 20 * cell, i / 20 * cell);
        let good = guesses[i] == i64::from(labels[i]);
        for p in 0..cell * cell {
            let (px, py) = (p % cell, p / cell);
            let inside = (3..cell - 3).contains(&px) && (3..cell - 3).contains(&py);
            let colour = match (inside, good) {
                (true, _) => {
                    let v = pixels[i * SIDE * SIDE + (py - 3) / 3 * SIDE + (px - 3) / 3];
                    [255 - (v.clamp(0.0, 1.0) * 255.0) as u8; 3]
                }
                (false, true) => [235, 240, 245],
                (false, false) => plot::RED,
            };
            picture.set(left + px, top + py, colour);
        }
    }
    picture.save("digits")
}
