"""In a clone, model.py at the root under its package name. In a wheel, that file is here instead of this one."""

import sys
from typing import TYPE_CHECKING

import model

if TYPE_CHECKING:
    from model import *  # noqa: F403

sys.modules[__name__] = model
