from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from weights_engines import DENSE, Files, build, contents

from harness.engines.safetensors_shards import Piece, read_shard, write_shard
from harness.engines.weights_check import verify_weights

pytestmark = pytest.mark.modelopt

NVFP4 = Files.of(DENSE, weights="nvfp4", kv_format="fp8")
FP8 = Files.of(DENSE, weights="fp8", kv_format="fp8")
Change = Callable[[bytes], bytes]


def damaged(source: Path, folder: Path, name: str, change: Change | None) -> list[str]:
    """What is found wrong after the bytes of one tensor were changed, or it was left out."""
    folder.mkdir()
    for file, content in contents(source).items():
        (folder / file).write_bytes(content)
    [path] = [path for path in folder.glob("*.safetensors") if name in read_shard(path)]
    pieces = []
    for one in read_shard(path).values():
        raw = b"".join(one.chunks())
        if one.stored.name == name and change is not None:
            raw = change(raw)
        if one.stored.name != name or change is not None:
            pieces.append(Piece(one.stored, lambda raw=raw: [raw]))
    write_shard(path, pieces)
    return verify_weights(folder)


def put(text: str) -> Change:
    """Other first bytes, in hexadecimal."""
    new = bytes.fromhex(text)
    return lambda raw: new + raw[len(new) :]


def fill(byte: int) -> Change:
    return lambda raw: bytes([byte]) * len(raw)


LAYER = "model.layers.2"


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (f"{LAYER}.mlp.down_proj.input_scale", put("0000807f"), "is inf, and a scale is finite and positive"),
        (f"{LAYER}.mlp.down_proj.input_scale", put("00000000"), "is 0, and a scale is finite and positive"),
        (f"{LAYER}.self_attn.k_proj.k_scale", put("000080bf"), "is -1, and a scale is finite and positive"),
        (f"{LAYER}.self_attn.v_proj.v_scale", put("0000c07f"), "is nan, and a scale is finite and positive"),
        (f"{LAYER}.self_attn.k_proj.weight_scale_2", put("0000803f"), "differs between q_proj, k_proj, v_proj"),
        (f"{LAYER}.mlp.up_proj.input_scale", put("0000803f"), "differs between gate_proj, up_proj"),
        (f"{LAYER}.mlp.down_proj.weight_scale", put("00"), "has a block scale that is zero, negative or no number"),
        (f"{LAYER}.mlp.down_proj.weight_scale", put("ff"), "has a block scale that is zero, negative or no number"),
        (f"{LAYER}.mlp.down_proj.weight_scale", fill(0x38), "has no block scale of 448"),
        (f"{LAYER}.self_attn.o_proj.weight", fill(0), "has one value throughout"),
        (f"{LAYER}.input_layernorm.weight", put("807f"), "has a value that is infinite or no number"),
        ("lm_head.weight", put("c0ff"), "has a value that is infinite or no number"),
        ("model.embed_tokens.weight", fill(0), "has one value throughout"),
        (f"{LAYER}.mlp.gate_proj.weight_scale_2", None, "is in none"),
    ],
)
def test_every_damage_is_found(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, name: str, change: Change | None, problem: str
) -> None:
    found = damaged(build(NVFP4, tmp_path_factory), tmp_path / "engine", name, change)
    assert len(found) == 1
    assert problem in found[0]
    assert name.rpartition(".")[2] in found[0]  # the scale, also where it is named with its partners


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (f"{LAYER}.self_attn.q_proj.weight", put("7f"), "q_proj.weight: has a value that is no number"),
        (f"{LAYER}.self_attn.q_proj.weight", fill(0x10), "q_proj.weight: has no value of 448"),
        (f"{LAYER}.self_attn.v_proj.weight_scale", put("0000803f"), "q_proj.weight_scale: differs between q_proj, k_"),
    ],
)
def test_damage_to_fp8_is_found(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, name: str, change: Change, problem: str
) -> None:
    found = damaged(build(FP8, tmp_path_factory), tmp_path / "engine", name, change)
    assert any(problem in one for one in found)


def test_weights_that_are_not_what_the_configuration_says(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "engine"
    whole = build(FP8, tmp_path_factory)
    Files.of(DENSE, weights={"attention": "fp8"}).put(folder)
    for path in whole.glob("model*"):
        (folder / path.name).write_bytes(path.read_bytes())
    found = verify_weights(folder)
    want = "is F8_E4M3 [256, 128] instead of BF16 [256, 128], which the configuration says"
    assert f"{LAYER}.mlp.gate_proj.weight: {want}" in found
    assert f"{LAYER}.mlp.gate_proj.weight_scale: is no tensor of this model" in found
    assert f"{LAYER}.self_attn.k_proj.k_scale: is no tensor of this model" in found
    assert not any("q_proj" in one for one in found)

    (folder / "model-00002-of-00007.safetensors").unlink()
    assert verify_weights(folder) == [f"{folder / 'model-00002-of-00007.safetensors'}: is missing"]
