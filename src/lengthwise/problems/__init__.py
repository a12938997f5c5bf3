"""Which problems are trained and tested on, how they are written, and every token's coordinates."""

from lengthwise.base import import_modules

import_modules(__name__)
