"""Every failure that the program foresees. Each ends a command with one line on standard error and its exit code.

0 done                                  5 the run is in use by another process
2 a mistake in the settings             6 numbers that are not finite, or too little memory
3 a mistake in the data or input        7 a disk that is full or failing
4 no usable checkpoint                  8 another rank has ended
"""

from __future__ import annotations


class DragomanError(Exception):
    """Base class: a message for the user that says what is wrong, where, and what to do."""

    exit_code = 1


class ConfigError(DragomanError, ValueError):
    """A mistake in the settings or the command line."""

    exit_code = 2


class DeviceError(DragomanError, RuntimeError):
    """This machine does not have the device or precision that the settings ask for."""

    exit_code = 2


class DataError(DragomanError, ValueError):
    """Something is wrong with the data."""

    exit_code = 3


class OtherLanguagesError(DataError):
    """The data exist, but not in the languages that were asked for."""


class DataChangedError(DataError):
    """The corpus or a data setting differs from what this run's data were prepared from."""

    exit_code = 2


class CheckpointError(DragomanError, RuntimeError):
    """A checkpoint cannot be used, or must not be written."""

    exit_code = 4


class NotFiniteError(CheckpointError):
    """What was to be saved holds NaN or an infinite value, which no later training would repair."""

    exit_code = 6


class NewerFormatError(CheckpointError):
    """The checkpoint is sound, but a newer version of this program wrote it."""


class ExportError(CheckpointError):
    """An exported model translates differently from its checkpoint; the message shows the first difference."""


class RunInUseError(DragomanError, RuntimeError):
    """Another process is training in this run folder; the message gives its pid and host."""

    exit_code = 5


class NumericalError(DragomanError, RuntimeError):
    """A loss or a gradient is NaN or infinite. The weights were not touched."""

    exit_code = 6


class TooLargeError(DragomanError, RuntimeError):
    """A single sentence pair does not fit into memory."""

    exit_code = 6


class StorageError(DragomanError, RuntimeError):
    """A write failed; the message gives the path, the bytes needed and the bytes free."""

    exit_code = 7


class RankError(DragomanError, RuntimeError):
    """Another rank has ended, or cannot be reached."""

    exit_code = 8
