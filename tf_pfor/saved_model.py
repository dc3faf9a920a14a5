"""SavedModels for one example that become SavedModels for a batch (docs/saved_model.md)."""

from tf_pfor.frontends.saved_model import BatchedModel, batch, explain

__all__ = ["BatchedModel", "batch", "explain"]
