"""Trees by the older names of JAX; `tree` has the shorter ones."""

from .tree import all as tree_all
from .tree import flatten as tree_flatten
from .tree import flatten_with_path as tree_flatten_with_path
from .tree import leaves as tree_leaves
from .tree import map as tree_map
from .tree import map_with_path as tree_map_with_path
from .tree import reduce as tree_reduce
from .tree import register_dataclass
from .tree import register_node as register_pytree_node
from .tree import register_node_class as register_pytree_node_class
from .tree import structure as tree_structure
from .tree import transpose as tree_transpose
from .tree import unflatten as tree_unflatten
