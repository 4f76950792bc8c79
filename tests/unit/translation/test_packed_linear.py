import pytest
import torch

from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model
from transformer_mt.translation.engines.torch_engine import PackedLinear, pack

needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch has no oneDNN",
)

TOLERANCE = {torch.float32: {"atol": 1e-5, "rtol": 1e-4}, torch.bfloat16: {"atol": 0.1, "rtol": 0.1}}


@needs_onednn
@torch.inference_mode()
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_model_computes_the_same(norm, dtype):
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 on this CPU")
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, norm=norm
    )
    model = build_model(config, 50, 50, True, 64).eval().to(dtype)
    src, tgt = torch.randint(4, 50, (3, 9)), torch.randint(4, 50, (3, 7))
    plain = model(src, src != 0, tgt)
    pack(model)
    assert isinstance(model.output, PackedLinear) and isinstance(
        model.encoder.layers[0].feed_forward.inner, PackedLinear
    )
    torch.testing.assert_close(model(src, src != 0, tgt), plain, **TOLERANCE[dtype])


def test_other_arithmetic_is_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).half()
    pack(model)
    assert isinstance(model[0], torch.nn.Linear)
