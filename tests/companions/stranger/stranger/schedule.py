"""A schedule that can be stopped late."""

from pydantic import Field

from transformer_mt.settings.section import Section
from transformer_mt.update.schedule import Schedule


class Trapezoid(Schedule):
    """Warm-up, then constant, then linear to zero (Zhai et al. 2022, section 3.5)."""

    class Settings(Section):
        """Keys of trapezoid."""

        decay: float = Field(0.2, gt=0.0, le=1.0)
        """The share of the updates in which the rate falls."""

    def __init__(self, config, settings):
        super().__init__(config)
        self.decay = settings.decay

    def share(self, step):
        return min(1.0, (self.end + 1 - step) / (self.decay * self.end))
