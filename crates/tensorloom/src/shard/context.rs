//! The mesh whose function is being traced on this thread.

use super::Mesh;
use ir::MeshAxis;
use std::cell::RefCell;

thread_local! {
    static MESHES: RefCell<Vec<Mesh>> = const { RefCell::new(Vec::new()) };
}

/// Until it is dropped, axes are looked for in this mesh.
pub(super) struct MeshGuard(());

impl Drop for MeshGuard {
    fn drop(&mut self) {
        MESHES.with_borrow_mut(|all| all.pop());
    }
}

pub(super) fn enter(mesh: &Mesh) -> MeshGuard {
    MESHES.with_borrow_mut(|all| all.push(mesh.clone()));
    MeshGuard(())
}

/// Whether a function over a mesh is being traced.
pub(super) fn is_inside() -> bool {
    MESHES.with_borrow(|all| !all.is_empty())
}

/// The axes of these names.
pub(super) fn axes(names: &[&str]) -> Result<Vec<MeshAxis>, String> {
    MESHES.with_borrow(|all| {
        let Some(mesh) = all.last() else {
            return Err(
                "there is no mesh here: collectives are only allowed inside a `shard_map` or a `pmap`".to_string()
            );
        };
        let axis = |name: &&str| {
            let missing = || format!("the mesh {mesh} has no axis `{name}`");
            mesh.axis(name).cloned().ok_or_else(missing)
        };
        match names.is_empty() {
            true => Err(format!("no axis is named; the mesh is {mesh}")),
            false => names.iter().map(axis).collect(),
        }
    })
}
