"""Models from and for other software: public models as runs, runs as exports, each proven.

`importing` reads public models, `export` writes models, `layouts` names the parts of a Transformer in other
software, in both directions; `pipeline` answers calls written for transformers.
"""

from transformer_mt.companion import Command, Companion

_HERE = "transformer_mt.companions.exchange"
companion = Companion(
    commands={
        "import": Command(f"{_HERE}.commands:add_import", "import a public model", "train"),
        "export": Command(f"{_HERE}.commands:add_export", "write a model for other software", "use"),
        "verify": Command(f"{_HERE}.commands:add_verify", "check a model's files and signature", "use"),
    },
    kinds={
        "engine": {"ctranslate2": f"{_HERE}.ctranslate2_engine:CTranslate2Engine"},
        "export_format": {
            "ctranslate2": f"{_HERE}.export.to_ctranslate2:ToCTranslate2",
            "huggingface": f"{_HERE}.export.to_huggingface:ToHuggingFace",
            "argos": f"{_HERE}.export.to_argos:ToArgos",
        },
    },
    public_names={"pipeline": f"{_HERE}.pipeline:pipeline"},
    hooks={
        "open_model": f"{_HERE}.importing.import_model:open_model",
        "after_training": f"{_HERE}.export.export:make_own_export",
    },
)
