"""Classes of bodies by contexts of a map: which features meet, and how each cell ends."""
