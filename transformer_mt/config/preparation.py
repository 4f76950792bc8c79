"""The YAML's `data.preparation`: where and by what the data are prepared. None of it changes them."""

from collections.abc import Iterator
from typing import Annotated

from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import Conflict, Section


class PreparationConfig(Section):
    """Engine and folder of the preparation of large corpora."""

    engine: Annotated[PartName, PartOf("preparation_engine")] = PartName("local")
    """Processes on this machine (local), or what a companion brings: ray is tasks on the Ray cluster
    of RAY_ADDRESS, by default the one this machine belongs to (`local` starts one here), and needs `folder`.
    """
    folder: str | None = None
    """Folder for prepared data, which all machines can access: a path, or a URL such as s3://bucket/prepared;
    by default the cache.
    """

    def conflicts(self) -> Iterator[Conflict]:
        if self.engine != "local" and self.folder is None:
            yield (
                f"engine: {self.engine} needs the key folder: a path that all machines see, or a URL such as "
                "s3://bucket/prepared"
            )
