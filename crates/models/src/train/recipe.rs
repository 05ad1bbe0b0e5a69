//! Recipes: what products of a step are rounded to. A policy of the language by name, or a `recipe` of a `.module` file.

use crate::disk::load_program;
use crate::error::{Error, Result};
use ir::DType;
use lang::ast::{Expr, ExprKind, Item};
use transform::{FewBits, Rounding, Scaling};

/// Policies of §7.4.2 that need fewer bits than a dtype of computation has.
pub(crate) const POLICIES: &[&str] = &["fp8_hybrid", "fp8_pure", "fp4"];

fn fp8(dtype: DType, scaling: Scaling) -> Rounding {
    Rounding::Fp8 { dtype, scaling, margin: 0.0 }
}

/// The recipe that a setting names; none if it names none.
pub(crate) fn recipe(text: &str) -> Result<Option<FewBits>> {
    let (e4m3, e5m2) = (fp8(DType::F8E4M3, Scaling::Tensor), fp8(DType::F8E5M2, Scaling::Tensor));
    Ok(Some(match text {
        "" => return Ok(None),
        "fp8_hybrid" => FewBits { forward: e4m3, output: None, backward: Some(e5m2) },
        "fp8_pure" => FewBits { forward: e4m3, output: Some(e4m3), backward: Some(e4m3) },
        "fp4" => FewBits { forward: Rounding::Fp4, output: None, backward: None },
        path if path.ends_with(".module") => return of_file(path),
        other => {
            let known = POLICIES.join(", ");
            return Err(Error::Input(format!(
                "`recipe {other}` is not known: {known}, or a .module file with a recipe"
            )));
        }
    }))
}

/// A word of a setting.
fn word(value: &Expr) -> Option<String> {
    match &value.peel().kind {
        ExprKind::Str(text) => Some(text.clone()),
        _ => value.as_path().map(|path| path.to_string()),
    }
}

/// The first recipe of a file.
fn of_file(path: &str) -> Result<Option<FewBits>> {
    let program = load_program(path)?;
    let wrong = |why: String| Error::Input(format!("{path}: {why}"));
    if let Some(found) = program.diagnostics.iter().find(|d| d.is_error()) {
        return Err(wrong(found.message.clone()));
    }
    let items = program.files.first().map_or(&[][..], |file| &file.ast.items);
    let recipe = items.iter().find_map(|item| match item {
        Item::Recipe(recipe) if !recipe.topology => Some(recipe),
        _ => None,
    });
    let recipe = recipe.ok_or_else(|| wrong("declares no recipe".into()))?;
    let (mut forward, mut backward, mut output) = (None, None, None);
    let mut scaling = Scaling::Tensor;
    for (key, value) in &recipe.entries {
        let text = word(value).unwrap_or_default();
        match key.name.as_str() {
            "forward_activation_dtype" => forward = Some(text),
            "backward_gradient_dtype" => backward = Some(text),
            "output_dtype" => output = Some(text),
            "accumulation_dtype" if text == "fp32" => {}
            "accumulation_dtype" => return Err(wrong(format!("sums are taken in fp32, not in {text}"))),
            // Masters are f32 whatever is said here, and rounded before they are multiplied.
            "weight_storage_dtype" => {}
            "scaling_strategy" => {
                scaling = match text.as_str() {
                    "per_tensor" | "dynamic" => Scaling::Tensor,
                    "per_channel" | "per_token" => Scaling::Rows,
                    "per_block" => Scaling::Blocks(32, 32),
                    "delayed" => {
                        let text =
                            "delayed scaling is not there yet: write `dynamic`, which scales by the tensor at hand";
                        return Err(wrong(text.into()));
                    }
                    other => return Err(wrong(format!("`scaling_strategy` is not `{other}`"))),
                }
            }
            "amax_history_len" => {
                return Err(wrong("a history belongs to delayed scaling, which is not there yet".into()));
            }
            other => return Err(wrong(format!("a recipe has no `{other}`"))),
        }
    }
    let rounding = |name: &str| -> Result<Option<Rounding>> {
        Ok(Some(match name {
            "fp8_e4m3" => fp8(DType::F8E4M3, scaling),
            "fp8_e5m2" => fp8(DType::F8E5M2, scaling),
            "fp4_e2m1" => Rounding::Fp4,
            "bf16" | "fp16" | "fp32" => return Ok(None),
            other => return Err(wrong(format!("products can't be rounded to `{other}`"))),
        }))
    };
    let found = |name: &Option<String>| name.as_deref().map_or(Ok(None), rounding);
    match found(&forward)? {
        Some(forward) => Ok(Some(FewBits { forward, output: found(&output)?, backward: found(&backward)? })),
        // Wide activations are what `dtype` says.
        None if found(&backward)?.is_some() => Err(wrong("gradients in few bits need activations in few bits".into())),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_read_and_wrong_ones_refused() {
        let path = std::env::temp_dir().join(format!("tensorloom-recipe-{}.module", std::process::id()));
        let read = |body: &str| {
            std::fs::write(&path, format!("recipe Mine:\n{body}")).expect("written");
            recipe(&path.display().to_string())
        };
        let found = read(
            "  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  accumulation_dtype: fp32\n  output_dtype: bf16\n  scaling_strategy: dynamic\n",
        );
        assert_eq!(found.expect("good"), recipe("fp8_hybrid").expect("known"));
        let rows = read("  forward_activation_dtype: fp8_e4m3\n  scaling_strategy: per_channel\n").expect("good");
        assert_eq!(rows.map(|r| r.forward), Some(fp8(DType::F8E4M3, Scaling::Rows)));
        for (body, says) in [
            ("  scaling_strategy: delayed\n", "dynamic"),
            ("  forward_activation_dtype: int8\n", "int8"),
            ("  backward_gradient_dtype: fp8_e5m2\n", "activations"),
            ("  accumulation_dtype: bf16\n", "fp32"),
        ] {
            let error = read(body).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        let _ = std::fs::remove_file(&path);
        assert!(recipe("fp7").expect_err("unknown").to_string().contains("fp8_hybrid"));
        assert_eq!(recipe("").expect("none"), None);
    }
}
