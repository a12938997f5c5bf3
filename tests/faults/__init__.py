"""Harnesses that look for what is silently wrong; `make test-faults` runs them at full counts."""
