"""The YAML's `data.preparation`: where and by what the data are prepared. None of it changes them."""

from typing import Literal

from pydantic import model_validator

from transformer_mt.settings.section import Section


class PreparationConfig(Section):
    """Engine and folder of the preparation of large corpora."""

    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or tasks on a Ray cluster."""
    address: str = "auto"
    """Address of the Ray cluster; auto: the one this machine belongs to; local: start one here."""
    folder: str | None = None
    """Folder for prepared data, which all machines can access: a path, or a URL such as s3://bucket/prepared;
    by default the cache.
    """

    @model_validator(mode="after")
    def _engine_fits(self) -> "PreparationConfig":
        if self.engine == "ray" and self.folder is None:
            raise ValueError(
                "engine: ray needs the key folder: a path that all machines see, or a URL such as "
                "s3://bucket/prepared"
            )
        return self
