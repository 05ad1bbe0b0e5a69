//! `name`: the identity; marks a value that a `remat` may save.

use super::elementwise::batch_map;
use super::*;
use crate::attr::Attr;

/// Names a value (JAX's `checkpoint_name`). [`RematPolicy::Names`] uses the name, and [`Name::nofuse`] prevents fusion; tangents
/// are not named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The name.
    pub name: String,
}

impl Name {
    /// Names a value.
    pub fn new(name: impl Into<String>) -> Name {
        Name { name: name.into() }
    }

    /// The name of a value that is computed separately: compilers store it, and do not fuse across it.
    pub fn nofuse() -> Name {
        Name::new("nofuse")
    }

    /// Whether it prevents fusion.
    pub fn is_nofuse(&self) -> bool {
        self.name == "nofuse"
    }
}

impl Rules for Name {
    fn name(&self) -> &'static str {
        "name"
    }

    fn attrs(&self) -> Attrs {
        vec![("name", Attr::Str(self.name.clone()))]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        Ok(args.to_vec())
    }

    fn jvp(&self, _: &mut dyn GraphTransforms, _: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        Ok(dx.to_vec())
    }

    split_whole!();

    fn transpose(&self, _: &mut dyn GraphTransforms, _: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        Ok(ct.to_vec())
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        batch_map(self.clone().into(), cx, x, batched, size)
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Arg(0))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Name>> {
        (name == "name").then(|| Ok(Name { name: attrs.string("name")? }))
    }
}
