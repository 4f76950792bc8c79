"""Models as ONNX files, and as a folder that any browser opens: the model, its search and a page.

Begin with `to_onnx.py`, which writes and proves the two graphs of a model; `to_browser.py` adds the page of
`web/`.
"""

from transformer_mt.companion import Companion

_HERE = "transformer_mt.companions.browser"
companion = Companion(
    requires=["exchange"],
    kinds={"export_format": {"onnx": f"{_HERE}.to_onnx:ToOnnx", "browser": f"{_HERE}.to_browser:ToBrowser"}},
    options={"export": f"{_HERE}.to_browser:add_options"},
)
