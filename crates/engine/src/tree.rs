//! Trees (pytrees): structures that contain tensors.

use crate::tensor::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

/// A tensor, or a structure of trees, as JAX's pytrees.
///
/// `rebuild` creates a value of the same structure from other tensors, given in the order of `visit`.
pub trait Tree: Sized {
    /// Calls `f` with every tensor, in a fixed order.
    fn visit(&self, f: &mut dyn FnMut(&Tensor));

    /// Creates the same structure with other tensors.
    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Self;

    /// The number of tensors in each top-level item: a tuple has one item for each field, every other value is one item.
    fn items(&self) -> Vec<usize> {
        vec![self.leaves().len()]
    }

    /// Hashes the parts that are not tensors: sizes, keys, static values. Compiled programs are cached by this hash.
    fn structure(&self, _into: &mut dyn Hasher) {}

    /// All tensors, in order.
    fn leaves(&self) -> Vec<Tensor> {
        let mut all = Vec::new();
        self.visit(&mut |t| all.push(t.clone()));
        all
    }

    /// Replaces every tensor by the result of `f`.
    fn map(&self, f: impl FnMut(&Tensor) -> Tensor) -> Self {
        let mut new: std::vec::IntoIter<Tensor> = self.leaves().iter().map(f).collect::<Vec<_>>().into_iter();
        self.rebuild(&mut || new.next().expect("as many tensors as leaves"))
    }
}

impl Tree for Tensor {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        f(self);
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Tensor {
        next()
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Vec<T> {
        self.iter().map(|t| t.rebuild(next)).collect()
    }

    fn structure(&self, into: &mut dyn Hasher) {
        into.write_usize(self.len());
        self.iter().for_each(|t| t.structure(into));
    }
}

impl<T: Tree> Tree for Option<T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Option<T> {
        self.as_ref().map(|t| t.rebuild(next))
    }

    fn structure(&self, into: &mut dyn Hasher) {
        into.write_u8(self.is_some() as u8);
        self.iter().for_each(|t| t.structure(into));
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> [T; N] {
        std::array::from_fn(|i| self[i].rebuild(next))
    }

    fn items(&self) -> Vec<usize> {
        self.iter().map(|t| t.leaves().len()).collect()
    }

    fn structure(&self, into: &mut dyn Hasher) {
        self.iter().for_each(|t| t.structure(into));
    }
}

impl<K: Ord + Clone + Hash, T: Tree> Tree for BTreeMap<K, T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.values().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
        self.iter().map(|(k, t)| (k.clone(), t.rebuild(next))).collect()
    }

    fn structure(&self, mut into: &mut dyn Hasher) {
        for (k, t) in self {
            k.hash(&mut into);
            t.structure(into);
        }
    }
}

/// Visits in the order of the keys, so that the order of tensors never depends on hashing.
impl<K: Ord + Clone + Hash, T: Tree> Tree for HashMap<K, T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        sorted(self).into_iter().for_each(|(_, t)| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
        let new = |(k, t): (&K, &T)| (k.clone(), t.rebuild(next));
        sorted(self).into_iter().map(new).collect()
    }

    fn structure(&self, mut into: &mut dyn Hasher) {
        for (k, t) in sorted(self) {
            k.hash(&mut into);
            t.structure(into);
        }
    }
}

fn sorted<K: Ord, T>(map: &HashMap<K, T>) -> Vec<(&K, &T)> {
    let mut all: Vec<(&K, &T)> = map.iter().collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    all
}

impl<T: Tree> Tree for Box<T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        (**self).visit(f);
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
        Box::new((**self).rebuild(next))
    }

    fn items(&self) -> Vec<usize> {
        (**self).items()
    }

    fn structure(&self, into: &mut dyn Hasher) {
        (**self).structure(into);
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        #[expect(non_snake_case, reason = "type names bind the fields")]
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn visit(&self, _f: &mut dyn FnMut(&Tensor)) {
                let ($($name,)*) = self;
                $($name.visit(_f);)*
            }

            fn rebuild(&self, _next: &mut dyn FnMut() -> Tensor) -> Self {
                let ($($name,)*) = self;
                ($($name.rebuild(_next),)*)
            }

            fn items(&self) -> Vec<usize> {
                let ($($name,)*) = self;
                vec![$($name.leaves().len()),*]
            }

            fn structure(&self, _into: &mut dyn Hasher) {
                let ($($name,)*) = self;
                $($name.structure(_into);)*
            }
        }
    };
}
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);

// Values that contain no tensors are static: a function is compiled again for another value.
macro_rules! plain {
    ($($t:ty => |$x:ident| $key:expr),* $(,)?) => { $(
        impl Tree for $t {
            fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}

            fn rebuild(&self, _: &mut dyn FnMut() -> Tensor) -> $t {
                self.clone()
            }

            fn structure(&self, mut into: &mut dyn Hasher) {
                let $x = self;
                $key.hash(&mut into);
            }
        }
    )* };
}
plain! {
    bool => |x| x,
    f64 => |x| x.to_bits(),
    f32 => |x| x.to_bits(),
    i64 => |x| x,
    i32 => |x| x,
    isize => |x| x,
    u64 => |x| x,
    u32 => |x| x,
    u8 => |x| x,
    usize => |x| x,
    String => |x| x,
    ir::DType => |x| x,
}

impl Tree for () {
    fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}

    fn rebuild(&self, _: &mut dyn FnMut() -> Tensor) {}
}
