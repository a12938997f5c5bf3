"""Accuracy by length, the stress suite, and analyses of failures and learning."""

from lengthwise.base import import_modules

import_modules(__name__)
