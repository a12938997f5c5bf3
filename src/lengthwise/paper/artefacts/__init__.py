"""One module for each table and figure; a new file here is found without being listed."""

from lengthwise.base import import_modules

import_modules(__name__)
