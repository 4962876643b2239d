"""The failures that the program foresees. Each ends a command with one line on standard error and its exit code.

0 done                                  5 another process is using the folder
2 a mistake in the settings             6 non-finite numbers, or too little memory
3 a mistake in the data or input        7 a disk that is full or failing
4 no usable checkpoint                  8 another rank has ended
"""

from __future__ import annotations

from collections.abc import Sequence


class DragomanError(Exception):
    """Base class. The message tells the user what is wrong, where, and what to do."""

    exit_code = 1


class ConfigError(DragomanError, ValueError):
    """A mistake in the settings or on the command line."""

    exit_code = 2


class DeviceError(DragomanError, RuntimeError):
    """This machine lacks the requested device or precision."""

    exit_code = 2


class EngineError(ConfigError):
    """CTranslate2 cannot be used here, though the program's own search can."""


class UnsupportedError(EngineError):
    """CTranslate2 lacks what a model, a search or a device needs."""


class DataError(DragomanError, ValueError):
    """Something is wrong with the data."""

    exit_code = 3


class OtherLanguagesError(DataError):
    """The data exist, but not in the requested languages.

    Attributes:
        languages: those that the data name, if known
    """

    def __init__(self, message: str, languages: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.languages = tuple(languages)


class NetworkError(DataError):
    """A server cannot be reached, or does not send a whole file."""


class DataChangedError(DataError):
    """The corpus or a data setting has changed since this run's data were prepared."""

    exit_code = 2


class CheckpointError(DragomanError, RuntimeError):
    """A checkpoint cannot be used, or must not be written."""

    exit_code = 4


class NotFiniteError(CheckpointError):
    """A tensor to be saved holds NaN or an infinite value, which further training would not repair."""

    exit_code = 6


class NewerFormatError(CheckpointError):
    """The checkpoint is intact, but a newer version of this program wrote it."""


class ExportError(CheckpointError):
    """An exported model translates differently from its checkpoint; the message shows the first difference."""


class RunInUseError(DragomanError, RuntimeError):
    """Another process is working in this folder; the message gives its pid and host."""

    exit_code = 5


class NumericalError(DragomanError, RuntimeError):
    """A loss or a gradient is NaN or infinite. The weights are unchanged."""

    exit_code = 6


class TooLargeError(DragomanError, RuntimeError):
    """There is too little memory, even after batches were split."""

    exit_code = 6


class StorageError(DragomanError, RuntimeError):
    """A write failed; the message gives the path, the bytes needed and the bytes free."""

    exit_code = 7


class RankError(DragomanError, RuntimeError):
    """Another rank has ended or cannot be reached."""

    exit_code = 8
