"""tf_pfor: TensorFlow code written for one example runs on a whole batch at once."""

import importlib as _importlib
import typing as _typing

from tf_pfor.frontends import command_line as _command_line
from tf_pfor.frontends import quiet as _quiet

if _quiet.is_command():
    _command_line.check()
try:
    with _quiet.start_up():
        import tensorflow as _tensorflow  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ModuleNotFoundError as _why:
    if _why.name != "tensorflow":
        raise
    raise ImportError(
        "tf_pfor needs TensorFlow 2.16 to 2.21, and none is installed. Install one beside it: "
        'pip install "tensorflow-cpu>=2.16,<2.22" (or "tensorflow[and-cuda]>=2.16,<2.22").'
    ) from _why

from tf_pfor import converters as converters
from tf_pfor import data as data
from tf_pfor import registry as registry
from tf_pfor import saved_model as saved_model
from tf_pfor import shapes as shapes
from tf_pfor._tf import _functions as _functions
from tf_pfor.api.for_loops import for_loop
from tf_pfor.api.functions.carries import scan
from tf_pfor.api.functions.custom_vmap import custom_vmap
from tf_pfor.api.functions.exchanges import all_to_all, pargmax, pargmin, psum_scatter
from tf_pfor.api.functions.scans import associative_scan
from tf_pfor.api.functions.vectorize import vectorize
from tf_pfor.api.maps import pfor, vectorized_map
from tf_pfor.api.options import set_settings, settings
from tf_pfor.api.vmap import vmap
from tf_pfor.core.collectives import (
    all_gather,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    psum,
)
from tf_pfor.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    CannotVectorize,
    ConversionError,
    FallbackWarning,
    NotVectorizableError,
    PforError,
    RegistrationError,
    UnsupportedStateError,
    VerificationError,
)
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.settings import Defaults
from tf_pfor.derivatives.curvature import (
    fisher_vector_product,
    gauss_newton_vector_product,
    ntk,
)
from tf_pfor.derivatives.functional import hessian, hessian_diag, hvp, jacfwd, jacrev, laplacian
from tf_pfor.derivatives.gradients import grad, value_and_grad
from tf_pfor.derivatives.indexed_slices import BatchedIndexedSlices
from tf_pfor.derivatives.jacobians import (
    batch_jacobian,
    jacobian,
    tape_batch_jacobian,
    tape_jacobian,
)
from tf_pfor.derivatives.per_example import (
    clipped_gradient_sum,
    gradient_norms,
    per_example_gradients,
)
from tf_pfor.derivatives.products import jvp, linearize, vjp
from tf_pfor.derivatives.solves import conjugate_gradient
from tf_pfor.frontends.columns import column_function
from tf_pfor.frontends.coverage import Coverage, coverage
from tf_pfor.frontends.drop_in import disable_drop_in, drop_in, enable_drop_in
from tf_pfor.frontends.loops import LoopRecord, LoopReport, OptimizedFunction, optimize
from tf_pfor.recording.batched import batched, cell
from tf_pfor.recording.lazy import LazyReport, lazy, lazy_report, mark_step
from tf_pfor.reports.check import CheckReport, check
from tf_pfor.reports.explain import explain
from tf_pfor.reports.report import Report
from tf_pfor.reports.source_lines import SourceLine
from tf_pfor.tracing.caching import CacheInfo, cache_info, clear_cache
from tf_pfor.version import __version__

if _typing.TYPE_CHECKING:
    from tf_pfor import beam as beam
    from tf_pfor import keras as keras


def __getattr__(name: str) -> _typing.Any:
    """Modules that import Keras or Apache Beam are imported when they are first asked for."""
    if name in ("beam", "keras"):
        return _importlib.import_module(f"tf_pfor.{name}")
    raise AttributeError(f"module 'tf_pfor' has no attribute {name!r}")


__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BatchedIndexedSlices",
    "CacheInfo",
    "CannotVectorize",
    "CheckReport",
    "ConversionError",
    "Coverage",
    "Defaults",
    "FallbackWarning",
    "LazyReport",
    "LoopRecord",
    "LoopReport",
    "NotVectorizableError",
    "OptimizedFunction",
    "PforError",
    "RegisterPFor",
    "RegistrationError",
    "Report",
    "SourceLine",
    "UnsupportedStateError",
    "VerificationError",
    "__version__",
    "all_gather",
    "all_to_all",
    "associative_scan",
    "axis_index",
    "axis_size",
    "batch_jacobian",
    "batched",
    "cache_info",
    "cell",
    "check",
    "clear_cache",
    "clipped_gradient_sum",
    "column_function",
    "conjugate_gradient",
    "coverage",
    "custom_vmap",
    "disable_drop_in",
    "drop_in",
    "enable_drop_in",
    "explain",
    "fisher_vector_product",
    "for_loop",
    "gauss_newton_vector_product",
    "grad",
    "gradient_norms",
    "hessian",
    "hessian_diag",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "laplacian",
    "lazy",
    "lazy_report",
    "linearize",
    "mark_step",
    "ntk",
    "optimize",
    "pargmax",
    "pargmin",
    "per_example_gradients",
    "pfor",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "psum",
    "psum_scatter",
    "saved_model",
    "scan",
    "set_settings",
    "settings",
    "tape_batch_jacobian",
    "tape_jacobian",
    "value_and_grad",
    "vectorize",
    "vectorized_map",
    "vjp",
    "vmap",
]

for _module in (globals(), *map(vars, (data, registry, saved_model, shapes))):
    _functions.leave_to_python(_module)
