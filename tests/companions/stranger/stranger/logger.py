"""A log in another form."""

from transformer_mt.run.loggers import Logger, scalars


class Csv(Logger):
    """One line for each number, in the run's folder."""

    def __init__(self, folder, config, step):
        self.file = (folder / "log.csv").open("a", encoding="utf-8")

    def write(self, entry):
        for name, value in scalars(entry).items():
            self.file.write(f"{entry['step']},{name},{value}\n")

    def close(self):
        self.file.close()
