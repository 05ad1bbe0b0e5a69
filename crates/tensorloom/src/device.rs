//! Devices: where tensors live.

use crate::shard::DevicePutTarget;
use crate::{Result, Tree, engine};

/// A device of the process's engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number, for [`device_put`].
    pub id: usize,
    /// What it is.
    pub name: String,
}

/// The devices; tensors are made on the first.
///
/// ```
/// assert!(tensorloom::devices()[0].name.contains("cpu"));
/// ```
pub fn devices() -> Vec<Device> {
    engine().devices().into_iter().enumerate().map(|(id, name)| Device { id, name }).collect()
}

/// A tree of tensors on a device, or in parts as a [`crate::Sharding`] says.
///
/// ```
/// use tensorloom::{device_put, ones};
///
/// let (x, y) = device_put((ones(&[2]), ones(&[3])), 0);
/// assert_eq!((x.shape(), y.shape()), (&[2][..], &[3][..]));
/// ```
#[track_caller]
pub fn device_put<T: Tree, P: DevicePutTarget<T>>(tree: T, place: P) -> P::Out {
    let _here = crate::record::here();
    place.put(tree)
}

/// Computes everything in a tree and gives it back.
///
/// ```
/// use tensorloom::{block_until_ready, ones};
///
/// let y = block_until_ready(ones(&[3]).exp())?;
/// assert_eq!(y.shape(), [3]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn block_until_ready<T: Tree>(tree: T) -> Result<T> {
    let _here = crate::record::here();
    match tree.leaves().iter().find_map(|t| t.engine().cloned()) {
        Some(engine) => engine.force(&tree)?,
        None => tree.leaves().iter().try_for_each(|t| t.check())?,
    }
    Ok(tree)
}
