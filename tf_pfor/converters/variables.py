"""Resource variables (DESIGN 9)."""

from __future__ import annotations

from tf_pfor.converters._families import run_once, table

# The same for all iterations: reading, asking, making. Assigning a loop-invariant value: once.
run_once(table("DestroyResourceOp VarIsInitializedOp VariableShape"))
run_once(
    {
        "AssignVariableOp": ("validate_shape",),
        "ReadVariableOp": (),
        "VarHandleOp": ("allowed_devices", "container", "debug_name", "shape", "shared_name"),
    }
)
