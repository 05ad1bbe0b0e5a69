//! Precision recipes by name: a policy of the language, or a `recipe` of a `.module` file.

use crate::disk::load_program;
use crate::error::{Error, Result};
use lang::ast::Item;
use lang::diagnostic::{ColorStyle, render_all};
use lang::lower::{POLICIES, PrecisionRecipe, TensorFormat};

/// Returns the recipe with this name; none for an empty name. For a file it is the first recipe, or `FILE.module:NAME`.
pub fn parse_recipe(text: &str) -> Result<Option<PrecisionRecipe>> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(policy) = PrecisionRecipe::model_policy(text) {
        return Ok(Some(policy));
    }
    let read = |path: &str, name: Option<&str>| -> Result<Option<PrecisionRecipe>> {
        let recipe = recipe_from_file(path, name)?;
        // Master weights are f32, and a checkpoint has its own dtype: the dtype of unquantized weights is not changed.
        Ok(Some(PrecisionRecipe {
            stored: recipe.stored.filter(|stored| matches!(stored, TensorFormat::LowPrecision(_))),
            ..recipe
        }))
    };
    let (path, name) = match text.rsplit_once(".module:") {
        Some((path, name)) => (format!("{path}.module"), Some(name)),
        None => (text.to_string(), None),
    };
    if path.ends_with(".module") {
        return read(&path, name);
    }
    let close = lang::suggest::closest(text, POLICIES.iter().copied());
    let close = close.map_or(String::new(), |close| format!("; did you mean `{close}`?"));
    let known = POLICIES.join(", ");
    Err(Error::Input(format!("unknown recipe `recipe {text}`: use {known}, or a .module file with a recipe{close}")))
}

fn recipe_from_file(path: &str, name: Option<&str>) -> Result<PrecisionRecipe> {
    let program = load_program(path)?;
    let mut found = program.diagnostics.clone();
    found.extend(lang::check::check(&program).diagnostics);
    found.retain(lang::Diagnostic::is_error);
    if !found.is_empty() {
        return Err(Error::Language(render_all(&program.sources, &found, ColorStyle::Plain)));
    }
    let items = program.files.first().map_or(&[][..], |file| &file.ast.items);
    let recipes: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Recipe(recipe) if !recipe.topology => Some(recipe),
            _ => None,
        })
        .collect();
    let chosen = recipes.iter().find(|recipe| name.is_none_or(|name| recipe.name.name == name));
    let Some(chosen) = chosen else {
        let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.name.as_str()).collect();
        return Err(Error::Input(match (name, names.is_empty()) {
            (_, true) => format!("{path}: the file declares no recipe"),
            (name, false) => {
                format!("{path}: recipe `{}` not found: the file has {}", name.unwrap_or_default(), names.join(", "))
            }
        }));
    };
    PrecisionRecipe::from_decl(chosen)
        .map_err(|found| Error::Language(render_all(&program.sources, &[*found], ColorStyle::Plain)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use transform::{DelayedScaling, LowPrecision, Scaling};

    #[test]
    fn recipes_are_read_and_wrong_ones_refused() {
        let path = std::env::temp_dir().join(format!("tensorloom-recipe-{}.module", std::process::id()));
        let read = |body: &str| {
            std::fs::write(&path, format!("recipe Mine:\n{body}")).expect("written");
            parse_recipe(&path.display().to_string())
        };
        let found = read(
            "  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  accumulation_dtype: fp32\n  scaling_strategy: dynamic\n",
        );
        assert_eq!(found.expect("good"), parse_recipe("fp8_hybrid").expect("known"));
        let rows = read("  forward_activation_dtype: fp8_e4m3\n  scaling_strategy: per_channel\n").expect("good");
        let few = rows.and_then(|r| r.operand_rounding).expect("low precision");
        assert_eq!((few.lhs.scaling, few.rhs.scaling), (Scaling::PerTensor, Scaling::PerRow));
        let late = read(
            "  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  scaling_strategy: delayed\n  amax_history_len: 4\n  update_interval: 2\n  stochastic_rounding: true\n  optimizer_bits: 8\n",
        );
        let late = late.expect("good").expect("one");
        assert_eq!(late.optimizer_bits, Some(8));
        let backward = late.operand_rounding.and_then(|few| few.cotangent).expect("low precision");
        assert!(backward.stochastic && backward.format == LowPrecision::E5M2);
        assert_eq!(backward.delayed_scaling, Some(DelayedScaling { history: 4, interval: 2 }));
        for (body, says) in [
            ("  forward_activation_dtype: fp8_e4m3\n  scaling_strategy: delayd\n", "`delayed`"),
            ("  forward_activation_dtyp: fp8_e4m3\n", "`forward_activation_dtype`"),
            ("  forward_activation_dtype: fp8_e4m33\n", "`fp8_e4m3`"),
            ("  backward_gradient_dtype: fp8_e5m2\n", "activations"),
            ("  accumulation_dtype: bf16\n", "fp32"),
            ("  forward_activation_dtype: fp8_e4m3\n  amax_history_len: 4\n", "delayed"),
            ("  forward_activation_dtype: fp4_e2m1\n  scaling_strategy: per_channel\n", "per_block"),
            ("  forward_activation_dtype: fp4_e2m1\n  scaling_strategy: per_block\n  block_size: (7, 7)\n", "(32, 32)"),
            ("  forward_activation_dtype: fp8_e4m3\n  stochastic_rounding: true\n", "backward_gradient_dtype"),
            ("  optimizer_bits: 9\n", "8 or 32"),
            ("  scaling_strategy: dynamic\n", "low precision"),
        ] {
            let error = read(body).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        read("  forward_activation_dtype: bf16\n").expect("good");
        assert!(parse_recipe(&format!("{}:Yours", path.display())).expect_err("unknown").to_string().contains("Mine"));
        let _ = std::fs::remove_file(&path);
        assert!(parse_recipe("fp7").expect_err("unknown").to_string().contains("fp8_hybrid"));
        assert_eq!(parse_recipe("").expect("none"), None);
    }
}
