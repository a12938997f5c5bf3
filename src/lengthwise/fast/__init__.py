"""The one door to speed: an encoder's logits in C, or by PyTorch where the C code does not apply.

`logits` is called from one place, `Solver.forward`. Deleting this package and that call changes nothing
but the speed. docs/speed.md says what it gains.
"""

from lengthwise.fast.door import decline_reason, is_enabled, logits, use_pytorch

__all__ = ["decline_reason", "is_enabled", "logits", "use_pytorch"]
