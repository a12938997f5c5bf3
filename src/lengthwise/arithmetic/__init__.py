"""Integers only: exact arithmetic on digit arrays, and the tasks that a model learns."""

from lengthwise.base import import_modules

import_modules(__name__)
