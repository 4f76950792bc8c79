"""Models as ONNX files, as a folder that any browser opens, and for Bergamot, Firefox's engine.

Begin with `to_onnx.py`, which writes and proves the two graphs of a model; `to_bergamot.py` writes
and proves Marian's file. `to_browser.py` adds an engine and the page, whose files and rules are in `page.py`.
"""

from transformer_mt.companion import Companion

_HERE = "transformer_mt.companions.browser"
companion = Companion(
    requires=["exchange"],
    kinds={
        "export_format": {
            "onnx": f"{_HERE}.to_onnx:ToOnnx",
            "browser": f"{_HERE}.to_browser:ToBrowser",
            "bergamot": f"{_HERE}.to_bergamot:ToBergamot",
        }
    },
    options={"export": f"{_HERE}.to_browser:add_options"},
)
