//! Which arguments a derivative is taken for.

use crate::Tree;

/// A choice among the items of an argument tree.
pub trait Select<A> {
    /// What a gradient for this choice is.
    type Out: Tree;

    /// The tensors chosen, counted among all leaves.
    fn positions(&self, args: &A) -> Vec<usize>;

    /// The chosen part.
    fn pick(&self, args: &A) -> Self::Out;
}

/// All arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct All;

/// The `I`-th item of a tuple of arguments, counted from 0.
///
/// ```
/// use tensorloom::{Arg, Tensor, grad, tensor};
///
/// let f = |(w, x): (Tensor, Tensor)| (&w * &x).sum();
/// let (w, x) = (tensor(&[1.0f32, 2.0], &[2]), tensor(&[3.0f32, 4.0], &[2]));
/// let dw = grad(f).argnums(Arg::<0>).call((w.clone(), x.clone()));
/// let (dx, dw2) = grad(f).argnums((Arg::<1>, Arg::<0>)).call((w, x));
/// assert_eq!(dw.to_vec::<f32>()?, [3.0, 4.0]);
/// assert_eq!(dx.to_vec::<f32>()?, [1.0, 2.0]);
/// assert_eq!(dw2.to_vec::<f32>()?, [3.0, 4.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Arg<const I: usize>;

fn copy<T: Tree>(t: &T) -> T {
    t.map(|x| x.clone())
}

impl<A: Tree> Select<A> for All {
    type Out = A;

    fn positions(&self, args: &A) -> Vec<usize> {
        (0..args.leaves().len()).collect()
    }

    fn pick(&self, args: &A) -> A {
        copy(args)
    }
}

macro_rules! item {
    ($i:tt $name:ident of $($all:ident)*) => {
        impl<$($all: Tree),*> Select<($($all,)*)> for Arg<$i> {
            type Out = $name;

            fn positions(&self, args: &($($all,)*)) -> Vec<usize> {
                let items = args.items();
                let first: usize = items[..$i].iter().sum();
                (first..first + items[$i]).collect()
            }

            fn pick(&self, args: &($($all,)*)) -> $name {
                copy(&args.$i)
            }
        }
    };
}
item!(0 A of A);
item!(0 A of A B);
item!(1 B of A B);
item!(0 A of A B C);
item!(1 B of A B C);
item!(2 C of A B C);
item!(0 A of A B C D);
item!(1 B of A B C D);
item!(2 C of A B C D);
item!(3 D of A B C D);
item!(0 A of A B C D E);
item!(1 B of A B C D E);
item!(2 C of A B C D E);
item!(3 D of A B C D E);
item!(4 E of A B C D E);
item!(0 A of A B C D E F);
item!(1 B of A B C D E F);
item!(2 C of A B C D E F);
item!(3 D of A B C D E F);
item!(4 E of A B C D E F);
item!(5 F of A B C D E F);

macro_rules! several {
    ($($name:ident $i:tt),*) => {
        impl<T, $($name: Select<T>),*> Select<T> for ($($name,)*) {
            type Out = ($($name::Out,)*);

            fn positions(&self, args: &T) -> Vec<usize> {
                let mut all = Vec::new();
                $(all.extend(self.$i.positions(args));)*
                all
            }

            fn pick(&self, args: &T) -> Self::Out {
                ($(self.$i.pick(args),)*)
            }
        }
    };
}
several!(P 0, Q 1);
several!(P 0, Q 1, R 2);
several!(P 0, Q 1, R 2, S 3);
