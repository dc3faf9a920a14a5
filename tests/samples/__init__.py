"""Op samples, by topic: one module beside each module of tf_pfor/converters.

``ALL`` is the list of all samples; every op type in the registry must have one.
"""

import importlib
import pkgutil

from tests.harness import Sample

ALL: list[Sample] = []
for _info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
    ALL += importlib.import_module(f"{__name__}.{_info.name}").SAMPLES
