//! A multi-resolution pyramid of a signal, drawn to a PNG.
//!
//! `cargo run --release -p tensorloom-vsla --example pyramid -- pyramid.png`
//!
//! Each level is the previous one smoothed by a convolution and downsampled by 2. The detail of a level is what smoothing
//! removed. The levels have lengths 4096, 2048, … 32 without padding, and adding the details to the upsampled coarser levels
//! restores the signal.

use std::fs::File;
use std::io::BufWriter;
use tensorloom_vsla::{Result, Tensor};

const LENGTH: usize = 4096;
const LEVELS: usize = 8;

/// Returns a chirp, two bursts, a step and a little noise.
fn signal() -> Vec<f64> {
    let mut state = 7u64;
    let mut noise = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    };
    let bump = |t: f64, at: f64, width: f64| (-((t - at) / width).powi(2)).exp();
    (0..LENGTH)
        .map(|i| {
            let t = i as f64 / LENGTH as f64;
            let tone = 0.55 * (std::f64::consts::TAU * (3.0 * t + 90.0 * t.powi(4))).sin() * (1.0 - 0.5 * t);
            let bursts =
                1.1 * bump(t, 0.27, 0.012) * (t * 1500.0).sin() + 0.9 * bump(t, 0.62, 0.03) * (t * 420.0).sin();
            let step = if t > 0.42 { 0.45 } else { 0.0 };
            tone + bursts + step + 0.04 * noise()
        })
        .collect()
}

/// Returns Burt and Adelson's filter with binomial weights.
fn smoothing() -> Tensor {
    Tensor::vector(&[1.0, 4.0, 6.0, 4.0, 1.0].map(|w: f64| w / 16.0))
}

/// Smooths and downsamples by 2. The signal is extended by its first and last element, so that the ends get no artificial edge.
fn coarser(x: &Tensor) -> Result<Tensor> {
    let n = x.shape()[0];
    let continued: Vec<usize> = [0, 0].into_iter().chain(0..n).chain([n - 1; 2]).collect();
    let smooth = x.gather(&continued)?.conv1d(&smoothing())?;
    smooth.gather(&(0..n.div_ceil(2)).map(|i| 2 * i + 4).collect::<Vec<_>>())
}

/// Upsamples a coarse level to the length of the finer one by linear interpolation.
fn finer(x: &Tensor, length: usize) -> Result<Tensor> {
    let last = x.shape()[0] - 1;
    let left = x.gather(&(0..length).map(|i| (i / 2).min(last)).collect::<Vec<_>>())?;
    let right = x.gather(&(0..length).map(|i| i.div_ceil(2).min(last)).collect::<Vec<_>>())?;
    left.add(&right)?.mul_scalar(0.5)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "pyramid.png".into());
    let mut levels = vec![Tensor::vector(&signal())];
    for k in 1..LEVELS {
        levels.push(coarser(&levels[k - 1])?);
    }
    let mut details = Vec::new();
    for pair in levels.windows(2) {
        details.push(pair[0].sub(&finer(&pair[1], pair[0].shape()[0])?)?);
    }

    // Adding the details to the coarser levels must restore the signal.
    let mut back = levels[LEVELS - 1].clone();
    for d in details.iter().rev() {
        back = finer(&back, d.shape()[0])?.add(d)?;
    }
    let gap = back.sub(&levels[0])?.to_vec::<f64>().into_iter().fold(0.0, |m, x| f64::max(m, x.abs()));
    // Levels of different lengths can be stacked directly: each is promoted to the longest.
    let parts: Vec<&Tensor> = levels.iter().collect();
    println!(
        "{} levels stack to {:?}; put together again they differ by {gap:.1e}",
        LEVELS,
        Tensor::stack(&parts)?.shape()
    );

    let lines: Vec<Vec<f64>> = levels.iter().map(Tensor::to_vec).collect();
    let strips: Vec<Vec<f64>> = details.iter().map(Tensor::to_vec).collect();
    let picture = draw(&lines, &strips);
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(&path)?), WIDTH as u32, picture.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Best);
    encoder.write_header()?.write_image_data(&picture.pixels)?;
    println!("wrote {path}");
    Ok(())
}

const WIDTH: usize = 1280;
const LEFT: usize = 86;
const RIGHT: usize = 24;
const TOP: usize = 24;
/// Heights in pixels of a level's curve, of its strip of detail, and of the gap below.
const CURVE: usize = 84;
const STRIP: usize = 14;
const GAP: usize = 18;

const PAPER: [f64; 3] = [0.985, 0.982, 0.972];
const INK: [f64; 3] = [0.30, 0.31, 0.34];

struct Picture {
    height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    /// Blends a colour into a pixel with weight `share`.
    fn mix(&mut self, x: usize, y: usize, colour: [f64; 3], share: f64) {
        let at = (y * WIDTH + x) * 3;
        for (p, c) in self.pixels[at..at + 3].iter_mut().zip(colour) {
            // Colours are blended in linear light, which is approximately the square of the stored value.
            let old = (*p as f64 / 255.0).powi(2);
            let new = old + (c * c - old) * share.clamp(0.0, 1.0);
            *p = (new.sqrt() * 255.0).round() as u8;
        }
    }

    /// Draws a vertical line from `a` to `b` with antialiased ends.
    fn column(&mut self, x: usize, a: f64, b: f64, colour: [f64; 3], share: f64) {
        let (a, b) = (a.min(b).max(0.0), a.max(b).min(self.height as f64 - 1.0));
        for y in a.floor() as usize..=(b.floor() as usize).min(self.height - 1) {
            let covered = (b.min(y as f64 + 1.0) - a.max(y as f64)).max(0.0);
            self.mix(x, y, colour, share * covered);
        }
    }

    /// Draws a number in digits of 5 by 7 points, two pixels each, right-aligned at `right`.
    fn number(&mut self, n: usize, right: usize, top: usize) {
        const DIGITS: [[u8; 7]; 10] = [
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
        let text = n.to_string();
        for (k, c) in text.bytes().rev().enumerate() {
            for (row, bits) in DIGITS[(c - b'0') as usize].iter().enumerate() {
                for point in (0..5).filter(|p| bits >> (4 - p) & 1 == 1) {
                    for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                        self.mix(right - 12 * k - 10 + 2 * point + dx, top + 2 * row + dy, INK, 0.9);
                    }
                }
            }
        }
    }
}

/// Interpolates between colour stops.
fn ramp(stops: &[[f64; 3]], t: f64) -> [f64; 3] {
    let t = t.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
    let i = (t as usize).min(stops.len() - 2);
    std::array::from_fn(|c| stops[i][c] + (stops[i + 1][c] - stops[i][c]) * (t - i as f64))
}

fn draw(levels: &[Vec<f64>], details: &[Vec<f64>]) -> Picture {
    let height = 2 * TOP + levels.len() * (CURVE + STRIP + GAP) - GAP;
    let paper = PAPER.map(|c| (c * 255.0).round() as u8);
    let mut p = Picture { height, pixels: paper.iter().copied().cycle().take(WIDTH * height * 3).collect() };
    let hues = [[0.13, 0.24, 0.55], [0.10, 0.50, 0.60], [0.25, 0.60, 0.36], [0.80, 0.58, 0.15], [0.78, 0.29, 0.20]];
    let (low, high) = levels[0].iter().fold((f64::MAX, f64::MIN), |(a, b), &x| (a.min(x), b.max(x)));
    let wide = WIDTH - LEFT - RIGHT;
    for (k, level) in levels.iter().enumerate() {
        let top = TOP + k * (CURVE + STRIP + GAP);
        let colour = ramp(&hues, k as f64 / (levels.len() - 1) as f64);
        let place = |v: f64| top as f64 + 3.0 + (high - v) / (high - low) * (CURVE - 8) as f64;
        let zero = place(0.0);
        let n = level.len();
        for x in 0..wide {
            let at = LEFT + x;
            p.column(at, zero - 0.35, zero + 0.35, INK, 0.35);
            // The elements under this pixel. With fewer elements than pixels, this is the element that covers it and, at a
            // boundary, both neighbours.
            let (first, last) = (x * n / wide, ((x + 1) * n).div_ceil(wide).min(n));
            let (mut a, mut b) = (f64::MAX, f64::MIN);
            for &v in &level[first.saturating_sub(usize::from(n > wide))..last.max(first + 1)] {
                (a, b) = (a.min(v), b.max(v));
            }
            let middle = (place(a) + place(b)) / 2.0;
            p.column(at, zero, middle, colour, 0.16);
            p.column(at, place(b) - 0.9, place(a) + 0.9, colour, 0.95);
        }
        p.number(n, LEFT - 16, (zero as usize).clamp(top, top + CURVE) - 7);
        let Some(detail) = details.get(k) else { continue };
        let size = detail.iter().fold(1e-9, |m, x| f64::max(m, x.abs()));
        for x in 0..wide {
            let (first, last) = (x * n / wide, ((x + 1) * n).div_ceil(wide).min(n));
            let most =
                detail[first..last.max(first + 1)].iter().fold(0.0, |m: f64, v| if v.abs() > m.abs() { *v } else { m });
            let strength = (most.abs() / size).powf(0.6);
            let tone = if most < 0.0 { [0.16, 0.32, 0.66] } else { [0.76, 0.22, 0.18] };
            for y in 0..STRIP {
                p.mix(LEFT + x, top + CURVE + y, [0.93, 0.93, 0.92], 1.0);
                p.mix(LEFT + x, top + CURVE + y, tone, strength);
            }
        }
    }
    p
}
