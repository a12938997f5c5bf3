"""Experiments, their run directories, and one readable loop that resumes bit for bit."""

from lengthwise.base import import_modules

import_modules(__name__)
