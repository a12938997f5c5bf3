"""Accuracy by length, the stress suite, and analyses of failures and learning."""
