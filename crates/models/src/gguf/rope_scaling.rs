//! Llama 3's scaling of rotary embeddings; GGUF stores only the resulting factors.

use serde_json::{Value as Json, json};

/// Llama 3's scaling: low frequencies are lowered further.
#[derive(Clone, Copy)]
pub(super) struct Llama3Scaling {
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    /// The original training length.
    original_max_positions: f64,
}

impl Llama3Scaling {
    pub(super) fn from_config<'a>(field: &dyn Fn(&str) -> Option<&'a Json>) -> Option<Llama3Scaling> {
        let number = |name: &str| field(name).and_then(Json::as_f64);
        Some(Llama3Scaling {
            factor: number("factor")?,
            low_freq_factor: number("low_freq_factor")?,
            high_freq_factor: number("high_freq_factor")?,
            original_max_positions: number("original_max_position_embeddings")?,
        })
    }

    /// The divisor of each frequency of a head.
    pub(super) fn factors(&self, theta: f64, head: usize) -> Vec<f32> {
        let factor = |i: usize| {
            let wave = 2.0 * std::f64::consts::PI * theta.powf((2 * i) as f64 / head as f64);
            if wave < self.original_max_positions / self.high_freq_factor {
                1.0
            } else if wave > self.original_max_positions / self.low_freq_factor {
                self.factor
            } else {
                let smooth = (self.original_max_positions / wave - self.low_freq_factor)
                    / (self.high_freq_factor - self.low_freq_factor);
                1.0 / ((1.0 - smooth) / self.factor + smooth)
            }
        };
        (0..head / 2).map(|i| factor(i) as f32).collect()
    }
}

/// Sets the fields of `rope` that result in these factors.
///
/// Files contain only the factors, and some the original length. All published models of this kind share the same boundaries and
/// original length, so those are tried; other factors are rejected.
pub(super) fn to_rope(factors: &[f32], head: usize, first: Option<i64>, rope: &mut Json) -> Result<(), String> {
    let theta = rope["rope_theta"].as_f64().unwrap_or(10000.0);
    let most = factors.iter().copied().fold(1.0f32, f32::max);
    if factors.iter().all(|x| *x == 1.0) {
        return Ok(());
    }
    let known = Llama3Scaling {
        factor: f64::from(most),
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_positions: first.map_or(8192.0, |n| n as f64),
    };
    let fits = factors.len() == head / 2
        && known.factors(theta, head).iter().zip(factors).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs());
    if !fits {
        return Err(
            "its `rope_freqs.weight` is not Llama 3's RoPE scaling, which is the only one that is supported".into()
        );
    }
    rope["rope_type"] = json!("llama3");
    rope["factor"] = json!(known.factor);
    rope["low_freq_factor"] = json!(known.low_freq_factor);
    rope["high_freq_factor"] = json!(known.high_freq_factor);
    rope["original_max_position_embeddings"] = json!(known.original_max_positions as u64);
    Ok(())
}
