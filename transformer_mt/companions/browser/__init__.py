"""Models as ONNX files, and as a folder that any browser opens: the model, its search and a page.

Begin with `graphs.py`, the two graphs of a model. `to_onnx.py` writes and proves them, `to_browser.py` adds
the page of `web/`.
"""

from transformer_mt.companion import Companion

_HERE = "transformer_mt.companions.browser"
companion = Companion(
    requires=["exchange"],
    kinds={"export_format": {"onnx": f"{_HERE}.to_onnx:ToOnnx", "browser": f"{_HERE}.to_browser:ToBrowser"}},
    options={"export": f"{_HERE}.options:add_options"},
)
