"""The steps in which weights are written, and what is kept between them so that a killed build can go on."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.engines.module_formats import ModuleFormats
from harness.engines.safetensors_shards import (
    INDEX_FILE,
    Piece,
    read_metadata,
    read_shard,
    shard_name,
    write_index,
    write_shard,
)
from harness.engines.sealed import digest, remove
from harness.engines.weights_check import tensor_problems
from harness.engines.weights_init import INITIALISATION, random_pieces, random_tensor
from harness.engines.weights_layout import (
    Config,
    Stored,
    Tensor,
    cache_scales,
    embedding_tensors,
    head_tensors,
    layer_tensors,
    stored_model,
)
from harness.engines.weights_modelopt import Layer, as_bytes, exported_pieces, tensor_piece
from harness.engines.weights_packages import check_packages
from harness.errors import EnvironmentUnfit, UnreadableInput
from harness.files import read_json, write_atomic

#: Changes with the values or names written, so that an unfinished build of an earlier kind is not gone on with.
RECIPE = 2

#: Calibration: sequences of random tokens, each a forward pass.
CALIBRATION_BATCHES = 2
CALIBRATION_TOKENS = 64
#: Values of the hidden states that are kept, in units of the hidden size.
STATE_VALUES = CALIBRATION_BATCHES * CALIBRATION_TOKENS

#: Hidden states and logits may differ from 1 (root mean square) by this factor.
_RANGE = 100.0
#: A layer that adds less than this share of the hidden states' size to them does nothing.
_LEAST_CHANGE = 1e-4

#: Rows of lm_head that the check of logits uses.
_LOGITS = 4096

_SCALE = struct.Struct("<f")

_SCRATCH = ".weights"
_INPUTS_FILE = "inputs.json"


def calibration_tokens(vocab_size: int, seed: int) -> Any:
    """Return the random tokens that scales are measured on, an array of [batches, tokens]."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, CALIBRATION_TOKENS])))
    return generator.integers(0, vocab_size, (CALIBRATION_BATCHES, CALIBRATION_TOKENS))


class WeightsBuild:
    """Weights on their way into a folder.

    Step 0 is the embedding, then come the layers, lm_head, and where the KV cache has scales a file of them all.
    Beside the files, in a hidden folder, stand the hidden states after the last finished layers, and the scales of the
    cache up to there.
    """

    def __init__(self, config: Config, hf_quant_config: Mapping[str, Any] | None, folder: Path, seed: int) -> None:
        self.config, self.folder, self.seed = config, folder, seed
        self.formats = ModuleFormats.read(hf_quant_config)
        self.versions = check_packages(self.formats)
        self.stored = stored_model(config, self.formats)
        self.steps = len(self.stored)
        self._head = 1 + config["num_hidden_layers"]
        self.finished = 0
        self.hidden: list[Any] = []
        self.rms: list[float] = []
        self.cache_scales: dict[str, float] = {}
        self._scratch = folder / _SCRATCH
        self._inputs = digest([RECIPE, dict(config), hf_quant_config, seed, self.versions])

    def name_of(self, step: int) -> str:
        """What a step makes, in words."""
        others = {0: "embedding", self._head: "lm_head", self._head + 1: "scales of the KV cache"}
        return others.get(step, f"layer {step} of {self._head - 1}")

    def start(self, resume: bool) -> None:
        """Find what is finished, and remove what is not or was made of something else."""
        for leftover in [*self.folder.glob(".*.tmp"), *self._scratch.glob(".*.tmp")]:
            remove(leftover)
        inputs = self._scratch / _INPUTS_FILE
        if not (resume and inputs.is_file() and read_json(inputs) == self._inputs):
            remove(self._scratch)
            for shard in [*self.folder.glob("model-*.safetensors"), self.folder / INDEX_FILE]:
                remove(shard)
            write_atomic(inputs, json.dumps(self._inputs))
        while self.finished < self.steps and self._is_whole(self.finished):
            self.finished += 1
        while self.finished and not self._load_state(min(self.finished, self._head) - 1):
            self.finished -= 1

    def write(self, step: int) -> None:
        """Make one step: first the hidden states after it, then its file, by which it counts as finished."""
        if 0 < step < self._head:
            self._write_layer(step)
            return
        if step > self._head:
            self._write_checked(step, [self._scale_piece(one) for one in self.stored[step]])
            return
        tensors = embedding_tensors(self.config) if step == 0 else head_tensors(self.config)
        write_shard(self._shard(step), [self._random_piece(tensor) for tensor in tensors])
        if step == 0:
            self._load_state(0)

    def finish(self) -> dict[str, Any]:
        """Check the logits, write the index, and return how the weights were made."""
        logits = self._logits_rms()
        total = write_index(self.folder, (self._shard(step).name for step in range(self.steps)))
        return {
            "initialisation": INITIALISATION,
            "calibration": f"{CALIBRATION_BATCHES} sequences of {CALIBRATION_TOKENS} random tokens",
            "processor": _processor(),
            "hidden_rms": [float(f"{one:.4g}") for one in self.rms],
            "logits_rms": float(f"{logits:.4g}"),
            "weight_bytes": total,
        }

    def _write_layer(self, step: int) -> None:
        layer, wanted = step - 1, self.stored[step]
        scales = cache_scales(self.config, self.formats, layer)
        values = {one.name: random_tensor(one, self.config, self.seed) for one in layer_tensors(self.config, layer)}
        made = Layer(self.config, layer, values)
        if not scales and all(one.dtype == "BF16" for one in wanted):
            following = made.forward(self.hidden)
            pieces = [tensor_piece(one.name, values[one.name]) for one in wanted]
        else:
            values.clear()  # so that each is freed when it is quantised
            following = made.quantise(self.formats, self.hidden)
            pieces = self._without_cache_scales(exported_pieces(layer, made.export(), [*wanted, *scales]), scales)
        _check_range(layer, self.hidden, following)
        self.hidden = following
        self._save_state(step)
        self._write_checked(step, pieces)
        remove(self._state(step - 1))
        made.close()

    def _without_cache_scales(self, pieces: list[Piece], scales: list[Stored]) -> list[Piece]:
        """Keep these scales for their own file and return the other pieces."""
        kept = [piece for piece in pieces if piece.stored in scales]
        self.cache_scales |= {
            piece.stored.name: float(_SCALE.unpack(b"".join(map(bytes, piece.chunks())))[0]) for piece in kept
        }
        return [piece for piece in pieces if piece not in kept]

    def _scale_piece(self, stored: Stored) -> Piece:
        return Piece(stored, lambda: [_SCALE.pack(self.cache_scales[stored.name])])

    def _write_checked(self, step: int, pieces: list[Piece]) -> None:
        path = self._shard(step)
        unchecked = path.with_name(f".{path.name}.tmp")
        write_shard(unchecked, pieces)
        problems = tensor_problems(read_shard(unchecked))
        if problems:
            remove(unchecked)
            raise EnvironmentUnfit(f"{self.name_of(step)} was quantised badly: " + "; ".join(problems[:5]))
        unchecked.replace(path)

    def _random_piece(self, tensor: Tensor) -> Piece:
        def chunks() -> Iterator[Any]:
            return map(as_bytes, random_pieces(tensor, self.config, self.seed))

        return Piece(Stored(tensor.name, "BF16", tensor.shape), chunks)

    def _embedded(self) -> list[Any]:
        """Embeddings of the calibration tokens, read from the file."""
        tokens = calibration_tokens(self.config["vocab_size"], self.seed)
        return [self._rows(0, "model.embed_tokens.weight", batch.tolist())[None] for batch in tokens]

    def _rows(self, step: int, name: str, rows: list[int]) -> Any:
        found = read_shard(self._shard(step))[name]
        size = 2 * self.config["hidden_size"]
        return _bf16(b"".join(b"".join(found.chunks(row * size, size)) for row in rows), len(rows))

    def _logits_rms(self) -> float:
        """Size of the logits of the calibration tokens, of some rows of lm_head."""
        import torch

        tied = self.config["tie_word_embeddings"]
        rows = range(min(_LOGITS, self.config["vocab_size"]))
        name = "model.embed_tokens.weight" if tied else "lm_head.weight"
        head = self._rows(0 if tied else self._head, name, list(rows)).float()
        hidden = torch.cat(self.hidden).float()
        normed = hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        rms = _rms(normed @ head.T)
        _check("logits", rms)
        return rms

    def _is_whole(self, step: int) -> bool:
        try:
            return {one.stored for one in read_shard(self._shard(step)).values()} == set(self.stored[step])
        except UnreadableInput:
            return False

    def _save_state(self, step: int) -> None:
        """Keep the hidden states after a layer; those of the embedding are read from its file."""
        import torch

        self.rms = [*self.rms[:step], _rms(torch.cat(self.hidden))]
        batches = [tensor_piece(str(at), one) for at, one in enumerate(self.hidden)]
        kept = {"rms": json.dumps(self.rms), "cache_scales": json.dumps(self.cache_scales)}
        write_shard(self._state(step), batches, kept)

    def _load_state(self, step: int) -> bool:
        """Take up the hidden states after a finished step; false where they were not kept."""
        import torch

        if step == 0:
            self.hidden = self._embedded()
            self.rms = [_rms(torch.cat(self.hidden))]
            self.cache_scales = {}
            return True
        path = self._state(step)
        try:
            batches = read_shard(path)
            kept = {name: json.loads(text) for name, text in read_metadata(path).items() if name != "format"}
            self.rms, self.cache_scales = kept["rms"], kept["cache_scales"]
        except (UnreadableInput, KeyError, ValueError):
            return False
        raw = [b"".join(batches[str(at)].chunks()) for at in range(CALIBRATION_BATCHES)]
        self.hidden = [_bf16(one, CALIBRATION_TOKENS)[None] for one in raw]
        return True

    def _shard(self, step: int) -> Path:
        return self.folder / shard_name(step + 1, self.steps)

    def _state(self, step: int) -> Path:
        return self._scratch / f"hidden-{step:05d}.safetensors"


def _check_range(layer: int, before: list[Any], after: list[Any]) -> None:
    """Raise where a layer's hidden states vanish, explode, are no numbers, or are those it was given."""
    import torch

    given, made = torch.cat(before).float(), torch.cat(after).float()
    _check(f"hidden states after layer {layer}", _rms(made))
    change = _rms(made - given) / _rms(made)
    if not change > _LEAST_CHANGE:
        raise EnvironmentUnfit(f"layer {layer} changes hidden states by {change:.2g} of their size only")


def _check(what: str, rms: float) -> None:
    if not 1 / _RANGE < rms < _RANGE:
        raise EnvironmentUnfit(f"random weights are of no use: {what} have a root mean square of {rms:.3g}")


def _rms(values: Any) -> float:
    return math.sqrt(float(values.float().square().mean()))


def _bf16(raw: bytes, rows: int) -> Any:
    import torch

    return torch.frombuffer(bytearray(raw), dtype=torch.bfloat16).view(rows, -1)


def _processor() -> str:
    import torch

    return str(torch.backends.cpu.get_cpu_capability())
