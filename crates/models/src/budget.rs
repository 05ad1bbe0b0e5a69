//! Bounds that are checked before any work is done: what a file or a command line asks for must be possible.

use crate::error::{Error, Result};
use ir::DType;
use lang::consteval::Value;
use lang::lower::Parameter;
use std::path::Path;

/// More threads than this are a mistake.
pub const MOST_THREADS: usize = 1024;
/// More layers, or experts, than this are a mistake: a graph has nodes for each.
const MOST_LAYERS: i64 = 4096;

/// Sizes above this can't be meant.
fn largest(parameter: &str) -> i64 {
    match parameter {
        // Rotations are tabulated for every dimension of a head.
        "head_dim" => 1 << 16,
        "d_model" => 1 << 24,
        // Lengths cost nothing where positions are not learned.
        "max_seq" | "window" => 1 << 40,
        _ => 1 << 32,
    }
}

/// Bytes of memory that this process may use, where the system tells.
pub fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let all = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    Some(limit.map_or(all, |limit| limit.min(all)))
}

/// Refuses what can't fit; `what` needs so many bytes, and `remedy` lowers them.
pub(crate) fn fits(what: &str, bytes: u128, remedy: &str) -> Result<()> {
    match memory() {
        Some(most) if bytes > u128::from(most) => Err(Error::Input(format!(
            "{what} needs {}, but this machine has {}: {remedy}",
            amount(bytes),
            amount(u128::from(most))
        ))),
        _ => Ok(()),
    }
}

/// Bytes for people.
pub(crate) fn amount(bytes: u128) -> String {
    let units = [("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)];
    let unit = units.iter().find(|(_, size)| bytes as f64 >= *size);
    unit.map_or_else(|| format!("{bytes} bytes"), |(name, size)| format!("{:.1} {name}", bytes as f64 / size))
}

/// The product of sizes, if it is a number of elements that memory could have.
pub(crate) fn product(sizes: &[usize]) -> Option<usize> {
    // Eight bytes an element, and sums of a few such numbers, must not overflow either.
    sizes.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).filter(|n| (*n as u64) < 1 << 56)
}

/// A value that a configuration or the command line gives for a model's parameter, by the name it has there. `default` is
/// what the model's text says.
pub(crate) fn value(
    parameter: &str,
    name: &str,
    value: &Value,
    default: Option<&Value>,
) -> std::result::Result<(), String> {
    if matches!(parameter, "rope" | "local_rope") {
        return rotation(name, value);
    }
    let shown = match value {
        Value::Float(Some(x)) => x.to_string(),
        Value::Str(text) | Value::Word(text) => format!("`{text}`"),
        Value::Bool(_) => "true or false".to_string(),
        Value::List(_) => "a list".to_string(),
        other => other.as_int().map_or(String::new(), |n| n.to_string()),
    };
    let wanted = match (default, value) {
        (Some(Value::Int(_)), Value::Float(_) | Value::Str(_) | Value::Bool(_) | Value::List(_)) => {
            Some("a non-negative integer")
        }
        (Some(Value::Float(_)), Value::Str(_) | Value::Bool(_) | Value::List(_)) => Some("a number"),
        (Some(Value::Bool(_)), Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::List(_)) => {
            Some("true or false")
        }
        (Some(Value::Str(_)), Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::List(_)) => Some("a word"),
        _ => None,
    };
    if let Some(wanted) = wanted {
        return Err(format!("`{name}` is {shown}, but it must be {wanted}"));
    }
    if let Value::Float(Some(x)) = value {
        return match x.is_finite() && *x >= 0.0 {
            true => Ok(()),
            false => Err(format!("`{name}` is {x}, but it must be a non-negative number")),
        };
    }
    let Some(n) = value.as_int() else { return Ok(()) };
    let layers = matches!(parameter, "n_layers" | "experts");
    // Where the text's own value is 0, that means "as usual".
    // 0 is an id like others, and layers that are unlike the others may be none.
    let counts = matches!(parameter, "padding" | "end" | "first_dense" | "full_layers");
    let positive = !counts && default.and_then(Value::as_int).is_some_and(|n| n > 0);
    match n {
        ..0 => Err(format!("`{name}` is {n}, but it must not be negative")),
        0 if positive => Err(format!("`{name}` is 0, but it must be positive")),
        _ if layers && n > MOST_LAYERS => Err(format!("`{name}` is {n}, but the maximum is {MOST_LAYERS}")),
        _ if n > largest(parameter) => Err(format!("`{name}` is {n}, but the maximum is {}", largest(parameter))),
        _ => Ok(()),
    }
}

/// Numbers of a rotation are factors and lengths: positive, all of them, but for two that 0 switches off.
fn rotation(name: &str, value: &Value) -> std::result::Result<(), String> {
    let Value::List(fields) = value else { return Ok(()) };
    for field in fields {
        let Value::List(pair) = field else { continue };
        let [Value::Str(key), value] = &pair[..] else { continue };
        let numbers = match value {
            // Only these two are lists, one factor for each pair of dimensions.
            Value::List(list) if !list.is_empty() && matches!(&key[..], "short_factor" | "long_factor") => &list[..],
            one => std::slice::from_ref(one),
        };
        for number in numbers {
            let x = match number {
                Value::Float(Some(x)) => *x,
                other => match other.as_int() {
                    Some(n) => n as f64,
                    None if key.contains("factor") => return Err(format!("`{name}.{key}` must be a number")),
                    None => continue,
                },
            };
            let off = x == 0.0 && matches!(&key[..], "mscale" | "mscale_all_dim");
            if !off && (!x.is_finite() || x <= 0.0) {
                return Err(format!("`{name}.{key}` has {x}, but it must be positive"));
            }
        }
    }
    Ok(())
}

/// Refuses parameters that overflow, or that have more elements than the tensors they are made of.
pub(crate) fn parameters(params: &[Parameter], available: usize, path: &Path) -> Result<()> {
    let total = total(params).map_err(|reason| Error::Config { path: path.to_path_buf(), reason })?;
    if total <= available {
        return Ok(());
    }
    // The shape of one tensor says more than a sum, but only where the sum is not absurd.
    match total / 1000 > available {
        false => Ok(()),
        true => Err(Error::Config {
            path: path.to_path_buf(),
            reason: format!(
                "the configuration describes {total} parameters, but the weights have {available} elements"
            ),
        }),
    }
}

/// Refuses a model that could not even be held: its elements, and the same as f32 while they are drawn.
pub(crate) fn fresh(params: &[Parameter], dtype: DType) -> Result<()> {
    let total = total(params).map_err(Error::Input)? as u128;
    fits("the model", total * (4 + dtype.size() as u128), "reduce its sizes with `--set`")
}

/// How many elements parameters have, or which of them is too large.
pub(crate) fn total(params: &[Parameter]) -> std::result::Result<usize, String> {
    let sizes = params.iter().map(|param| {
        product(&param.ty.shape)
            .ok_or_else(|| format!("parameter `{}` of shape {:?} has too many elements", param.path, param.ty.shape))
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_values_are_refused_by_their_name() {
        let check = |parameter: &str, given: Value, default: i64, word: &str| {
            let found = value(parameter, "field", &given, Some(&Value::int(default)));
            match word {
                "" => assert_eq!(found, Ok(()), "{parameter}"),
                word => assert!(found.clone().is_err_and(|e| e.contains(word) && e.contains("field")), "{found:?}"),
            }
        };
        check("d_model", Value::int(-4), 64, "negative");
        check("d_model", Value::int(0), 64, "positive");
        check("head_dim", Value::int(0), 0, "");
        check("d_model", Value::int(4096), 64, "");
        check("n_layers", Value::int(100_000_000), 4, "maximum is 4096");
        check("vocab_size", Value::int(i64::MAX), 4, "maximum is 4294967296");
        check("d_model", Value::Str("x".into()), 4, "non-negative integer");
        check("d_model", Value::List(Vec::new()), 4, "non-negative integer");
        check("d_model", Value::bool(true), 4, "non-negative integer");
        check("d_model", Value::Float(Some(1.5)), 4, "non-negative integer");
        assert!(value("theta", "f", &Value::Float(Some(-1.0)), Some(&Value::Float(Some(1.0)))).is_err());
        assert!(value("theta", "f", &Value::Float(Some(2.0)), Some(&Value::Float(Some(1.0)))).is_ok());
        let rope = |key: &str, x: Value| Value::List(vec![Value::List(vec![Value::Str(key.into()), x])]);
        check("rope", rope("factor", Value::Float(Some(0.0))), 0, "positive");
        check("rope", rope("factor", Value::int(-2)), 0, "factor");
        check("rope", rope("factor", Value::int(2)), 0, "");
        check(
            "rope",
            rope("long_factor", Value::List(vec![Value::int(1), Value::Float(Some(f64::INFINITY))])),
            0,
            "long",
        );
        check("rope", rope("rope_type", Value::Str("yarn".into())), 0, "");
    }

    #[test]
    fn products_that_overflow_are_none() {
        assert_eq!(product(&[3, 4]), Some(12));
        assert_eq!(product(&[1 << 40, 1 << 40]), None);
        assert_eq!(product(&[1 << 60]), None);
        assert_eq!(product(&[]), Some(1));
    }

    #[test]
    fn what_needs_more_than_there_is_says_so() {
        if memory().is_some() {
            let error = fits("a step", 1 << 70, "reduce `--micro-batch-size`").expect_err("too much").to_string();
            assert!(error.contains("EB") && error.contains("--micro-batch-size"), "{error}");
            assert!(fits("a step", 1000, "").is_ok());
        }
    }
}
