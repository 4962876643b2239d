"""In a clone, dataset.py at the root under its package name. In a wheel, that file is here instead of this one."""

import sys
from typing import TYPE_CHECKING

import dataset

if TYPE_CHECKING:
    from dataset import *  # noqa: F403

sys.modules[__name__] = dataset
