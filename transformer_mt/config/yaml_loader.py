"""Safe YAML without four traps of YAML 1.1."""

import re

import yaml


class Loader(yaml.SafeLoader):
    """`7e-4` is a number, `no` is Norwegian and not false, dates and times are text, 010 is ten."""


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
