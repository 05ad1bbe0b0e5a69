//! Modules: structs of parameters, with names.

use crate::{Error, Literal, Result, Tensor, Tree, no_grad, record};
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that holds parameters. Derive it for structs: fields are modules, tensors or plain numbers.
///
/// A tensor that requires gradients is a parameter, any other one a buffer; both are part of the state.
///
/// ```
/// use tensorloom::nn::{Layer, Linear, Module};
/// use tensorloom::{Tensor, ones};
///
/// #[derive(Module)]
/// struct Mlp {
///     up: Linear,
///     down: Linear,
/// }
///
/// let mlp = Mlp { up: Linear::new(4, 8), down: Linear::new(8, 2) };
/// let names: Vec<String> = mlp.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["up.weight", "up.bias", "down.weight", "down.bias"]);
/// assert_eq!(mlp.down.forward(&mlp.up.forward(&ones(&[3, 4])).relu()).shape(), [3, 2]);
/// ```
pub trait Module {
    /// Shows everything inside, in a fixed order.
    fn walk(&self, v: &mut Visit<'_>);

    /// Parameters with the path of fields that leads to them. A tensor that is held twice is named twice.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = self.named_tensors();
        all.retain(|(_, t)| t.requires_grad());
        all
    }

    /// Parameters; a tensor that is held twice is given once.
    fn parameters(&self) -> Vec<Tensor> {
        let mut all: Vec<Tensor> = Vec::new();
        for (_, t) in self.named_parameters() {
            if !all.iter().any(|x| x.base_id().is_some() && x.base_id() == t.base_id()) {
                all.push(t);
            }
        }
        all
    }

    /// Parameters and buffers by name.
    fn named_tensors(&self) -> Vec<(String, Tensor)> {
        let mut all = Vec::new();
        visit(self, &mut |name, item| {
            if let Item::Tensor(t) = item {
                all.push((name.to_string(), t.clone()));
            }
        });
        all
    }

    /// The values of all parameters and buffers.
    fn state_dict(&self) -> Result<StateDict> {
        self.named_tensors().into_iter().map(|(name, t)| Ok((name, t.to_literal()?))).collect()
    }

    /// Sets all parameters and buffers, in place. An error changes nothing: names that are missing, left over, or whose
    /// types differ.
    #[track_caller]
    fn load_state_dict(&self, state: &StateDict) -> Result<()> {
        let _here = record::here();
        let own = self.named_tensors();
        let fail = |reason: String| Err(crate::record::error("load_state_dict", reason));
        let mut known = BTreeMap::new();
        for (name, t) in &own {
            match state.get(name) {
                None => return fail(format!("there is no {name} in the state")),
                Some(l) if l.ty() != t.ty() => return fail(format!("{name} is {}, the state has {}", t.ty(), l.ty())),
                Some(l) => known.insert(name.as_str(), l),
            };
        }
        if let Some(name) = state.keys().find(|k| !known.contains_key(k.as_str())) {
            return fail(format!("the module has no {name}"));
        }
        no_grad(|| {
            for (name, t) in &own {
                t.copy_(&crate::engine_of(t).literal(known[name.as_str()])).check()?;
            }
            Ok::<(), Error>(())
        })
    }

    /// Writes all parameters and buffers as a safetensors file.
    #[track_caller]
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        let _here = record::here();
        crate::save(path, &self.state_dict()?)
    }

    /// Sets all parameters and buffers from a safetensors file. An error changes nothing.
    #[track_caller]
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        let _here = record::here();
        self.load_state_dict(&crate::load(path)?)
    }

    /// Parameters by name, as a tree that transforms take; see [`functional_call`](super::functional_call).
    fn params(&self) -> BTreeMap<String, Tensor> {
        self.named_parameters().into_iter().collect()
    }

    /// Switches layers like dropout on (while training) or off.
    fn train(&self, on: bool) {
        visit(self, &mut |_, item| {
            if let Item::Training(flag) = item {
                flag.store(on, Ordering::Relaxed);
            }
        });
    }

    /// Takes all gradients away.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }
}

/// Values by name.
pub type StateDict = BTreeMap<String, Literal>;

/// What a module shows.
pub enum Item<'a> {
    /// A parameter or a buffer.
    Tensor(&'a Tensor),
    /// Whether a layer is being trained.
    Training(&'a AtomicBool),
}

/// A walk over a module.
pub struct Visit<'a> {
    path: String,
    see: &'a mut dyn FnMut(&str, Item<'_>),
}

impl Visit<'_> {
    /// Goes into a part.
    pub fn child<M: Module + ?Sized>(&mut self, name: &str, module: &M) {
        let end = self.path.len();
        if end > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        module.walk(self);
        self.path.truncate(end);
    }

    /// Shows something at this place.
    pub fn item(&mut self, item: Item<'_>) {
        (self.see)(&self.path, item);
    }
}

fn visit<M: Module + ?Sized>(module: &M, see: &mut dyn FnMut(&str, Item<'_>)) {
    module.walk(&mut Visit { path: String::new(), see });
}

/// Whether a layer is being trained, for layers that then do something else; see [`Module::train`].
#[derive(Debug)]
pub struct Training(AtomicBool);

impl Training {
    /// Whether it is.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Training {
    fn default() -> Training {
        Training(AtomicBool::new(true))
    }
}

impl Clone for Training {
    fn clone(&self) -> Training {
        Training(AtomicBool::new(self.is_on()))
    }
}

impl Module for Training {
    fn walk(&self, v: &mut Visit<'_>) {
        v.item(Item::Training(&self.0));
    }
}

/// Compiled functions are compiled once for training and once for the rest.
impl Tree for Training {
    fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}

    fn rebuild(&self, _: &mut dyn FnMut() -> Tensor) -> Training {
        self.clone()
    }

    fn structure(&self, into: &mut dyn Hasher) {
        into.write_u8(self.is_on().into());
    }
}

/// A module that maps one tensor to another. It is a tree too, so that `grad`, `jit` and `vmap` take it.
///
/// ```
/// use tensorloom::prelude::*;
///
/// #[derive(Module, Tree)]
/// struct Residual {
///     inner: nn::Linear,
/// }
///
/// impl Layer for Residual {
///     fn forward(&self, x: &Tensor) -> Tensor {
///         x + self.inner.forward(x).tanh()
///     }
/// }
///
/// let layer = Residual { inner: nn::Linear::new(3, 3) };
/// let x = ones((2, 3));
/// // The gradient of a layer is a layer of gradients.
/// let slope = grad(|layer: Residual| layer.forward(&x).sum()).call(layer);
/// assert_eq!(slope.inner.weight.shape(), [3, 3]);
/// ```
pub trait Layer: Module + LayerTree {
    /// Its result. Ops in it have their own lines; for that of the caller, mark yours `#[track_caller]`.
    fn forward(&self, x: &Tensor) -> Tensor;
}

/// A layer behind a pointer, as a tree. Every layer that is a [`Tree`] is one.
#[diagnostic::on_unimplemented(
    message = "the layer `{Self}` is not a tree",
    note = "add `Tree` to its derives: `#[derive(Module, Tree)]`"
)]
pub trait LayerTree {
    /// [`Tree::visit`].
    fn visit_leaves(&self, f: &mut dyn FnMut(&Tensor));

    /// [`Tree::rebuild`].
    fn rebuild_layer(&self, next: &mut dyn FnMut() -> Tensor) -> Box<dyn Layer>;

    /// [`Tree::structure`].
    fn hash_structure(&self, into: &mut dyn Hasher);
}

impl<L: Layer + Tree + 'static> LayerTree for L {
    fn visit_leaves(&self, f: &mut dyn FnMut(&Tensor)) {
        Tree::visit(self, f);
    }

    fn rebuild_layer(&self, next: &mut dyn FnMut() -> Tensor) -> Box<dyn Layer> {
        Box::new(Tree::rebuild(self, next))
    }

    fn hash_structure(&self, into: &mut dyn Hasher) {
        Tree::structure(self, into);
    }
}

impl Tree for Box<dyn Layer> {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        (**self).visit_leaves(f);
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Box<dyn Layer> {
        (**self).rebuild_layer(next)
    }

    fn structure(&self, into: &mut dyn Hasher) {
        (**self).hash_structure(into);
    }
}

impl Module for Tensor {
    fn walk(&self, v: &mut Visit<'_>) {
        v.item(Item::Tensor(self));
    }
}

impl<M: Module> Module for Vec<M> {
    fn walk(&self, v: &mut Visit<'_>) {
        self.iter().enumerate().for_each(|(i, m)| v.child(&i.to_string(), m));
    }
}

impl<M: Module> Module for Option<M> {
    fn walk(&self, v: &mut Visit<'_>) {
        self.iter().for_each(|m| m.walk(v));
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn walk(&self, v: &mut Visit<'_>) {
        (**self).walk(v);
    }
}

macro_rules! plain {
    ($($t:ty),*) => { $(
        impl Module for $t {
            fn walk(&self, _: &mut Visit<'_>) {}
        }
    )* };
}
plain!(bool, usize, i64, i32, f32, f64, String);

/// Layers one after another, of kinds that are known when the program runs; a tuple of layers is the same, known before.
///
/// ```
/// use tensorloom::nn::{Layer, Linear, Module, Relu, Sequential};
/// use tensorloom::ones;
///
/// let net = Sequential::default().add(Linear::new(4, 8)).add(Relu).add(Linear::new(8, 1));
/// assert_eq!(net.forward(&ones((2, 4))).shape(), [2, 1]);
/// assert_eq!(net.named_parameters()[2].0, "2.weight");
///
/// let same = (Linear::new(4, 8), Relu, Linear::new(8, 1));
/// assert_eq!(same.forward(&ones((2, 4))).shape(), [2, 1]);
/// assert_eq!(same.named_parameters()[2].0, "2.weight");
/// ```
#[derive(Default, macros::Tree)]
pub struct Sequential {
    /// In order.
    pub layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// Layers one after another.
    pub fn new(layers: impl IntoIterator<Item = Box<dyn Layer>>) -> Sequential {
        Sequential { layers: layers.into_iter().collect() }
    }

    /// One layer more.
    #[expect(clippy::should_implement_trait, reason = "a sum of layers is something else")]
    pub fn add(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }
}

impl Module for Sequential {
    fn walk(&self, v: &mut Visit<'_>) {
        self.layers.walk(v);
    }
}

/// The next layer's result. The line of a layer of ours is that of the outermost call, one of the user's has its own.
fn next(x: Tensor, layer: &dyn Layer) -> Tensor {
    let _user = engine::enter_user_code();
    layer.forward(&x)
}

impl Layer for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        self.layers.iter().fold(x.clone(), |x, layer| next(x, &**layer))
    }
}

macro_rules! tuples {
    ($($($name:ident $i:tt)*;)*) => { $(
        impl<$($name: Module),*> Module for ($($name,)*) {
            fn walk(&self, v: &mut Visit<'_>) {
                $(v.child(stringify!($i), &self.$i);)*
            }
        }

        impl<$($name: Layer + Tree + 'static),*> Layer for ($($name,)*) {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let _here = record::here();
                let x = x.clone();
                $(let x = next(x, &self.$i);)*
                x
            }
        }
    )* };
}
tuples! {
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
}
