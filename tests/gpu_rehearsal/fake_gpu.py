"""A GPU that has shapes, dtypes and devices but no values: torch's fake tensors on a device called cuda.

Import this before torch. An operation that mixes devices raises. What makes the host wait for the device (to
read a value, to copy from memory that is not pinned) is counted with its file and line, and returns a
made-up value. Kernels are counted, too. What a GPU computes, how fast, and which kernel its libraries
choose is not to be seen here.
"""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

if "torch" in sys.modules:
    raise ImportError("fake_gpu must be imported before torch")
HERE = Path(__file__).parent


def _guard():
    """The library of guard.cpp, compiled for the installed torch."""
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "guard.so"
        compiler, libraries = shutil.which("g++") or "c++", torch_folder / "lib"
        options = ["-std=c++20", "-shared", "-fPIC", f"-I{torch_folder}/include", f"-L{libraries}"]
        linked = ["-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}", "-o", library]
        subprocess.run([compiler, *options, HERE / "guard.cpp", *linked], check=True)
        return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


_library = _guard()

import torch  # noqa: E402
import torch._subclasses.fake_tensor as fake_tensor  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.utils import _foreach_utils  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

_library.install_guard()
aten = torch.ops.aten
GPU = torch.device("cuda")
GB = 2**30


class _H100:
    name, major, minor, total_memory, multi_processor_count = "H100 without values", 9, 0, 80 * GB, 132


for _name, _answer in {
    "is_available": True,
    "is_initialized": True,
    "is_bf16_supported": True,
    "device_count": 1,
    "current_device": 0,
    "set_device": None,
    "_lazy_init": None,
    "synchronize": None,
    "empty_cache": None,
    "mem_get_info": (70 * GB, 80 * GB),
    "memory_reserved": 2 * GB,
    "max_memory_allocated": GB,
    "reset_peak_memory_stats": None,
    "get_device_name": _H100.name,
    "get_device_properties": _H100,
    "get_device_capability": (9, 0),
    "get_arch_list": ["sm_80", "sm_90", "sm_100"],
}.items():
    setattr(torch.cuda, _name, lambda *args, _answer=_answer, **options: _answer)
fake_tensor.init_gpu_context = lambda device: None
_foreach_utils._foreach_supported_types.append(fake_tensor.FakeTensor)  # what torch asks before it uses them


class _Fake(fake_tensor.FakeTensorMode):
    avoid_device_init = property(lambda self: True)


# Operations without a kernel: they only make a tensor, or another view of one.
_NO_KERNEL = {
    "detach",
    "_unsafe_view",
    "alias",
    "lift_fresh",
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
}


class Watch(TorchDispatchMode):
    """Counts what the host asks of the device."""

    def __init__(self):
        super().__init__()
        self.clear()

    def clear(self):
        self.waits = Counter()
        """Number of waits of the host, by "what at file:line"."""
        self.kernels = Counter()
        """Number of kernels, by operation."""
        self.attention = Counter()
        """Number of calls, by kind of fused attention."""

    @property
    def num_kernels(self):
        return self.kernels.total()

    @property
    def num_waits(self):
        return self.waits.total()

    def read(self, what, tensor):
        if _is_on_gpu(tensor):
            self.wait(what)

    def wait(self, what):
        lines = (
            frame for frame in reversed(traceback.extract_stack()) if "/transformer_mt/" in frame.filename
        )
        location = next(
            (f"{frame.filename.split('/transformer_mt/')[-1]}:{frame.lineno}" for frame in lines), "torch"
        )
        self.waits[f"{what} at {location}"] += 1

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else None
        if operation.namespace == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(
            operation.name(), "CompositeImplicitAutograd"
        ):  # in inference mode such an operation arrives whole
            with self:
                result = operation.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if operation is aten._local_scalar_dense.default:
            self.read("item", first)
            return _made_up(first.dtype)
        if operation is aten.nonzero.default:
            self.read("nonzero", first)
            return torch.empty(first.numel(), first.dim(), dtype=torch.int64, device=first.device)
        if operation is aten._pack_padded_sequence.default:
            rows = first.transpose(0, 1) if args[2] else first
            return rows.flatten(0, 1).clone(), torch.empty(rows.size(0), dtype=torch.int64, device="cpu")
        if operation._overloadname == "tensor_lr":  # fake tensors know the optimizer's other form only
            operation, kwargs = operation.overloadpacket.default, {**kwargs, "lr": 0.0}
        args = self._noting_copies(operation, args, kwargs)
        result = operation(*args, **kwargs)
        self._count(operation, result)
        return result

    def _noting_copies(self, operation, args, kwargs):
        """Note the copies between host and device, and what an index hides: True values must be found."""
        name, first = operation._schema.name.split("::")[1], args[0] if args else None
        if operation is aten._to_copy.default and kwargs.get("device") is not None:
            self._note_copy(first, torch.device(kwargs["device"]), kwargs.get("non_blocking"))
        elif operation is torch.ops.prims.device_put.default:
            self._note_copy(first, torch.device(args[1]), args[2] if len(args) > 2 else False)
        elif name == "copy_":
            self._note_copy(args[1], first.device, kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        elif name in ("index", "index_put", "index_put_", "_unsafe_index") and _is_on_gpu(first):
            indices = list(args[1])
            for i, index in enumerate(indices):
                if index is None:
                    continue
                if index.device.type == "cpu":
                    self.wait("index from the host")
                if index.dtype == torch.bool:
                    self.wait("index by a mask")
                    indices[i] = torch.empty(index.numel(), dtype=torch.int64, device=index.device)
            return (first, indices, *args[2:])
        elif (
            name == "repeat_interleave"
            and _is_on_gpu(first)
            and len(args) == 1
            and not kwargs.get("output_size")
        ):
            self.wait("repeat_interleave of a tensor")
        return args

    def _note_copy(self, source, target, is_asynchronous):
        if source.device.type == target.type:
            return
        if target.type == "cpu":
            self.wait("copy to the host")
        elif not is_asynchronous:
            self.wait("copy to the device")
        elif not getattr(source, "is_fake_pinned", False):
            self.wait("copy from memory that is not pinned")

    def _count(self, operation, result):
        name = operation._schema.name.split("::")[1]
        parts = result if isinstance(result, list | tuple) else [result]
        if name.startswith(("_foreach", "_fused")) or (
            any(map(_is_on_gpu, parts))
            and name not in _NO_KERNEL
            and (name.endswith("_") or not operation.is_view)
        ):
            self.kernels[name] += 1


def _is_on_gpu(value):
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def _made_up(dtype):
    return False if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1


_watch = Watch()


def _tolist(tensor):
    _watch.read("tolist", tensor)

    def filled(shape):
        return [filled(shape[1:]) for _ in range(shape[0])] if shape else _made_up(tensor.dtype)

    return filled(list(tensor.shape))


def _pin_memory(tensor):
    tensor.is_fake_pinned = True
    return tensor


fake_tensor.FakeTensor.tolist = _tolist
fake_tensor.FakeTensor.pin_memory = torch.Tensor.pin_memory = _pin_memory
_attention_of_cpu = F.scaled_dot_product_attention


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """What CUDA makes of F.scaled_dot_product_attention on a card that has flash and efficient attention
    (torch 2.13, ATen/native/transformers: attention.cpp and cuda/sdp_utils.cpp).
    """
    if not _is_on_gpu(q):
        return _attention_of_cpu(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    if torch.is_autocast_enabled("cuda"):
        half = torch.get_autocast_dtype("cuda")
        q, k, v = q.to(half), k.to(half), v.to(half)
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(half)
    assert q.dtype == k.dtype == v.dtype, f"attention mixes {q.dtype}, {k.dtype} and {v.dtype}"
    is_half, width = q.dtype in (torch.bfloat16, torch.float16), q.size(-1)
    if attn_mask is None and is_half and width <= 256 and width % 8 == 0:
        _watch.attention["flash"] += 1
        return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
    if width % (8 if is_half else 4) or (attn_mask is not None and attn_mask.requires_grad):
        _watch.attention["plain"] += 1
        return aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[
            0
        ]
    _watch.attention["efficient"] += 1
    bias = attn_mask
    if bias is not None:
        if bias.dtype == torch.bool:
            bias = torch.where(bias, 0.0, -torch.inf).to(q.dtype)
        if any(stride % 8 for stride in bias.stride()[:-1]):
            bias = F.pad(bias, (0, -bias.size(-1) % 16))[..., : bias.size(-1)]
        bias = bias.expand(*q.shape[:3], k.size(2))
    needs_log_sum = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    return aten._scaled_dot_product_efficient_attention(
        q, k, v, bias, needs_log_sum, dropout_p, is_causal, scale=scale
    )[0]


F.scaled_dot_product_attention = _attention


@contextmanager
def rehearsal():
    """Within it, tensors have no values, and the Watch counts."""
    _watch.clear()
    with _Fake(allow_non_fake_inputs=True), _watch:
        yield _watch


def on_gpu(model, dtype=None):
    """The model, whose parameters and buffers are moved to the GPU; what it keeps elsewhere stays on the CPU,
    as with `nn.Module.to`, which cannot do this with fake tensors.
    """
    moved = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in moved:
                    moved[id(weight)] = torch.nn.Parameter(weight.detach().to(GPU, dtype))
                module._parameters[name] = moved[id(weight)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(GPU, dtype if buffer.is_floating_point() else None)
        if isinstance(module, torch.nn.RNNBase):
            module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
    return model
