"""The one door to speed: an encoder's logits in C, or by PyTorch where the C code does not apply.

`logits` is called from one place, `Solver.forward`. Without this package and the calls of it, only
the speed would change (docs/speed.md).
"""

from lengthwise.fast.door import decline_reason, is_enabled, logits, use_pytorch

__all__ = ["decline_reason", "is_enabled", "logits", "use_pytorch"]
