"""Op samples, by topic: one module beside each module of tf_pfor/converters.

``ALL`` is the list of all samples, ``TOPICS`` the same by module; every op type in the registry
must have one.
"""

import importlib
import pkgutil

from tests.sample import Sample

TOPICS: dict[str, list[Sample]] = {
    info.name: importlib.import_module(f"{__name__}.{info.name}").SAMPLES
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name)
}
ALL: list[Sample] = [s for samples in TOPICS.values() for s in samples]
