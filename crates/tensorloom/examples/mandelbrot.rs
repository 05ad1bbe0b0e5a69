//! The Mandelbrot set: one compiled loop over all points at once.

mod plot;

use tensorloom::{DType, Tensor, jit, lax, np};

const SIZE: (usize, usize) = (900, 600);
const STEPS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (w, h) = SIZE;
    let axes = [np::linspace(-2.2, 0.8, w, true, DType::F64), np::linspace(-1.0, 1.0, h, true, DType::F64)];
    let grid = np::meshgrid(&[&axes[0], &axes[1]], "xy");

    // z ← z² + c; a point's count grows as long as it stays near.
    let escape = jit(|(cr, ci): (Tensor, Tensor)| {
        let step = |((zr, zi, n), ()): ((Tensor, Tensor, Tensor), ())| {
            let (r2, i2) = (zr.square(), zi.square());
            let near = np::less(&(&r2 + &i2), 64.0);
            let next = (&r2 - &i2 + &cr, &zr * &zi * 2.0 + &ci);
            let keep = |new: &Tensor, old: &Tensor| near.select(new, old);
            ((keep(&next.0, &zr), keep(&next.1, &zi), n + near.cast(DType::F64)), ())
        };
        let zero = np::zeros_like(&cr);
        let init = (zero.clone(), zero.clone(), zero);
        let ((zr, zi, n), ()) = lax::Scan::new().length(STEPS).run(step, init, ());
        // A fraction of a step more, so that colours don't jump.
        let far = np::maximum(&(zr.square() + zi.square()), 4.0);
        n - (far.log() * 0.5).log2()
    });
    let counts = escape.call((grid[0].clone(), grid[1].clone())).to_vec::<f64>()?;

    let mut picture = plot::Canvas::new(w, h, [0.0, 1.0, 0.0, 1.0]);
    for (i, &n) in counts.iter().enumerate() {
        let wave = |phase: f64| (127.5 - 127.5 * (n.max(0.0).sqrt() * 0.9 + phase).cos()) as u8;
        let colour = if n >= STEPS as f64 - 4.0 { [0, 0, 0] } else { [wave(0.2), wave(0.7), wave(1.4)] };
        picture.set(i % w, i / w, colour);
    }
    picture.save("mandelbrot")
}
