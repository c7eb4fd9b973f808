"""Names of a checkpoint's modules, and the patterns by which checkpoints mean them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: What stands before `layers.0.…`, in models of text and in those of more than text.
_ROOTS = ("model.language_model.", "language_model.model.", "model.", "language_model.", "")

#: Modules that no format of a variant is about: routers, norms, the latent's up projection, other towers, MTP.
_ELSEWHERE = re.compile(
    r"(?:^|[.*])(?:gate|router|indexers?\w*|kv_b_proj|k_b_proj|eh_proj|embed\w*|rotary\w*|\w*norm\w*|mtp\w*|shared_expert_gate"
    r"|\w*bias|vision\w*|visual\w*|audio\w*)(?:[.*]|$)"
)
_LAYER = re.compile(r"(?:^|[.*])layers\\?\.(\d+|\*)")
_GLOB = re.compile(r"[*?\[]")

#: One projection under every name that it may have.
Slot = tuple[str, ...]


@dataclass(frozen=True)
class Modules:
    """The projections of a model, by the groups that a variant has formats for."""

    sparse: Sequence[bool]
    """Which layers have experts."""
    gated: bool
    mla: Mapping[str, Any] | None = None
    shared: bool = False

    def groups(self) -> dict[str, list[Slot]]:
        """Group → its projections over all layers; only groups that the model has."""
        found: dict[str, list[Slot]] = {"attention": [], "ffn": [], "experts": []}
        for layer, sparse in enumerate(self.sparse):
            found["attention"] += _in_layer(layer, self._attention())
            if not sparse:
                found["ffn"] += _in_layer(layer, self._ffn("mlp"))
                continue
            experts = self._ffn("mlp.experts.0", "block_sparse_moe.experts.0", "mlp.experts")
            found["experts"] += _in_layer(layer, experts)
            if self.shared:
                found["ffn"] += _in_layer(layer, self._ffn("mlp.shared_experts", "mlp.shared_expert"))
        return {group: slots for group, slots in found.items() if slots}

    def concerns(self, pattern: str) -> bool:
        """Whether a pattern is about projections of these layers, and not about what no format of a variant is for."""
        layer = _LAYER.search(pattern)
        if not layer or _ELSEWHERE.search(pattern):
            return False
        return layer[1] == "*" or int(layer[1]) < len(self.sparse)

    def _attention(self) -> Iterator[Slot]:
        if not self.mla:
            yield from ((f"self_attn.{one}_proj", "self_attn.qkv_proj") for one in "qkv")
        else:
            queries = ("q_a_proj", "q_b_proj") if self.mla.get("q_lora_rank") else ("q_proj",)
            yield from ((f"self_attn.{one}",) for one in (*queries, "kv_a_proj_with_mqa"))
        yield ("self_attn.o_proj", "self_attn.dense")

    def _ffn(self, *places: str) -> Iterator[Slot]:
        gated: list[Slot] = [
            ("gate_proj", "gate_up_proj", "w1"),
            ("up_proj", "gate_up_proj", "w3"),
            ("down_proj", "w2"),
        ]
        plain: list[Slot] = [("up_proj", "c_fc", "fc1"), ("down_proj", "c_proj", "fc2")]
        for spellings in gated if self.gated else plain:
            yield tuple(f"{place}.{name}" for place in places for name in spellings)


def _in_layer(layer: int, slots: Iterable[Slot]) -> list[Slot]:
    return [tuple(f"model.layers.{layer}.{name}" for name in slot) for slot in slots]


class NamePatterns:
    """Modules as checkpoints mean them: by name or part of it, with wildcards, or `re:` and a regular expression.

    A pattern means the module itself and all that it holds. Raises re.error for a bad expression.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        expressions: list[str] = []
        globs: list[str] = []
        exact: list[str] = []
        for one in patterns:
            kind = expressions if one.startswith("re:") else globs if _GLOB.search(one) else exact
            kind.append(one)
        self._exact = frozenset(exact)
        self._compiled = {one: re.compile(one.removeprefix("re:")) for one in expressions}
        self._compiled |= {
            one: re.compile(f"{fnmatch.translate(one)}|{fnmatch.translate(one + '.*')}") for one in globs
        }
        self._any_glob = re.compile("|".join(self._compiled[one].pattern for one in globs)) if globs else None
        self._expressions = [self._compiled[one] for one in expressions]

    def matches(self, module: str) -> bool:
        """Whether a module is meant, for example `model.layers.0.mlp.up_proj`."""
        if self._exact and not self._exact.isdisjoint(_parts(module)):
            return True
        names = _rooted(module) if self._compiled else []
        return any(
            (self._any_glob and self._any_glob.match(name)) or any(one.match(name) for one in self._expressions)
            for name in names
        )

    def without_module(self, modules: Iterable[str]) -> list[str]:
        """The patterns that mean none of these modules."""
        names = [name for module in modules for name in _rooted(module)]
        parts = {part for module in modules for part in _parts(module)} if self._exact else set()
        unmatched = [one for one, compiled in self._compiled.items() if not any(map(compiled.match, names))]
        return sorted(self._exact - parts) + unmatched


def holders_of(module: str) -> Iterator[str]:
    """The names of a module and of those that hold it, innermost first, under every root."""
    for name in _rooted(module):
        words = name.split(".")
        yield from (".".join(words[:length]) for length in range(len(words), 0, -1))


def _rooted(module: str) -> list[str]:
    return [root + module.removeprefix("model.") for root in _ROOTS]


def _parts(module: str) -> set[str]:
    """Every run of whole names in a dotted name, `mlp.up_proj` of `layers.0.mlp.up_proj` say, under every root."""
    found = set()
    for name in _rooted(module)[:2]:
        words = name.split(".")
        found |= {".".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)}
    return found
