//! A small canvas for the examples: dots and lines in the plane, written as PNG.

#![expect(dead_code, reason = "each example uses some of it")]

use std::io::BufWriter;

pub(crate) type Colour = [u8; 3];

pub(crate) const INK: Colour = [40, 44, 52];
pub(crate) const BLUE: Colour = [38, 110, 196];
pub(crate) const RED: Colour = [206, 66, 54];
pub(crate) const PALE: Colour = [205, 222, 240];
pub(crate) const GREY: Colour = [190, 190, 190];

pub(crate) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
    /// Left, right, bottom, top.
    range: [f64; 4],
}

impl Canvas {
    pub(crate) fn new(width: usize, height: usize, range: [f64; 4]) -> Canvas {
        Canvas { width, height, pixels: vec![255; width * height * 3], range }
    }

    /// One pixel, the first row on top.
    pub(crate) fn set(&mut self, x: usize, y: usize, colour: Colour) {
        if x < self.width && y < self.height {
            let i = (y * self.width + x) * 3;
            self.pixels[i..i + 3].copy_from_slice(&colour);
        }
    }

    /// Pixel coordinates of a point of the plane.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let [l, r, b, t] = self.range;
        ((x - l) / (r - l) * (self.width - 1) as f64, (t - y) / (t - b) * (self.height - 1) as f64)
    }

    pub(crate) fn dot(&mut self, x: f64, y: f64, radius: f64, colour: Colour) {
        let (cx, cy) = self.at(x, y);
        let k = radius.ceil() as i64;
        for dy in -k..=k {
            for dx in -k..=k {
                if (dx * dx + dy * dy) as f64 <= radius * radius {
                    let (px, py) = (cx.round() as i64 + dx, cy.round() as i64 + dy);
                    if px >= 0 && py >= 0 {
                        self.set(px as usize, py as usize, colour);
                    }
                }
            }
        }
    }

    pub(crate) fn line(&mut self, points: &[(f64, f64)], radius: f64, colour: Colour) {
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let (a, b) = (self.at(x0, y0), self.at(x1, y1));
            let n = (a.0 - b.0).hypot(a.1 - b.1).ceil().clamp(1.0, 4000.0) as usize;
            for i in 0..=n {
                let t = i as f64 / n as f64;
                self.dot(x0 + (x1 - x0) * t, y0 + (y1 - y0) * t, radius, colour);
            }
        }
    }

    /// The area between two curves over the same places.
    pub(crate) fn band(&mut self, x: &[f64], low: &[f64], high: &[f64], colour: Colour) {
        for i in 0..x.len().saturating_sub(1) {
            let steps = 1 + (self.width / x.len().max(1)) * 2;
            for k in 0..=steps {
                let t = k as f64 / steps as f64;
                let mix = |v: &[f64]| v[i] + (v[i + 1] - v[i]) * t;
                self.line(&[(mix(x), mix(low)), (mix(x), mix(high))], 1.0, colour);
            }
        }
    }

    /// Writes the picture to the first argument of the program, or under its name here.
    pub(crate) fn save(&self, name: &str) -> Result<(), Box<dyn std::error::Error>> {
        let path = std::env::args().nth(1).unwrap_or_else(|| format!("{name}.png"));
        let file = BufWriter::new(std::fs::File::create(&path)?);
        let mut encoder = png::Encoder::new(file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&self.pixels)?;
        println!("{path}");
        Ok(())
    }
}
