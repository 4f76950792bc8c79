"""web/int8_products.wasm: the products of matrices that a page gives to Bergamot's engine."""

import json
import re
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest
from filelock import FileLock

from tests.conftest import ROOT
from tests.helpers.node import NODE

WEB = files("transformer_mt.companions.browser") / "web"
ROWS, WIDTH, COLS, SCALES = 3, 128, 16, (30.0, 90.0)
PROGRAM = """
const { a, b, transposed, bias, chosen, rows, width, cols, scales } = JSON.parse(fs.readFileSync(0));
const [sa, sb] = scales;
const memory = new WebAssembly.Memory({ initial: 16 });
const wasm = await WebAssembly.instantiate(fs.readFileSync(process.argv[1]), { env: { memory } });
const floats = new Float32Array(memory.buffer), bytes = new Int8Array(memory.buffer);
const of = wasm.instance.exports;
const A = 1e5, B = 2e5, C = 3e5, BIAS = 4e5, OUT = 5e5, CHOSEN = 6e5;
const result = {};
floats.set(a, 0);
of.int8_prepare_a(0, sa, 0, rows, width, A);
floats.set(b, 0);
of.int8_prepare_b(0, sb, 0, width, cols, B);
floats.set(transposed, 0);
of.int8_prepare_b_from_transposed(0, sb, 0, width, cols, C);
result.b = [...bytes.slice(B, B + width * cols)];
result.same = result.b.every((value, i) => value === bytes[C + i]);
of.int8_prepare_b_from_quantized_transposed(B, width, cols, C);
floats.set(bias, 0);
of.int8_prepare_bias(C, sa, 0, sb, 0, width, cols, 4, BIAS); // from the address 4: 0 would be no bias
floats.fill(NaN, OUT / 4, OUT / 4 + rows * cols + 1);
of.int8_multiply_and_add_bias(A, sa, 0, C, sb, 0, BIAS, 2, rows, width, cols, OUT);
result.product = [...floats.slice(OUT / 4, OUT / 4 + rows * cols)];
result.beyond = Number.isNaN(floats[OUT / 4 + rows * cols]);
new Uint32Array(memory.buffer).set(chosen, CHOSEN / 4);
of.int8_select_columns_of_b(C, width, cols, CHOSEN, chosen.length, B);
of.int8_prepare_bias(B, sa, 0, sb, 0, width, 8, 0, BIAS);
of.int8_multiply_and_add_bias(A, sa, 0, B, sb, 0, BIAS, 1, 1, width, chosen.length, OUT);
result.chosen = [...floats.slice(OUT / 4, OUT / 4 + chosen.length)];
console.log(JSON.stringify(result));
"""


@pytest.mark.skipif(NODE is None, reason="there is no Node; install the package nodejs")
def test_products_are_those_of_rounded_matrices_without_cuts_at_16_bits():
    random = np.random.default_rng(0)
    a = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    b = random.normal(size=(WIDTH, COLS)).astype(np.float32)
    a[0], b[:, 0] = 9.0, -9.0  # beyond 127 when multiplied by their scales, and a large sum
    bias = random.normal(size=COLS).astype(np.float32)
    chosen = [0, 3, 5, 6, 9, 12, 14, 15]
    asked = {
        "a": a.ravel().tolist(), "b": b.ravel().tolist(), "transposed": b.T.ravel().tolist(),
        "bias": [0.0, *bias.tolist()], "chosen": chosen, "rows": ROWS, "width": WIDTH, "cols": COLS,
        "scales": SCALES,
    }  # fmt: skip
    program = ["--input-type=module", "-e", f"import fs from 'node:fs';{PROGRAM}"]
    done = subprocess.run(
        [NODE, *program, "--", str(WEB / "int8_products.wasm")],
        input=json.dumps(asked), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rounded_a, rounded_b = (
        np.clip(np.rint(matrix * np.float32(scale)), -127, 127).astype(np.int64)
        for matrix, scale in zip((a, b), SCALES)
    )
    assert result["b"] == rounded_b.T.ravel().tolist() and result["same"] and result["beyond"]
    exact = rounded_a @ rounded_b / (SCALES[0] * SCALES[1])
    np.testing.assert_allclose(np.reshape(result["product"], (ROWS, COLS)), 2 * exact + bias, rtol=1e-5)
    np.testing.assert_allclose(result["chosen"], exact[0, chosen], rtol=1e-5)


def test_the_binary_is_what_its_source_compiles_to(tmp_path):
    """By the version of the compiler and the command that stand at its top."""
    source = (WEB / "int8_products.ts").read_text(encoding="utf-8")
    version, command = re.match(r"// .* AssemblyScript ([\d.]+):\n// asc (.*)\n", source).groups()
    npm, folder = shutil.which("npm"), ROOT / f"build/assemblyscript-{version}"
    compiler = folder / "node_modules/.bin/asc"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not compiler.exists():
            words = ["install", "--prefix", str(folder), "--ignore-scripts", f"assemblyscript@{version}"]
            done = subprocess.run([npm, *words], capture_output=True, text=True) if npm else None
            if done is None or done.returncode:
                pytest.skip(f"npm could not install AssemblyScript: {done and done.stderr[-300:]}")
    (tmp_path / "int8_products.ts").write_text(source, encoding="utf-8")
    subprocess.run([compiler, *command.split()], cwd=tmp_path, check=True)
    assert (tmp_path / "int8_products.wasm").read_bytes() == (WEB / "int8_products.wasm").read_bytes()
