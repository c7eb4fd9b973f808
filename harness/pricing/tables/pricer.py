"""The tables pricer: one system's measured kernels behind the common pricing interface."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from harness.cost.collectives import COLLECTIVES, Collective, ExpertCombine, ExpertDispatch
from harness.cost.ops import BatchedGemm, DecodeAttention, Gemm, Kernel, Moe, PrefillAttention
from harness.errors import UsageError
from harness.pricing.base import KernelPrice
from harness.pricing.roofline import RooflinePricer
from harness.pricing.shapes import impossible
from harness.pricing.tables.assumptions import load_assumptions
from harness.pricing.tables.availability import PACKAGE, require_tables, tabled_systems, version
from harness.pricing.tables.bounds import Bounds
from harness.pricing.tables.collectives import CollectivePricer
from harness.pricing.tables.decode_attention import DecodeAttentionPricer, DecodeRules
from harness.pricing.tables.engine import Engine
from harness.pricing.tables.exchange_rows import ExchangeStore, exchange_assumptions
from harness.pricing.tables.expert_exchange import ExpertExchangePricer
from harness.pricing.tables.gemm import GemmPricer
from harness.pricing.tables.gemm_table import GemmTable
from harness.pricing.tables.mla import MlaPricer
from harness.pricing.tables.moe import MoePricer, MoeTable
from harness.pricing.tables.prefill_attention import PrefillAttentionPricer, PrefillRules
from harness.pricing.tables.slices import AttentionTable
from harness.pricing.tables.store import TableStore
from harness.pricing.tables.wide_ep import WideEpPricer

if TYPE_CHECKING:
    from harness.hardware import System

_NO_TABLE = KernelPrice.refuse("unsupported", "no table; priced by the roofline")


class TablesPricer:
    """Prices kernels of one system from published measurements of TensorRT-LLM.

    `allow_extrapolation` answers outside the rows where an error band was measured. `as_is` takes the NVFP4 GEMM rows
    as they are. `l2_bytes` replaces the L2 size of the dated data file. Tables are read when first needed.

    Raises MissingExtra without the `tables` extra, UsageError for a system that has no tables. Pricing raises
    UnreadableInput or EnvironmentUnfit where the installed package is damaged.
    """

    name = "tables"

    def __init__(
        self,
        system_key: str,
        *,
        allow_extrapolation: bool = False,
        as_is: bool = False,
        l2_bytes: int | None = None,
    ) -> None:
        require_tables()
        systems = tabled_systems()
        if system_key not in systems:
            raise UsageError(
                f"no measured TensorRT-LLM kernels of {system_key}; there are tables of {', '.join(systems)}"
            )
        self.system_key = system_key
        self.allow_extrapolation = allow_extrapolation
        self.as_is = as_is
        self._assumed = load_assumptions(system_key)
        self.l2_bytes = self._assumed.l2_bytes if l2_bytes is None else l2_bytes
        self._l2_assumed = l2_bytes is None and self._assumed.l2_assumed
        self._store = TableStore(system_key, self._assumed.release)
        self._engine = Engine(system_key, self._assumed.release)

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        """Return one price per kernel, in order; equal kernels are priced once.

        Elementwise kernels have no table and are `unsupported` here. Never raises for a kernel, whatever its sizes.
        """
        prices: dict[Kernel, KernelPrice] = {}
        gemms: list[Gemm] = []
        experts: list[Moe] = []
        for kernel in dict.fromkeys(kernels):
            problem = impossible(kernel)
            if problem:
                prices[kernel] = KernelPrice.refuse("refused", problem)
            elif isinstance(kernel, Gemm):
                gemms.append(kernel)
            elif isinstance(kernel, Moe):
                experts.append(kernel)
            else:
                prices[kernel] = self._price_one(kernel)
        if gemms:
            prices.update((one, self._bounds.applied(one, price)) for one, price in self._gemm.price_all(gemms).items())
        if experts:
            prices.update(self._moe.price_all(experts).items())
        return [prices[kernel] for kernel in kernels]

    def _price_one(self, kernel: Kernel) -> KernelPrice:
        if isinstance(kernel, COLLECTIVES):
            return self._price_exchange(kernel)
        if isinstance(kernel, DecodeAttention):
            price = self._mla.decode(kernel) if kernel.latent else self._decode.price(kernel)
        elif isinstance(kernel, PrefillAttention):
            is_mla = kernel.value_dim not in {0, kernel.head_dim}
            price = self._mla.prefill(kernel) if is_mla else self._prefill.price(kernel)
        elif isinstance(kernel, BatchedGemm):
            price = self._mla.projection(kernel)
        else:
            return _NO_TABLE
        return self._bounds.applied(kernel, price)

    def _price_exchange(self, kernel: Collective) -> KernelPrice:
        if isinstance(kernel, ExpertDispatch | ExpertCombine):
            return self._experts.price(kernel)
        return self._collective.price(kernel)

    def versions(self) -> dict[str, str]:
        """The package, the TensorRT-LLM release that was timed, the GPU as its rows name it, and the L2 size."""
        return {
            PACKAGE: version(),
            "tables_trtllm": self._store.release,
            "tables_device": self._store.device_name,
            "tables_l2_bytes": f"{self.l2_bytes} (assumed)" if self._l2_assumed else str(self.l2_bytes),
        }

    @cached_property
    def _exchanges(self) -> ExchangeStore:
        return ExchangeStore(self.system_key, self._assumed.release)

    @cached_property
    def _system(self) -> System:
        from harness.hardware import load_system

        return load_system(self.system_key)

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(self._system, self.l2_bytes)

    @cached_property
    def _collective(self) -> CollectivePricer:
        return CollectivePricer(
            self._exchanges,
            self._system,
            self._engine,
            exchange_assumptions(),
            allow_extrapolation=self.allow_extrapolation,
        )

    @cached_property
    def _experts(self) -> ExpertExchangePricer:
        return ExpertExchangePricer(
            self._exchanges,
            self._system,
            exchange_assumptions(),
            allow_extrapolation=self.allow_extrapolation,
        )

    @cached_property
    def _decode(self) -> DecodeAttentionPricer:
        assumed = self._assumed
        rules = DecodeRules(
            l2_bytes=self.l2_bytes,
            length_bands=assumed.decode_length,
            batch_bands=assumed.decode_batch,
            allow_extrapolation=self.allow_extrapolation,
            suspect=assumed.suspect_decode,
        )
        return DecodeAttentionPricer(AttentionTable(self._store.decode_attention()), rules)

    @cached_property
    def _prefill(self) -> PrefillAttentionPricer:
        rules = PrefillRules(
            self._assumed.prefill_length,
            self._assumed.prefill_batch,
            self.allow_extrapolation,
            RooflinePricer(self._system).without_launch,
        )
        return PrefillAttentionPricer(AttentionTable(self._store.prefill_attention()), rules)

    @cached_property
    def _mla(self) -> MlaPricer:
        return MlaPricer(self._store, self.l2_bytes, RooflinePricer(self._system).without_launch)

    @cached_property
    def _gemm(self) -> GemmPricer:
        return GemmPricer(
            GemmTable(self._store.gemm()),
            self._engine,
            columns=self._assumed.gemm_columns,
            bands=self._assumed.gemm_tokens,
            first_row=self._assumed.gemm_first_row,
            allow_extrapolation=self.allow_extrapolation,
            as_is=self.as_is,
        )

    @cached_property
    def _moe(self) -> MoePricer:
        wide_ep = WideEpPricer(self._exchanges)
        return MoePricer(MoeTable(*self._store.moe()), self._engine, wide_ep, self._bounds)
