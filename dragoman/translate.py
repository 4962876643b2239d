"""In a clone, translate.py at the root under its package name. In a wheel, that file is here instead of this one."""

import sys
from typing import TYPE_CHECKING

import translate as module

if TYPE_CHECKING:
    from translate import *  # noqa: F403

sys.modules[__name__] = module
