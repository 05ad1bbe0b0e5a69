//! Trees: values that hold tensors.

use crate::tensor::Tensor;

/// A value made of tensors: a tensor, or a structure of trees.
///
/// `rebuild` makes a value of the same structure from other tensors, given in the order in which `visit` shows them.
pub trait Tree: Sized {
    /// Shows every tensor in a fixed order.
    fn visit(&self, f: &mut dyn FnMut(&Tensor));

    /// The same structure with other tensors.
    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Self;

    /// All tensors in order.
    fn leaves(&self) -> Vec<Tensor> {
        let mut all = Vec::new();
        self.visit(&mut |t| all.push(t.clone()));
        all
    }

    /// The same structure with every tensor replaced.
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
}

impl<T: Tree> Tree for Option<T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Option<T> {
        self.as_ref().map(|t| t.rebuild(next))
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> [T; N] {
        std::array::from_fn(|i| self[i].rebuild(next))
    }
}

impl<K: Ord + Clone, T: Tree> Tree for std::collections::BTreeMap<K, T> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.values().for_each(|t| t.visit(f));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
        self.iter().map(|(k, t)| (k.clone(), t.rebuild(next))).collect()
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
        }
    };
}
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);

impl Tree for () {
    fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}

    fn rebuild(&self, _: &mut dyn FnMut() -> Tensor) {}
}
