//! Recipes by the words of a command: a policy of the language, or a `recipe` of a `.module` file.

use crate::disk::load_program;
use crate::error::{Error, Result};
use lang::ast::Item;
use lang::diagnostic::{Style, render_all};
use lang::lower::{Format, POLICIES, Recipe};

/// The recipe that words name; none if there are none. Of a file it is the first, or `FILE.module:NAME`.
pub fn recipe(text: &str) -> Result<Option<Recipe>> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(policy) = Recipe::of_policy(text) {
        return Ok(Some(policy));
    }
    let read = |path: &str, name: Option<&str>| -> Result<Option<Recipe>> {
        let recipe = of_file(path, name)?;
        // Masters are f32, and a checkpoint has a dtype of its own: wide weights stay what they are.
        Ok(Some(Recipe { stored: recipe.stored.filter(|stored| matches!(stored, Format::Few(_))), ..recipe }))
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

fn of_file(path: &str, name: Option<&str>) -> Result<Recipe> {
    let program = load_program(path)?;
    let mut found = program.diagnostics.clone();
    found.extend(lang::check::check(&program).diagnostics);
    found.retain(lang::Diagnostic::is_error);
    if !found.is_empty() {
        return Err(Error::Language(render_all(&program.sources, &found, Style::Plain)));
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
    Recipe::of(chosen).map_err(|found| Error::Language(render_all(&program.sources, &[*found], Style::Plain)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use transform::{Delay, Few, Scaling};

    #[test]
    fn recipes_are_read_and_wrong_ones_refused() {
        let path = std::env::temp_dir().join(format!("tensorloom-recipe-{}.module", std::process::id()));
        let read = |body: &str| {
            std::fs::write(&path, format!("recipe Mine:\n{body}")).expect("written");
            recipe(&path.display().to_string())
        };
        let found = read(
            "  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  accumulation_dtype: fp32\n  scaling_strategy: dynamic\n",
        );
        assert_eq!(found.expect("good"), recipe("fp8_hybrid").expect("known"));
        let rows = read("  forward_activation_dtype: fp8_e4m3\n  scaling_strategy: per_channel\n").expect("good");
        let few = rows.and_then(|r| r.few).expect("few bits");
        assert_eq!((few.left.scaling, few.right.scaling), (Scaling::Tensor, Scaling::Rows));
        let late = read(
            "  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  scaling_strategy: delayed\n  amax_history_len: 4\n  update_interval: 2\n  stochastic_rounding: true\n  optimizer_bits: 8\n",
        );
        let late = late.expect("good").expect("one");
        assert_eq!(late.optimizer_bits, Some(8));
        let backward = late.few.and_then(|few| few.backward).expect("few bits");
        assert!(backward.stochastic && backward.format == Few::E5M2);
        assert_eq!(backward.delay, Some(Delay { history: 4, interval: 2 }));
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
            ("  scaling_strategy: dynamic\n", "few bits"),
        ] {
            let error = read(body).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        read("  forward_activation_dtype: bf16\n").expect("good");
        assert!(recipe(&format!("{}:Yours", path.display())).expect_err("unknown").to_string().contains("Mine"));
        let _ = std::fs::remove_file(&path);
        assert!(recipe("fp7").expect_err("unknown").to_string().contains("fp8_hybrid"));
        assert_eq!(recipe("").expect("none"), None);
    }
}
