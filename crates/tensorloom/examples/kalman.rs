//! The level of the Nile: a Kalman filter and smoother by two scans, with variances found by maximum likelihood.
//!
//! The data are the yearly flows at Aswan, 1871 to 1970, in 10⁸ m³.

mod plot;

use tensorloom::{Tensor, full, jit, lax, optim, tensor, value_and_grad};

#[rustfmt::skip]
const NILE: [f64; 100] = [
    1120., 1160., 963., 1210., 1160., 1160., 813., 1230., 1370., 1140., 995., 935., 1110., 994., 1020., 960., 1180., 799., 958.,
    1140., 1100., 1210., 1150., 1250., 1260., 1220., 1030., 1100., 774., 840., 874., 694., 940., 833., 701., 916., 692., 1020.,
    1050., 969., 831., 726., 456., 824., 702., 1120., 1100., 832., 764., 821., 768., 845., 864., 862., 698., 845., 744., 796.,
    1040., 759., 781., 865., 845., 944., 984., 897., 822., 1010., 771., 676., 649., 846., 812., 742., 801., 1040., 860., 874.,
    848., 890., 744., 749., 838., 1050., 918., 986., 797., 923., 975., 815., 1020., 906., 901., 1170., 912., 746., 919., 718.,
    714., 740.,
];

/// Filters the flows: for each year the level expected before and after its flow is known, their variances, and the
/// logarithm of the likelihood. `v` has the logarithms of the variances of flow and level.
fn filter((v, ys): (Tensor, Tensor)) -> (Vec<Tensor>, Tensor) {
    let (noise, drift) = (v.index(0, 0).exp(), v.index(0, 1).exp());
    let step = |((a, p), y): ((Tensor, Tensor), Tensor)| {
        let (error, spread) = (&y - &a, &p + &noise);
        let gain = &p / &spread;
        let (level, left) = (&a + &gain * &error, &p * (1.0 - &gain));
        let log = (&spread * (2.0 * std::f64::consts::PI)).log() + error.square() / &spread;
        ((level.clone(), &left + &drift), (vec![level, left, a, p], log * -0.5))
    };
    // Nothing is known at first, so the first year's likelihood says nothing.
    let (_, (states, log)) = lax::scan(step, (full(&[], 0.0).cast(ys.dtype()), full(&[], 1e7).cast(ys.dtype())), ys);
    (states, log.slice(0, 1, 100, 1).sum())
}

/// Goes back from the last year: levels and variances given all flows.
fn smooth((states, _): (Vec<Tensor>, Tensor)) -> (Tensor, Tensor) {
    let last = (states[0].index(0, 99), states[1].index(0, 99));
    let inner = |t: &Tensor, from: isize, to: isize| t.slice(0, from, to, 1);
    let xs =
        vec![inner(&states[0], 0, 99), inner(&states[1], 0, 99), inner(&states[2], 1, 100), inner(&states[3], 1, 100)];
    let step = |((m, s), x): ((Tensor, Tensor), Vec<Tensor>)| {
        let gain = &x[1] / &x[3];
        let (m, s) = (&x[0] + &gain * (&m - &x[2]), &x[1] + gain.square() * (&s - &x[3]));
        ((m.clone(), s.clone()), (m, s))
    };
    let (_, (m, s)) = lax::Scan::new().reverse().run(step, (last.0.clone(), last.1.clone()), xs);
    let join = |a: &Tensor, b: &Tensor| Tensor::concat(&[a, &b.unsqueeze(0)], 0);
    (join(&m, &last.0), join(&s, &last.1))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ys = tensor(&NILE[..], &[100]);
    let optimizer = optim::adam(0.1);
    let mut v = tensor(&[9.0, 8.0], &[2]);
    let mut state = optimizer.init(&v);
    let step = jit(|(v, state, ys): (Tensor, optim::OptState, Tensor)| {
        let loss = |v: Tensor| -filter((v, ys.clone())).1;
        let (loss, g) = value_and_grad(loss).call(v.clone());
        let (updates, state) = optimizer.update(&g, &state, &v);
        (optim::apply_updates(&v, &updates), state, loss)
    });
    let mut loss = full(&[], 0.0);
    for _ in 0..400 {
        (v, state, loss) = step.call((v, state, ys.clone()));
    }
    let (m, s) = jit(|a: (Tensor, Tensor)| smooth(filter(a))).call((v.clone(), ys));
    let (m, sd) = (m.to_vec::<f64>()?, s.sqrt().to_vec::<f64>()?);

    let v = v.exp().to_vec::<f64>()?;
    println!("log-likelihood {:.2}; variance of flows {:.0}, of the level {:.0}", -loss.item::<f64>()?, v[0], v[1]);
    let years: Vec<f64> = (0..100).map(|i| 1871.0 + f64::from(i)).collect();
    let mut picture = plot::Canvas::new(1000, 500, [1868.0, 1973.0, 400.0, 1420.0]);
    let edge = |k: f64| m.iter().zip(&sd).map(|(m, s)| m + k * s).collect::<Vec<_>>();
    picture.band(&years, &edge(-2.0), &edge(2.0), plot::PALE);
    let line = |ys: &[f64]| years.iter().copied().zip(ys.iter().copied()).collect::<Vec<_>>();
    picture.line(&line(&NILE), 0.6, plot::GREY);
    line(&NILE).iter().for_each(|&(x, y)| picture.dot(x, y, 2.5, plot::INK));
    picture.line(&line(&m), 1.8, plot::BLUE);
    picture.save("kalman")
}
