//! Llama 3's scaling of rotations, of which GGUF keeps the factors that come of it.

use serde_json::{Value as Json, json};

/// Llama 3's scaling: slow rotations are slowed further.
#[derive(Clone, Copy)]
pub(super) struct Scaling {
    factor: f64,
    low: f64,
    high: f64,
    /// The length that the model was trained with first.
    length: f64,
}

impl Scaling {
    pub(super) fn of<'a>(field: &dyn Fn(&str) -> Option<&'a Json>) -> Option<Scaling> {
        let number = |name: &str| field(name).and_then(Json::as_f64);
        Some(Scaling {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            length: number("original_max_position_embeddings")?,
        })
    }

    /// What each rotation of a head is divided by.
    pub(super) fn factors(&self, theta: f64, head: usize) -> Vec<f32> {
        let factor = |i: usize| {
            let wave = 2.0 * std::f64::consts::PI * theta.powf((2 * i) as f64 / head as f64);
            if wave < self.length / self.high {
                1.0
            } else if wave > self.length / self.low {
                self.factor
            } else {
                let smooth = (self.length / wave - self.low) / (self.high - self.low);
                1.0 / ((1.0 - smooth) / self.factor + smooth)
            }
        };
        (0..head / 2).map(|i| factor(i) as f32).collect()
    }
}

/// Puts into a rope's fields what makes these factors.
///
/// Files hold no more than the factors, and some the first length. All models of this kind were published with the same borders
/// and one first length, so those are tried; other factors are refused.
pub(super) fn to_rope(factors: &[f32], head: usize, first: Option<i64>, rope: &mut Json) -> Result<(), String> {
    let theta = rope["rope_theta"].as_f64().unwrap_or(10000.0);
    let most = factors.iter().copied().fold(1.0f32, f32::max);
    if factors.iter().all(|x| *x == 1.0) {
        return Ok(());
    }
    let known = Scaling { factor: f64::from(most), low: 1.0, high: 4.0, length: first.map_or(8192.0, |n| n as f64) };
    let fits = factors.len() == head / 2
        && known.factors(theta, head).iter().zip(factors).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs());
    if !fits {
        return Err(
            "its `rope_freqs.weight` is not Llama 3's RoPE scaling, which is the only one that is supported".into()
        );
    }
    rope["rope_type"] = json!("llama3");
    rope["factor"] = json!(known.factor);
    rope["low_freq_factor"] = json!(known.low);
    rope["high_freq_factor"] = json!(known.high);
    rope["original_max_position_embeddings"] = json!(known.length as u64);
    Ok(())
}
