//! T5's relative position buckets, whose size grows with the distance.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use ir::{DType, GraphBuilder, Literal, Scalar, Type, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let shape = p.ints("shape").unwrap_or_default();
    let [queries, keys] = shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs a shape of queries and keys, such as [T, S]".into()));
    };
    let (Ok(queries), Ok(keys)) = (usize::try_from(queries), usize::try_from(keys)) else {
        return Err(PrimitiveError::InvalidArgument(format!("cannot take the shape {shape:?}")));
    };
    let both = p.flag("bidirectional");
    let (buckets, distance) = (p.int("buckets").unwrap_or(0), p.int("max_distance").unwrap_or(0));
    let own = if both { buckets / 2 } else { buckets };
    if own < 2 || distance <= own / 2 {
        return Err(PrimitiveError::InvalidArgument(format!(
            "cannot make {buckets} buckets of distances up to {distance}"
        )));
    }
    let ty = Type::new(DType::I32, &[queries, keys]);
    // The last query is at the position of the last key.
    let first = keys as i64 - queries as i64;
    let of = |i: usize| {
        let (query, key) = ((i / keys.max(1)) as i64 + first, (i % keys.max(1)) as i64);
        Scalar::from_f64(DType::I32, bucket(key - query, own, distance, both) as f64)
    };
    let found = l.b.constant(Literal::from_fn(ty, of))?;
    l.set_cross_position(&[found], "distances between positions");
    Ok(vec![found])
}

/// Half of the buckets are single distances, the others grow logarithmically. The arithmetic is f32, so that distances at a
/// boundary get the same bucket as in training.
fn bucket(relative: i64, buckets: i64, distance: i64, both: bool) -> i64 {
    let (side, far) = match both {
        true => (if relative > 0 { buckets } else { 0 }, relative.abs()),
        false => (0, (-relative).max(0)),
    };
    let exact = buckets / 2;
    if far < exact {
        return side + far;
    }
    let grown = (far as f32 / exact as f32).ln() / (distance as f64 / exact as f64).ln() as f32;
    let place = exact + (grown * (buckets - exact) as f32) as i64;
    side + place.min(buckets - 1)
}

#[cfg(test)]
mod tests {
    use super::bucket;

    /// Expected values of `T5Attention._relative_position_bucket`.
    #[test]
    fn buckets_are_those_of_t5() {
        let both: Vec<i64> =
            [-200, -40, -9, -8, -1, 0, 1, 7, 8, 15, 64, 127, 128].map(|d| bucket(d, 16, 128, true)).into();
        assert_eq!(both, [15, 12, 8, 8, 1, 0, 17, 23, 24, 25, 30, 31, 31]);
        let past: Vec<i64> = [5, 0, -1, -15, -16, -31, -100, -127, -500].map(|d| bucket(d, 32, 128, false)).into();
        assert_eq!(past, [0, 0, 1, 15, 16, 21, 30, 31, 31]);
    }
}
