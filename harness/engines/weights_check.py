"""A self-check of weights that were written: is every scale a scale, and every tensor there and filled.

What it looks for has stopped loaders, or has passed them and ruined what came after: scales that are zero, negative, no
number or left-over memory, partners of a fused matrix with different scales, tensors that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.engines.module_formats import ModuleFormats
from harness.engines.safetensors_shards import Slice, read_model
from harness.engines.weights_layout import fused_modules, stored_model
from harness.errors import UnreadableInput, UsageError
from harness.files import read_json

#: Bits of FP8 E4M3 without its sign: not-a-number, and the largest value, 448.
_FP8_NAN, _FP8_LARGEST = 0x7F, 0x7E
#: Exponent bits of bf16, all set in infinity and not-a-number.
_BF16_EXPONENT = 0x7F80

#: Scales of which partners of a fused matrix have one.
_SHARED = ("weight_scale", "weight_scale_2", "input_scale")


def verify_weights(folder: Path) -> list[str]:
    """Return what is wrong with the weights of an engine, one sentence each; nothing where all is well.

    Reads every byte of them. Checked are index and files, names, dtypes and shapes against config.json and
    hf_quant_config.json, and every value as `tensor_problems` does. Raises UsageError where these two cannot be read.
    """
    config = _read(folder / "config.json")
    quant = folder / "hf_quant_config.json"
    formats = ModuleFormats.read(_read(quant) if quant.exists() else None)
    try:
        found = read_model(folder)
    except (UnreadableInput, UsageError) as error:
        return [str(error)]
    wanted = {one.name: one for step in stored_model(config, formats) for one in step}
    problems = [f"{name}: is missing" for name in wanted.keys() - found.keys()]
    for name, one in found.items():
        if name not in wanted:
            problems.append(f"{name}: is no tensor of this model")
        elif one.stored != wanted[name]:
            want, got = wanted[name], one.stored
            problems.append(
                f"{name}: is {got.dtype} {list(got.shape)} instead of {want.dtype} {list(want.shape)}, which the "
                "configuration says"
            )
    return sorted(problems) or tensor_problems(found)


def tensor_problems(found: Mapping[str, Slice]) -> list[str]:
    """Return what is wrong with tensors of a model (name → tensor), one sentence each.

    Scales are finite and positive, and equal for what TensorRT-LLM reads as one matrix; weights are finite and not all
    the same; the largest code of a weight, or of its block scales, is the largest that there is, which only scales made
    from the weight bring about.
    """
    problems = [f"{name}: {problem}" for name, one in found.items() for problem in _value_problems(name, one)]
    modules = [name.rpartition(".")[0] for name in found if name.endswith(".weight")]
    groups = fused_modules(modules)
    for group in groups:
        problems += _group_problems(group, found)
    together = {module for group in groups for module in group}
    for group in [*groups, *((module,) for module in modules if module not in together)]:
        problems += _block_scale_problems(group, found)
    return sorted(problems)


def _read(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path}: is not an object")
    return data


def _value_problems(name: str, one: Slice) -> Iterator[str]:
    if one.stored.dtype == "F32":
        yield from _scale_problems(one)
    elif name.endswith("scale"):
        lowest, highest = _range(one, lambda values: values)
        if lowest == 0 or highest > _FP8_LARGEST:
            yield "has a block scale that is zero, negative or no number"
    elif one.stored.dtype == "F8_E4M3":
        yield from _fp8_problems(one)
    elif one.stored.dtype == "BF16" and _range(one, _bf16_exponent)[1] == _BF16_EXPONENT:
        yield "has a value that is infinite or no number"
    if one.stored.shape[1:] and not name.endswith(("scale", "_inv")) and _is_constant(one):
        yield "has one value throughout, as if nobody had written it"


def _scale_problems(one: Slice) -> Iterator[str]:
    import numpy as np

    values = np.frombuffer(b"".join(one.chunks()), dtype="<f4")
    if not (np.isfinite(values) & (values > 0)).all():
        yield f"is {values[~(np.isfinite(values) & (values > 0))][0]:g}, and a scale is finite and positive"


def _fp8_problems(one: Slice) -> Iterator[str]:
    largest = _range(one, lambda values: values & 0x7F)[1]
    if largest == _FP8_NAN:
        yield "has a value that is no number"
    elif largest < _FP8_LARGEST:
        yield "has no value of 448, so that its scale was not made from it"


def _group_problems(group: tuple[str, ...], found: Mapping[str, Slice]) -> Iterator[str]:
    """Scales that differ between partners; block scales of one partner are its own."""
    for name in _SHARED:
        scales = [found.get(f"{module}.{name}") for module in group]
        held = {b"".join(one.chunks()) for one in scales if one is not None and not one.stored.shape}
        if len(held) > 1 or 0 < scales.count(None) < len(scales):
            yield f"{group[0]}.{name}: differs between {', '.join(one.rpartition('.')[2] for one in group)}"


def _block_scale_problems(group: Iterable[str], found: Mapping[str, Slice]) -> Iterator[str]:
    """NVFP4: the largest block scale that shares a global one is 448."""
    scales = [found[f"{module}.weight_scale"] for module in group if f"{module}.weight_scale_2" in found]
    if scales and max(_range(one, lambda values: values)[1] for one in scales) < _FP8_LARGEST:
        yield f"{scales[0].stored.name}: has no block scale of 448, so that weight_scale_2 was not made from the weight"


def _bf16_exponent(values: Any) -> Any:
    return values.view("<u2") & _BF16_EXPONENT


def _range(one: Slice, bits: Any) -> tuple[int, int]:
    """Lowest and highest of what `bits` makes of the bytes."""
    import numpy as np

    lowest, highest = 1 << 16, 0
    for chunk in one.chunks():
        values = bits(np.frombuffer(chunk, dtype=np.uint8))
        lowest, highest = min(lowest, int(values.min())), max(highest, int(values.max()))
    return lowest, highest


def _is_constant(one: Slice) -> bool:
    """Whether all rows are alike in every byte."""
    import numpy as np

    size = one.stored.bytes // one.stored.shape[0]
    first = np.frombuffer(b"".join(one.chunks(0, size)), dtype=np.uint8)
    if len(np.unique(first)) > 2:  # one value of two bytes has two
        return False
    rows = (np.frombuffer(b"".join(one.chunks(row * size, size)), dtype=np.uint8) for row in range(one.stored.shape[0]))
    return all((row == first).all() for row in rows)
