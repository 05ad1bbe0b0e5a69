//! Modules: structs of parameters, with names.

use crate::{Error, Literal, Result, Tensor, no_grad};
use std::collections::BTreeMap;
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
    fn visit(&self, v: &mut Visit<'_>);

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
        let own = self.named_tensors();
        let fail = |reason: String| Err(crate::write::error("load_state_dict", reason));
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
        module.visit(self);
        self.path.truncate(end);
    }

    /// Shows something at this place.
    pub fn item(&mut self, item: Item<'_>) {
        (self.see)(&self.path, item);
    }
}

fn visit<M: Module + ?Sized>(module: &M, see: &mut dyn FnMut(&str, Item<'_>)) {
    module.visit(&mut Visit { path: String::new(), see });
}

/// A module that maps one tensor to another.
pub trait Layer: Module {
    /// Its result.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;
}

impl Module for Tensor {
    fn visit(&self, v: &mut Visit<'_>) {
        v.item(Item::Tensor(self));
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, v: &mut Visit<'_>) {
        self.iter().enumerate().for_each(|(i, m)| v.child(&i.to_string(), m));
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, v: &mut Visit<'_>) {
        self.iter().for_each(|m| m.visit(v));
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, v: &mut Visit<'_>) {
        (**self).visit(v);
    }
}

macro_rules! plain {
    ($($t:ty),*) => { $(
        impl Module for $t {
            fn visit(&self, _: &mut Visit<'_>) {}
        }
    )* };
}
plain!(bool, usize, i64, i32, f32, f64, String);

/// Layers one after another.
///
/// ```
/// use tensorloom::nn::{Layer, Linear, Module, Relu, Sequential};
/// use tensorloom::ones;
///
/// let net = Sequential::new([Box::new(Linear::new(4, 8)) as Box<dyn Layer>, Box::new(Relu), Box::new(Linear::new(8, 1))]);
/// assert_eq!(net.forward(&ones(&[2, 4])).shape(), [2, 1]);
/// assert_eq!(net.named_parameters()[2].0, "2.weight");
/// ```
pub struct Sequential {
    /// In order.
    pub layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// Layers one after another.
    pub fn new(layers: impl IntoIterator<Item = Box<dyn Layer>>) -> Sequential {
        Sequential { layers: layers.into_iter().collect() }
    }
}

impl Module for Sequential {
    fn visit(&self, v: &mut Visit<'_>) {
        self.layers.visit(v);
    }
}

impl Layer for Sequential {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.layers.iter().fold(x.clone(), |x, layer| layer.forward(&x))
    }
}
