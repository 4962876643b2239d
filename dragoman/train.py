"""In a clone, train.py at the root under its package name. In a wheel, that file is here instead of this one."""

import sys
from typing import TYPE_CHECKING

import train as module

if TYPE_CHECKING:
    from train import *  # noqa: F403

sys.modules[__name__] = module
