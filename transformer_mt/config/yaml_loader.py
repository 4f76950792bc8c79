"""Safe YAML without four traps of YAML 1.1."""

import re
from typing import Any

import yaml

MOST_NODES = 100_000
"""Nodes of a file, each *alias counted with all that it stands for: lists of aliases that name one another
are small to write, and take for ever to read.
"""


class Loader(yaml.SafeLoader):
    """`7e-4` is a number, `no` is Norwegian and not false, dates and times are text, 010 is ten. Raises
    YAMLError for a text of too many nodes.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._sizes: dict[yaml.Node, int] = {}
        """Nodes in each node, the node itself counted."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        node = super().compose_node(parent, index)
        if node is not None and node not in self._sizes:
            below = [node.value] if isinstance(node, yaml.ScalarNode) else node.value
            parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
            size = 1 + sum(self._sizes.get(part, 1) for part in parts if isinstance(part, yaml.Node))
            if size > MOST_NODES:
                raise yaml.YAMLError(f"it has more than {MOST_NODES:,} values, as its *aliases repeat them")
            self._sizes[node] = size
        return node


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value.replace("_", ""))


_CHANGED = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "timestamp"))

Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _CHANGED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf)$|^\.(nan|NaN)$"),
    list("-+0123456789."),
)
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?\d[\d_]*$"), list("-+0123456789"))
Loader.add_constructor("tag:yaml.org,2002:int", _integer)
