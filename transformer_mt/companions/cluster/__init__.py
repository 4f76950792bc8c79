"""Corpora that are prepared by many machines: Ray, object stores, data that were prepared elsewhere."""

from transformer_mt.companion import Command, Companion

_HERE = "transformer_mt.companions.cluster"
companion = Companion(
    commands={"prepare": Command(f"{_HERE}.commands", "prepare the data without training", "start")},
    kinds={
        "corpus": {"shards": f"{_HERE}.prepared_elsewhere:ShardsCorpus"},
        "preparation_engine": {"ray": f"{_HERE}.ray_engine:RayEngine"},
    },
    hooks={
        "prepared_data": f"{_HERE}.prepared_elsewhere:prepared_elsewhere",
        "open_store": f"{_HERE}.remote_store:RemoteStore",
    },
)
