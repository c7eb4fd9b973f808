"""One decoder layer in torch: calibrated and quantised by NVIDIA Model Optimizer, and exported by it.

A layer is a model of transformers with this layer only and no norm behind it, given hidden states instead of tokens.
Model Optimizer handles it as it does the whole model, so that names, scales and codes are those of the whole model's
`export_hf_checkpoint` (github.com/NVIDIA/Model-Optimizer 0.47.0).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.engines.module_formats import ModuleFormats
from harness.engines.safetensors_shards import Piece
from harness.engines.weights_layout import Config, Stored, format_of, has_experts, layer_tensors
from harness.engines.weights_packages import quiet, release_of
from harness.engines.weights_slices import packed_in_slices
from harness.errors import EnvironmentUnfit
from harness.spec.variant import WeightFormat

#: How Model Optimizer is told a format: `num_bits` (exponent, mantissa) and block sizes, from its FP8_DEFAULT_CFG,
#: FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG and NVFP4_DEFAULT_CFG (modelopt/torch/quantization/config.py, 0.47.0).
_QUANTIZERS: dict[str, dict[str, Any]] = {
    "fp8": {"num_bits": (4, 3), "axis": None},
    "fp8_block": {"num_bits": (4, 3), "axis": None, "block_sizes": {-1: 128, -2: 128}},
    "nvfp4": {"num_bits": (2, 1), "block_sizes": {-1: 16, "type": "dynamic", "scale_bits": (4, 3)}},
}

#: Tokens that the layer's own embedding has; it is never used but by a pass that looks which modules share an input.
_VOCAB = 8

#: Since this release Model Optimizer takes a list of settings instead of a dictionary.
_LISTS_SINCE = (0, 44)


def layer_config(config: Config, layer: int) -> dict[str, Any]:
    """The configuration of a model that is one layer of another, with a vocabulary of a few tokens."""
    alone = {name: value for name, value in config.items() if name != "quantization_config"}
    alone |= {"num_hidden_layers": 1, "vocab_size": _VOCAB, "tie_word_embeddings": False}
    if "layer_types" in config:
        alone["layer_types"] = [config["layer_types"][layer]]
        alone["max_window_layers"] = 1
    if "mlp_only_layers" in config:
        alone["mlp_only_layers"] = [] if has_experts(config, layer) else [0]
    if "first_k_dense_replace" in config:
        alone["first_k_dense_replace"] = 0 if has_experts(config, layer) else 1
    return alone


class Layer:
    """One layer of a model, with the values it is given; `close` lets go of them."""

    def __init__(self, config: Config, layer: int, values: Mapping[str, Any]) -> None:
        """`values` are the layer's parameters by name, torch tensors in bf16, which are used as they are."""
        import torch

        self._config, self._layer = config, layer
        hidden = config["hidden_size"]
        state = {_alone(name, layer): tensor for name, tensor in values.items()}
        state["model.norm.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            state[name] = torch.zeros(_VOCAB, hidden, dtype=torch.bfloat16)
        with quiet():
            import transformers

            alone = transformers.AutoConfig.for_model(**layer_config(config, layer))
            model_class = getattr(transformers, config["architectures"][0])
            self._model = model_class.from_pretrained(None, config=alone, state_dict=state, dtype=torch.bfloat16).eval()
        self._model.model.norm = torch.nn.Identity()

    def forward(self, hidden: list[Any]) -> list[Any]:
        """Return the hidden states that follow these, each [1, tokens, hidden] in bf16."""
        return self._run(self._model, hidden)

    def quantise(self, formats: ModuleFormats, hidden: list[Any]) -> list[Any]:
        """Calibrate with these hidden states and quantise; return the hidden states that follow, in bf16."""
        following: list[Any] = []
        settings = self._settings(formats)
        with quiet():
            import modelopt.torch.quantization as mtq

            mtq.quantize(self._model, settings, lambda model: following.extend(self._run(model, hidden)))
        return following

    def export(self) -> dict[str, Any]:
        """Return the tensors of the quantised layer as Model Optimizer exports them, by their names in this model."""
        exported: dict[str, Any] = {}

        def save_pretrained(folder: str | Path, *, state_dict: dict[str, Any], **_: object) -> None:
            # The last step of an export is to have the model saved. Here it is told what, and nothing of it is written.
            exported.update(state_dict)
            self._model.config.save_pretrained(folder)  # read and added to afterwards

        self._model.save_pretrained = save_pretrained
        with quiet(), packed_in_slices(), tempfile.TemporaryDirectory() as folder:
            from modelopt.torch.export import export_hf_checkpoint

            export_hf_checkpoint(self._model, export_dir=folder)
        del self._model.save_pretrained
        return {name: exported.pop(name) for name in list(exported) if name.startswith(_alone("", self._layer))}

    def close(self) -> None:
        """Give back the memory of the layer at once; reference cycles keep the model until garbage is collected."""
        import torch

        for value in self._model.state_dict(keep_vars=True).values():
            value.data = torch.empty(0)
        del self._model

    def _run(self, model: Any, hidden: list[Any]) -> list[Any]:
        import torch

        with torch.no_grad():
            return [model.model(inputs_embeds=one, use_cache=False).last_hidden_state for one in hidden]

    def _settings(self, formats: ModuleFormats) -> dict[str, Any]:
        """`quant_cfg` of Model Optimizer: nothing but the quantisers named, in the shape that its release takes."""
        wanted: dict[str, dict[str, Any]] = {}
        for tensor in layer_tensors(self._config, self._layer):
            weights = format_of(tensor, formats)
            if weights != "bf16":
                module = _alone(tensor.module, self._layer)
                wanted |= dict.fromkeys(_quantisers_of(module, weights), _QUANTIZERS[weights])
        if formats.kv != "bf16":
            wanted["*[kv]_bmm_quantizer"] = _QUANTIZERS[formats.kv]
        if release_of(metadata.version("nvidia-modelopt")) < _LISTS_SINCE:
            return {"algorithm": "max", "quant_cfg": {"default": {"enable": False}} | _enabled(wanted)}
        entries = [{"quantizer_name": name, "cfg": cfg, "enable": True} for name, cfg in wanted.items()]
        return {"algorithm": "max", "quant_cfg": [{"quantizer_name": "*", "enable": False}, *entries]}


def _quantisers_of(module: str, weights: WeightFormat) -> tuple[str, ...]:
    """Names of a module's quantisers; inputs of FP8 blocks are quantised when they are used.

    Experts are named together, since transformers 5 has them in one module, and under one name in every architecture.
    """
    stem = "*.experts.*" if ".experts." in module else f"{module}."
    names = (f"{stem}weight_quantizer*", f"{stem}input_quantizer*")
    return names[:1] if weights == "fp8_block" else names


def _enabled(wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {**cfg, "enable": True} for name, cfg in wanted.items()}


def exported_pieces(layer: int, exported: Mapping[str, Any], wanted: list[Stored]) -> list[Piece]:
    """Return what was exported of a layer under the names that it has in the whole model.

    Raises EnvironmentUnfit where Model Optimizer wrote other tensors than those wanted.
    """
    known = {want.name: want for want in wanted}
    pieces, wrong = [], []
    for name, value in exported.items():
        whole = f"model.layers.{layer}.{name.removeprefix('model.layers.0.')}"
        want = known.pop(whole, None) or known.pop(f"{whole}_inv", None)
        if want is not None:
            pieces.append(_piece_as(want, value))
            if pieces[-1].stored != want:
                wrong.append(f"{want.name} is {pieces[-1].stored[1:]}")
        elif not whole.endswith(("k_scale", "v_scale")):  # MLA: see `stored_layer`
            wrong.append(f"{whole} was not expected")
    wrong += [f"{name} is missing" for name in known]
    if wrong:
        made_by = f"{metadata.version('nvidia-modelopt')} with transformers {metadata.version('transformers')}"
        raise EnvironmentUnfit(
            f"NVIDIA Model Optimizer {made_by} exports layer {layer} in a way that this harness does not know; 0.47.0 "
            f"with transformers 4.57.3 is known. First differences: {'; '.join(wrong[:3])}"
        )
    return pieces


def tensor_piece(name: str, value: Any) -> Piece:
    """A torch tensor to be written under a name."""
    return Piece(Stored(name, _dtype(value), tuple(value.shape)), lambda: [as_bytes(value)])


def _piece_as(want: Stored, value: Any) -> Piece:
    """The tensor in the shape wanted; scales of blocks are exported with dimensions of size 1, or without any.

    transformers 5 has routers in float32, made from bf16.
    """
    import torch

    if want.dtype == "BF16":
        value = value.to(torch.bfloat16)
    fits = [size for size in value.shape if size != 1] == [size for size in want.shape if size != 1]
    return tensor_piece(want.name, value.reshape(want.shape) if fits else value)


def as_bytes(value: Any) -> Any:
    """The bytes of a torch tensor, not copied where it has no gaps."""
    import torch

    return value.detach().reshape(-1).view(torch.uint8).numpy()


def _dtype(value: Any) -> str:
    """The name that safetensors has for a tensor's dtype."""
    name = str(value.dtype).removeprefix("torch.")
    return {"float32": "F32", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "uint8": "U8"}.get(name, name)


def _alone(name: str, layer: int) -> str:
    """The name in a model of one layer."""
    return f"model.layers.0.{name.removeprefix(f'model.layers.{layer}.')}"
