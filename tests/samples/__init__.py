"""Op samples, by topic: one module for each module of tf_pfor/converters, in
the same room.

``ALL`` is the list of all samples, ``TOPICS`` the same by module; every op type in the registry
must have one.
"""

import importlib
import pkgutil

from tests.sample import Sample

MODULES = {
    info.name.rsplit(".", 1)[1]: importlib.import_module(info.name)
    for info in pkgutil.walk_packages(__path__, __name__ + ".")
    if not info.ispkg
}
TOPICS: dict[str, list[Sample]] = {topic: MODULES[topic].SAMPLES for topic in sorted(MODULES)}
ALL: list[Sample] = [s for samples in TOPICS.values() for s in samples]
