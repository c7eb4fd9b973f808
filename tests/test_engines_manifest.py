from __future__ import annotations

import json
from pathlib import Path

import pytest
from engines import VARIANT, spec, with_weights, write_shards

from harness.cost.kv_cache import kv_bytes_per_token
from harness.cost.parameters import parameter_count
from harness.cost.weights import rank_weights
from harness.engines.manifest import Figures, engine_variant, read_engine
from harness.engines.sealed import MANIFEST_FILE, SCHEMA_VERSION, FileEntry, digest, key_of
from harness.engines.store import EngineStore
from harness.errors import UnreadableInput, UsageError
from harness.spec.base import parse
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Experts, Mla, Variant, WeightFormats
from harness.version import __version__

SHA = "0" * 64


@pytest.fixture
def store(tmp_path: Path) -> EngineStore:
    return EngineStore(tmp_path)


# ---- figures


def test_the_figures_of_a_small_dense_model_are_those_counted_by_hand():
    # Two layers of H 256, QH 4, KH 2, Hsz 64, H' 512: q and o 256·256, k and v 256·128, three of 256·512, two norms.
    layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256
    parameters = 2 * layer + 256 + 2 * 1000 * 256

    figures = Figures.of(VARIANT)

    assert figures.parameters == parameters == 1_692_928
    assert figures.weight_bytes == 2 * parameters
    assert figures.kv_bytes_per_token == 2 * 2 * 2 * 64 * 2  # K and V, layers, KV heads, Hsz, bytes


@pytest.mark.parametrize(
    "variant",
    [
        VARIANT,
        VARIANT.model_copy(update={"weights": WeightFormats(attention="fp8", ffn="nvfp4"), "kv_format": "nvfp4"}),
        VARIANT.model_copy(update={"weights": WeightFormats(attention="fp8_block", ffn="fp8_block")}),
        VARIANT.model_copy(update={"experts": Experts(count=8, top_k=2, inter=128, shared_inter=128), "ffn": 0}),
        VARIANT.model_copy(update={"attention": ("mla",), "mla": Mla(kv_lora_rank=64, q_lora_rank=64)}),
        VARIANT.model_copy(update={"attention": ("sliding", "full"), "window": 128, "tie_embeddings": True}),
    ],
)
def test_the_manifest_says_what_the_cost_model_says(store, variant):
    wanted = spec(**{name: getattr(variant, name) for name in Variant.model_fields})
    [written] = [json.loads((store.build(wanted).engine.path / MANIFEST_FILE).read_text())["figures"]]

    assert written == {
        "parameters": parameter_count(variant),
        "weight_bytes": rank_weights(variant, Parallelism()).total_bytes,
        "kv_bytes_per_token": kv_bytes_per_token(variant),
    }


# ---- what is in it


def test_a_manifest_reads_back_as_it_was_written(store):
    engine = store.build(with_weights(spec(), write_shards, seed=3)).engine
    manifest = read_engine(engine.path).manifest

    assert manifest == engine.manifest
    assert manifest.key == engine.key == key_of(manifest.inputs)
    assert manifest.variant == engine_variant(VARIANT)
    assert manifest.architecture == "LlamaForCausalLM"
    assert manifest.notes == ("a note",)
    assert manifest.schema_version == SCHEMA_VERSION
    assert manifest.harness == __version__
    assert manifest.weights.text == "synthetic, seed 3, quantised by NVIDIA Model Optimizer (nvidia-modelopt 1.0)"
    assert manifest.total_bytes == sum(entry.bytes for entry in manifest.files)
    assert sorted(entry.name for entry in manifest.files) == [
        "config.json",
        "extra/special_tokens_map.json",
        "model-0.safetensors",
        "model-1.safetensors",
        "model-2.safetensors",
        "tokenizer.json",
    ]


def test_an_engine_without_weights_says_that_there_are_none(store):
    weights = store.build(spec()).engine.manifest.weights

    assert weights.mode == "none"
    assert weights.seed is None
    assert "load_format: dummy" in weights.text


def test_a_name_is_no_part_of_an_engine_and_nor_is_what_computes_prefill_attention():
    plain = engine_variant(VARIANT.model_copy(update={"name": "dense-8b", "attn_format": "fp8"}))
    assert plain == engine_variant(VARIANT)
    assert (plain.name, plain.attn_format) == ("variant", "bf16")


# ---- what is refused


def rewrite(folder: Path, **changes: object) -> Path:
    """A manifest with other fields and a checksum that fits."""
    path = folder / MANIFEST_FILE
    data = {**json.loads(path.read_text()), **changes}
    del data["sha256"]
    path.chmod(0o644)
    path.write_text(json.dumps({**data, "sha256": digest(data)}))
    return path


def test_a_manifest_of_a_later_release_is_refused_by_name(store):
    folder = store.build(spec()).engine.path
    rewrite(folder, schema_version=SCHEMA_VERSION + 1, something_new=1)

    with pytest.raises(
        UnreadableInput, match=rf"written by a later release \(schema {SCHEMA_VERSION + 1}; this one reads"
    ):
        read_engine(folder)


@pytest.mark.parametrize("changes", [{"figures": {}}, {"variant": {"layers": 0}}, {"unknown": 1}, {"files": "all"}])
def test_a_manifest_that_says_something_else_is_refused(store, changes):
    folder = store.build(spec()).engine.path
    rewrite(folder, **changes)

    with pytest.raises(UnreadableInput, match=r"damaged: .*manifest\.json"):
        read_engine(folder)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../config.json", "a/../b", "./config.json", ".", "manifest.json", "a//b"]
)
def test_no_manifest_names_files_outside_its_folder(name):
    with pytest.raises(UsageError, match="no name of a file inside the folder"):
        parse(FileEntry, {"name": name, "bytes": 0, "sha256": SHA}, "manifest")
    assert FileEntry(name="a/b.json", bytes=0, sha256=SHA).name == "a/b.json"


def test_keys_depend_on_content_and_not_on_the_order_of_fields():
    assert key_of({"a": 1, "b": [1, 2]}) == key_of({"b": [1, 2], "a": 1})
    assert len({key_of({"a": 1}), key_of({"a": 2}), key_of({"b": 1}), key_of({"a": "1"}), key_of({"a": [1]})}) == 5
